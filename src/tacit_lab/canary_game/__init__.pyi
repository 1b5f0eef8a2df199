"""The canary game: whether a model's training data held one record, guessed from the model."""

from .evidence import CanaryGame as CanaryGame
from .evidence import auc_from_profile as auc_from_profile
from .evidence import canary_game as canary_game
from .linear import PlayedHeads as PlayedHeads
from .linear import play_linear_heads as play_linear_heads
from .linear import update_log_ratio as update_log_ratio
