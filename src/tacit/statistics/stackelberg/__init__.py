"""SR-PAC as published, an estimate of the noise a budget needs, with checks that can refute it."""

from tacit.statistics.stackelberg.checks import Check
from tacit.statistics.stackelberg.estimate import StackelbergEstimate, StackelbergHistory
from tacit.statistics.stackelberg.noise import (
    EllipticalNoise,
    GaussianNoise,
    MixtureNoise,
    StackelbergNoise,
)
from tacit.statistics.stackelberg.workflow import decoder_margin, stackelberg

__all__ = [
    "Check",
    "EllipticalNoise",
    "GaussianNoise",
    "MixtureNoise",
    "StackelbergEstimate",
    "StackelbergHistory",
    "StackelbergNoise",
    "decoder_margin",
    "stackelberg",
]
