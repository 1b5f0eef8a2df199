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
from .loop_release import PrivateTraining as PrivateTraining
from .noise import carry_over as carry_over
from .noise import noisy_coefficients as noisy_coefficients
from .prepared import PreparedTraining as PreparedTraining
from .prepared import prepare_training as prepare_training
from .private_loop import LoopSettings as LoopSettings
from .private_loop import PreparedLoop as PreparedLoop
from .private_loop import PrivateLoop as PrivateLoop
from .private_loop import make_private as make_private
from .private_loop import prepare_private as prepare_private
from .references import References as References
from .release import TrainedModel as TrainedModel
from .rounds import LocalSteps as LocalSteps
from .rounds import OneStep as OneStep
from .rounds import Round as Round
