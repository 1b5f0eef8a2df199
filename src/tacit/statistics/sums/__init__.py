"""Statistics that follow from sums over rows: what they add up, and what is computed from it."""

from tacit._ground.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
