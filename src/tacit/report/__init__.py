"""One HTML page per release: the verdict, the figure, the numbers, the assumptions."""

from tacit._ground.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
