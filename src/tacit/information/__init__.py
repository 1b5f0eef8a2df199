"""Bounds on the information I(X; Y) that a noisy release carries about a secret."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
