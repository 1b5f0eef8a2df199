"""One HTML page per release, the certificate that may be published, and the report of a ledger."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
