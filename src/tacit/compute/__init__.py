"""One function on many items: on this machine, on Ray or on Dask, with the same bits."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
