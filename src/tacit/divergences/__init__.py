"""Divergences between Gaussians: of a shift (any f-divergence) and of different covariances."""

from tacit.divergences.gaussians import kl_gaussians, renyi_gaussians
from tacit.divergences.kinds import Kind, NamedKind, check_kind, check_named_kind
from tacit.divergences.shift import shift_distance, shift_divergence

__all__ = [
    "Kind",
    "NamedKind",
    "check_kind",
    "check_named_kind",
    "kl_gaussians",
    "renyi_gaussians",
    "shift_distance",
    "shift_divergence",
]
