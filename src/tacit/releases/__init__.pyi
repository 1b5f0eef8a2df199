"""The form that every workflow returns, and what every release does alike."""

from .contradiction import ContradictionError as ContradictionError
from .provenance import Provenance as Provenance
