"""The gate: whether stored releases stay within the thresholds someone set for them."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
