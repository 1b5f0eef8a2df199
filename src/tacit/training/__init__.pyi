"""Train a model so that it stays indistinguishable from safe references."""

from .account import ReferenceSpentError as ReferenceSpentError
from .indistinguishable import Indistinguishable as Indistinguishable
from .indistinguishable import Round as Round
from .references import References as References
from .release import TrainingRelease as TrainingRelease
from .settings import LocalSteps as LocalSteps
