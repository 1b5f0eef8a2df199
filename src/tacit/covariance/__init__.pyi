"""Covariances of released noise: sampled and measured without forming a d×d matrix."""

from .base import Covariance as Covariance
from .coercion import covariance_from_dict as covariance_from_dict
from .coercion import described_fields as described_fields
from .full import Dense as Dense
from .full import Diagonal as Diagonal
from .full import Isotropic as Isotropic
from .low_rank import Factored as Factored
from .low_rank import LowRank as LowRank
from .scale_mixture import ScaleMixture as ScaleMixture
from .whitening import whiten as whiten
