"""SR-PAC as published, an estimate of the noise a budget needs, with checks that can refute it."""

from tacit.statistics.stackelberg.checks import Check
from tacit.statistics.stackelberg.curves import (
    BudgetCurves,
    anisotropy,
    budget_curves,
    label_subspace,
    task_share,
)
from tacit.statistics.stackelberg.estimate import StackelbergEstimate, StackelbergHistory
from tacit.statistics.stackelberg.noise import (
    EllipticalNoise,
    GaussianNoise,
    MixtureNoise,
    StackelbergNoise,
)
from tacit.statistics.stackelberg.workflow import decoder_margin, stackelberg

__all__ = [
    "BudgetCurves",
    "Check",
    "EllipticalNoise",
    "GaussianNoise",
    "MixtureNoise",
    "StackelbergEstimate",
    "StackelbergHistory",
    "StackelbergNoise",
    "anisotropy",
    "budget_curves",
    "decoder_margin",
    "label_subspace",
    "stackelberg",
    "task_share",
]
