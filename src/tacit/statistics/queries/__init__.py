"""What may be asked of a table: one language of statistics, whatever the promise."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
