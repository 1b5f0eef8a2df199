"""What a language model keeps of its texts: canaries with secrets, exposure, a bound on it."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
