"""Bounds on the information I(X; Y) that a noisy release carries about a secret."""

from tacit.conversions import fano_information
from tacit.information.bounds import InformationBound
from tacit.information.composition import compose_additive, compose_joint
from tacit.information.concentration import mean_lower_bound, mean_upper_bound
from tacit.information.contrastive import contrastive
from tacit.information.donsker_varadhan import gap_donsker_varadhan
from tacit.information.gaps import Gap, improve
from tacit.information.log_det import log_det_information
from tacit.information.mixture import mixture
from tacit.information.sampled import leave_one_out
from tacit.information.sliced_wasserstein import gap_sliced_wasserstein

__all__ = [
    "Gap",
    "InformationBound",
    "compose_additive",
    "compose_joint",
    "contrastive",
    "fano_information",
    "gap_donsker_varadhan",
    "gap_sliced_wasserstein",
    "improve",
    "leave_one_out",
    "log_det_information",
    "mean_lower_bound",
    "mean_upper_bound",
    "mixture",
]
