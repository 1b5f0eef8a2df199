"""Divergences between Gaussians: of a shift (any f-divergence) and of different covariances."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
