"""Measure a layer of a language model, release its states, choose what to keep."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
