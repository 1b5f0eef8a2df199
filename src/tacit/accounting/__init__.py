"""Privacy profiles: exact δ(ε) curves of mechanisms, subsampled, composed and calibrated."""

from tacit.accounting.gaussian import gaussian, gaussian_shift
from tacit.accounting.profile import PrivacyProfile, profile_from_curves

__all__ = [
    "PrivacyProfile",
    "gaussian",
    "gaussian_shift",
    "profile_from_curves",
]
