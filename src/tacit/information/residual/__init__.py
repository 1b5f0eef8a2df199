"""Residual privacy: what a secret has to begin with, what a release takes, what is left."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
