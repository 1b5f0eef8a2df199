"""Describe what a model can do so that it can be found, and know what the description tells."""

from .specification import Space as Space
from .specification import Specification as Specification
from .specification import check_comparable as check_comparable
from .specification import read_specification as read_specification
from .specification import specification_from_bytes as specification_from_bytes
