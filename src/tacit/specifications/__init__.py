"""Describe what a model can do so that it can be found, and know what the description tells."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
