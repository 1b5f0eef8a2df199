"""Attacks told everything the defender did: what they reach is evidence, never a guarantee."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
