"""The canary game: whether a model's training data held one record, guessed from the model."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
