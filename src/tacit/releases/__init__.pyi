"""The form that every workflow returns, and what every release does alike."""

from .contradiction import ContradictionError as ContradictionError
from .form import Attack as Attack
from .form import Form as Form
from .form import Number as Number
from .form import Release as Release
from .form import Use as Use
from .loading import load as load
from .prepared import Expected as Expected
from .prepared import Prepared as Prepared
from .provenance import Provenance as Provenance
