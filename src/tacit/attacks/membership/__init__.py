"""Who was in: attackers on declared subsets, on shadow models and on two hypotheses."""

from tacit.attacks.membership.declared import MembershipAttack, membership_attack
from tacit.attacks.membership.likelihood import likelihood_ratio
from tacit.attacks.membership.lira import lira
from tacit.attacks.membership.roc import OperatingPoint, RocSummary, roc

__all__ = [
    "MembershipAttack",
    "OperatingPoint",
    "RocSummary",
    "likelihood_ratio",
    "lira",
    "membership_attack",
    "roc",
]
