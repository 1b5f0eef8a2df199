"""Disjoint groups of a pool's rows, of which a fair coin or die draws one each."""

from .matching import nearest as nearest
from .pairing import Pairing as Pairing
from .pairing import at_random as at_random
from .pairing import by_column as by_column
from .pairing import given as given
