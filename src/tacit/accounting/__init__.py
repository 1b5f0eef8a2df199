"""Privacy profiles: exact δ(ε) curves of mechanisms, subsampled, composed and calibrated."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
