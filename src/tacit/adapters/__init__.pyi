"""Fine-tune low-rank adapters so that no record can be told from them."""

from .game.bounds import auc_from_profile as auc_from_profile
from .game.evidence import CanaryGame as CanaryGame
from .game.evidence import canary_game as canary_game
from .game.linear import PlayedHeads as PlayedHeads
from .game.linear import play_linear_heads as play_linear_heads
from .game.updates import update_log_ratio as update_log_ratio
from .methods import DPSGD as DPSGD
from .methods import Clipped as Clipped
from .methods import DPLoRAFA as DPLoRAFA
from .methods import LoRAFA as LoRAFA
from .methods import Method as Method
from .methods import NoisyProjection as NoisyProjection
from .methods import Schedule as Schedule
from .methods import WithoutClipping as WithoutClipping
