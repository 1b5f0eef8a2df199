"""Decide what a release says, prove it, attack it before you ship it."""

from . import accounting as accounting
from . import adapters as adapters
from . import attacks as attacks
from . import classifiers as classifiers
from . import codec as codec
from . import compute as compute
from . import conversions as conversions
from . import covariance as covariance
from . import design as design
from . import divergences as divergences
from . import gate as gate
from . import gradients as gradients
from . import guarantees as guarantees
from . import hidden_states as hidden_states
from . import information as information
from . import ledger as ledger
from . import measured as measured
from . import models as models
from . import pages as pages
from . import releases as releases
from . import report as report
from . import runs as runs
from . import specifications as specifications
from . import statistics as statistics
from . import stores as stores
from . import training as training
from .accounting.curves.calibration import calibrate as calibrate
from .design.listed.solver import worst_case as worst_case
from .gate import GateResult as GateResult
from .gate import check_release as check_release
from .ledger.ledger import Ledger as Ledger
from .releases.loading import load as load
from .releases.promises import Draw as Draw
from .releases.promises import Effort as Effort
from .releases.promises import Rows as Rows
from .releases.promises import Table as Table
from .runs.run import Run as Run
from .statistics.workflow import prepare as prepare
from .statistics.workflow import privatize as privatize

__version__: str
