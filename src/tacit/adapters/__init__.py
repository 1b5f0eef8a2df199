"""Fine-tune low-rank adapters so that no record can be told from them."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
