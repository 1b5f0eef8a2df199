"""Disjoint groups of a pool's rows, of which a fair coin or die draws one each."""

from .choices import at_random as at_random
from .choices import by_column as by_column
from .choices import given as given
from .matching import nearest as nearest
from .pairing import Pairing as Pairing
