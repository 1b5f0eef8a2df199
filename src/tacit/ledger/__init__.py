"""The ledger: every release against a secret, and a budget that is never overrun."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
