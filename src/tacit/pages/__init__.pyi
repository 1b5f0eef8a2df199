"""What pages are made of: a release in words, tables and figures."""

from .drawing import NARROW as NARROW
from .drawing import WIDE as WIDE
from .drawing import Scale as Scale
from .embedding import embedded_json as embedded_json
from .parts import Section as Section
from .parts import Sections as Sections
from .parts import bullets as bullets
from .parts import figure as figure
from .parts import folded as folded
from .parts import joined as joined
from .parts import paragraph as paragraph
from .parts import table as table
from .rendering import rendered as rendered
from .success import SuccessPlot as SuccessPlot
from .success import success_figure as success_figure
from .words import Verdict as Verdict
from .words import verdict as verdict
