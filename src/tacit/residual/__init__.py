"""Residual privacy: what a secret has to begin with, what a release takes, what is left."""

from tacit.residual.intrinsic import (
    Decomposition,
    IntrinsicPrivacy,
    decompose,
    finite_intrinsic,
    membership_intrinsic,
)
from tacit.residual.references import (
    gaussian_entropy,
    gaussian_logistic_mean,
    logistic_log_density,
    maximum_entropy_intrinsic,
    pullback_intrinsic,
    uniform_intrinsic,
)

__all__ = [
    "Decomposition",
    "IntrinsicPrivacy",
    "decompose",
    "finite_intrinsic",
    "gaussian_entropy",
    "gaussian_logistic_mean",
    "logistic_log_density",
    "maximum_entropy_intrinsic",
    "membership_intrinsic",
    "pullback_intrinsic",
    "uniform_intrinsic",
]
