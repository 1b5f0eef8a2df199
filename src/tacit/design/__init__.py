"""Choose the covariance of the noise: one problem, five measures of leakage."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
