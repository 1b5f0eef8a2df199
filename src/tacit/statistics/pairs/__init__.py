"""Disjoint groups of a pool's rows, of which a fair coin or die draws one each."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
