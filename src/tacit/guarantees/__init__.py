"""What a certificate is: frozen values with their evidence, assumptions, source and JSON."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
