"""The promises side by side: what each hides, what its noise costs, what attackers reach."""

from .promises import compare as compare
from .result import Comparison as Comparison
from .result import PromiseResult as PromiseResult
