"""Release a classifier's logits for inputs that are secrets drawn from a declared pool."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
