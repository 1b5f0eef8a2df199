"""The promises side by side: what each hides, what its noise costs, what attackers reach."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
