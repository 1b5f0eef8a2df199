"""One HTML page per release, and the certificate that may be published."""

from tacit._ground.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
