"""Per-example gradients of any model, and the private step that is made of them."""

from .adaptive import AdaptiveDPSGD as AdaptiveDPSGD
from .capture import PerExample as PerExample
from .capture import per_example as per_example
from .clipping import ClippedMethod as ClippedMethod
from .correlated import CorrelatedDPSGD as CorrelatedDPSGD
from .given import GivenNoise as GivenNoise
from .hooks import LinearHooks as LinearHooks
from .methods import DPSGD as DPSGD
from .methods import DPLoRAFA as DPLoRAFA
from .methods import LoRAFA as LoRAFA
from .methods import NoisyProjection as NoisyProjection
from .steps import Method as Method
from .steps import Schedule as Schedule
from .unclipped import WithoutClipping as WithoutClipping
from .verification import check_gradients as check_gradients
from .verification import verify_examples as verify_examples
