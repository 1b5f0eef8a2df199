"""SR-PAC as published, an estimate of the noise a budget needs, with checks that can refute it."""

from tacit._ground.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
