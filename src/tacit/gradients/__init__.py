"""Per-example gradients of any model, and the private step that is made of them."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
