"""Train a model so that it stays indistinguishable from safe references."""

from .account import ReferenceSpentError as ReferenceSpentError
from .contribution.workflow import prepare_contribution as prepare_contribution
from .gradients.base import PerExample as PerExample
from .gradients.capture import per_example as per_example
from .gradients.noise import carried_over as carried_over
from .gradients.noise import noisy_coefficients as noisy_coefficients
from .gradients.verification import verify_examples as verify_examples
from .indistinguishable import Indistinguishable as Indistinguishable
from .indistinguishable import Round as Round
from .local.differences import LocalOutcome as LocalOutcome
from .local.differences import local_differences as local_differences
from .memorisation.bound import exposure_bound as exposure_bound
from .memorisation.canaries import Canaries as Canaries
from .memorisation.exposure import Exposures as Exposures
from .memorisation.exposure import exact_memorisation as exact_memorisation
from .memorisation.exposure import exposures as exposures
from .memorisation.workflow import prepare_memorisation as prepare_memorisation
from .prepared import PreparedTraining as PreparedTraining
from .prepared import prepare_training as prepare_training
from .references import References as References
from .release import TrainingRelease as TrainingRelease
from .settings import LocalSteps as LocalSteps
