"""Fine-tune low-rank adapters so that no record can be told from them."""

from .gradients.hooks import LinearHooks as LinearHooks
from .methods import DPSGD as DPSGD
from .methods import Clipped as Clipped
from .methods import DPLoRAFA as DPLoRAFA
from .methods import LoRAFA as LoRAFA
from .methods import Method as Method
from .methods import NoisyProjection as NoisyProjection
from .methods import Schedule as Schedule
from .methods import WithoutClipping as WithoutClipping
