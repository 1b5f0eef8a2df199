"""Choose the covariance of the noise: one problem, five measures of leakage."""

from tacit.design.base import Design
from tacit.design.closed_forms import (
    average,
    ball,
    complement,
    generalized_eigen,
    isotropic,
    power,
)

__all__ = [
    "Design",
    "average",
    "ball",
    "complement",
    "generalized_eigen",
    "isotropic",
    "power",
]
