"""The form that every workflow returns, and what every release does alike."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
