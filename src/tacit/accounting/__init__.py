"""Privacy profiles: exact δ(ε) curves of mechanisms, subsampled, composed and calibrated."""

from tacit.accounting.calibration import calibrate
from tacit.accounting.classical import laplace, randomized_response
from tacit.accounting.gaussian import gaussian, gaussian_shift
from tacit.accounting.profile import PrivacyProfile, profile_from_curves
from tacit.accounting.subsampled import subsampled_gaussian

__all__ = [
    "PrivacyProfile",
    "calibrate",
    "gaussian",
    "gaussian_shift",
    "laplace",
    "profile_from_curves",
    "randomized_response",
    "subsampled_gaussian",
]
