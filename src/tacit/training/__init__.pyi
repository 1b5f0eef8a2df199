"""Train a model so that it stays indistinguishable from safe references."""

from .account import ReferenceSpentError as ReferenceSpentError
from .contribution.workflow import prepare_contribution as prepare_contribution
from .gradients.base import PerExample as PerExample
from .gradients.capture import per_example as per_example
from .gradients.noise import carried_over as carried_over
from .gradients.noise import noisy_coefficients as noisy_coefficients
from .gradients.verification import verify_examples as verify_examples
from .indistinguishable import Indistinguishable as Indistinguishable
from .local.differences import LocalOutcome as LocalOutcome
from .local.differences import local_differences as local_differences
from .poisoning.aggregation import robust_aggregate as robust_aggregate
from .poisoning.measuring import bounded_success as bounded_success
from .poisoning.network import pretrain as pretrain
from .poisoning.network import small_network as small_network
from .poisoning.sources import LabelledImages as LabelledImages
from .poisoning.triggers import Trigger as Trigger
from .poisoning.triggers import blended as blended
from .poisoning.triggers import low_frequency as low_frequency
from .poisoning.workflow import prepare_poisoning as prepare_poisoning
from .prepared import PreparedTraining as PreparedTraining
from .prepared import prepare_training as prepare_training
from .references import References as References
from .release import TrainingRelease as TrainingRelease
from .rounds import Round as Round
from .settings import LocalSteps as LocalSteps
