"""Privacy profiles: exact δ(ε) curves of mechanisms, subsampled, composed and calibrated."""

from . import published as published
from .curves.calibration import calibrate as calibrate
from .curves.calibration import least_noise as least_noise
from .curves.profile import PrivacyProfile as PrivacyProfile
from .curves.profile import profile_from_curves as profile_from_curves
from .mechanisms.allocation import random_allocation as random_allocation
from .mechanisms.classical import laplace as laplace
from .mechanisms.classical import randomized_response as randomized_response
from .mechanisms.gaussian import gaussian as gaussian
from .mechanisms.gaussian import gaussian_shift as gaussian_shift
from .mechanisms.groups import subsampled_group as subsampled_group
from .mechanisms.indistinguishability import RoundAccount as RoundAccount
from .mechanisms.indistinguishability import account_rounds as account_rounds
from .mechanisms.indistinguishability import per_round_budgets as per_round_budgets
from .mechanisms.indistinguishability import renyi_over_adjacency as renyi_over_adjacency
from .mechanisms.projected_noise import projected_plus_noise as projected_plus_noise
from .mechanisms.projection import ProjectedSteps as ProjectedSteps
from .mechanisms.projection import noisy_projection as noisy_projection
from .mechanisms.projection import noisy_projection_steps as noisy_projection_steps
from .mechanisms.projection import vector_projection as vector_projection
from .mechanisms.sketch import sketch as sketch
from .mechanisms.sketch import sketch_from_ratio as sketch_from_ratio
from .mechanisms.sketch import sketch_within as sketch_within
from .mechanisms.subsampled import subsampled_gaussian as subsampled_gaussian
