"""How long something trains, when it stops, and how it survives a crash."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
