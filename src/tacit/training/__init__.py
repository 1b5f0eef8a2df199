"""Train so that the model stays indistinguishable from what safe references would give."""

from tacit._ground.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
