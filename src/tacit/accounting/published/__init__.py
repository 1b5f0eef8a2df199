"""The papers' own bounds, as printed, to compare with; refused where they are unsound."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
