"""What papers publish that carries no guarantee, and what serves their tables."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
