"""Bounds on the information I(X; Y) that a noisy release carries about a secret."""

from .bounds import InformationBracket as InformationBracket
from .composition import compose_additive as compose_additive
from .composition import compose_joint as compose_joint
from .concentration import mean_lower_bound as mean_lower_bound
from .concentration import mean_upper_bound as mean_upper_bound
from .finite.mixture import mixture as mixture
from .gaps import Gap as Gap
from .gaps import gap_donsker_varadhan as gap_donsker_varadhan
from .gaps import gap_sliced_wasserstein as gap_sliced_wasserstein
from .gaps import improve as improve
from .leakage import channel_leakage as channel_leakage
from .leakage import code_leakage as code_leakage
from .leakage import gaussian_leakage as gaussian_leakage
from .leakage import local_dp_leakage as local_dp_leakage
from .leakage import response_leakage as response_leakage
from .log_det import clipped_information as clipped_information
from .log_det import log_det_information as log_det_information
from .sampled import contrastive as contrastive
from .sampled import leave_one_out as leave_one_out
