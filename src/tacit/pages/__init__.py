"""What pages are made of: a release in words, tables and figures."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
