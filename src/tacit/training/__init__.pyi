"""Train a model so that it stays indistinguishable from safe references."""

from .account import Beside as Beside
from .account import ReferenceSpentError as ReferenceSpentError
from .bounded import bounded_probability as bounded_probability
from .contribution import Retraining as Retraining
from .contribution import SourcedExamples as SourcedExamples
from .contribution import TrainingRecipe as TrainingRecipe
from .contribution import prepare_contribution as prepare_contribution
from .indistinguishable import Indistinguishable as Indistinguishable
from .local import LocalOutcome as LocalOutcome
from .local import local_differences as local_differences
from .noise import carry_over as carry_over
from .noise import noisy_coefficients as noisy_coefficients
from .prepared import PreparedTraining as PreparedTraining
from .prepared import prepare_training as prepare_training
from .references import References as References
from .release import TrainedModel as TrainedModel
from .rounds import LocalSteps as LocalSteps
from .rounds import OneStep as OneStep
from .rounds import Round as Round
