"""What one malicious source can make a model do, and how little of it is left beside references."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
