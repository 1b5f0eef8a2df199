"""Keep learnwares, and find one by the specification of a task."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
