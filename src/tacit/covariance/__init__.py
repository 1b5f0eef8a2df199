"""Covariances of released noise: sampled and measured without forming a d×d matrix."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
