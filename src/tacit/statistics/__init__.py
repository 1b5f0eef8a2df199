"""Release a statistic of a table: design the noise, certify, attack, draw."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
