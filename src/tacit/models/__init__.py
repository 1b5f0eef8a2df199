"""A language model taken apart: loaded, read, replaced and continued at any layer."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
