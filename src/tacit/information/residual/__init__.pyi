"""Residual privacy: what a secret has to begin with, what a release takes, what is left."""

from .intrinsic import Decomposition as Decomposition
from .intrinsic import IntrinsicPrivacy as IntrinsicPrivacy
from .intrinsic import decompose as decompose
from .intrinsic import finite_intrinsic as finite_intrinsic
from .intrinsic import gaussian_entropy as gaussian_entropy
from .intrinsic import gaussian_logistic_mean as gaussian_logistic_mean
from .intrinsic import logistic_log_density as logistic_log_density
from .intrinsic import maximum_entropy_intrinsic as maximum_entropy_intrinsic
from .intrinsic import membership_intrinsic as membership_intrinsic
from .intrinsic import pullback_intrinsic as pullback_intrinsic
from .intrinsic import uniform_intrinsic as uniform_intrinsic
