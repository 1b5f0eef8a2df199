"""Decide what a release says, prove it, attack it before you ship it."""

from tacit._ground.lazy import attach

__version__ = "0.2.0"

__getattr__, __dir__ = attach(__name__, __file__)
