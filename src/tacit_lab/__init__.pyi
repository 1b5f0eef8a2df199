"""What papers publish that carries no guarantee, and what serves their tables."""

from . import canary_game as canary_game
from . import comparison as comparison
from . import memorisation as memorisation
from . import poisoning as poisoning
from . import stackelberg as stackelberg
