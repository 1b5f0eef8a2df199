"""Divergences between Gaussians: of a shift (any f-divergence) and of different covariances."""

from .gaussians import kl_gaussians as kl_gaussians
from .gaussians import renyi_gaussians as renyi_gaussians
from .shift import Kind as Kind
from .shift import NamedKind as NamedKind
from .shift import check_named_kind as check_named_kind
from .shift import shift_distance as shift_distance
from .shift import shift_divergence as shift_divergence
