"""Train a model so that it stays indistinguishable from safe references."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
