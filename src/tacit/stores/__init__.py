"""Keep documents where others can read the disk: codes in the clear, everything else sealed."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
