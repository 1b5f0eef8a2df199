"""Who was in: attackers on declared subsets, shadow models, two hypotheses, a finite secret."""

from tacit.attacks.bayes import BayesAttack, bayes
from tacit.attacks.membership.declared import MembershipAttack, membership_attack
from tacit.attacks.membership.likelihood import likelihood_ratio
from tacit.attacks.membership.lira import lira
from tacit.attacks.membership.roc import OperatingPoint, RocSummary, roc

__all__ = [
    "BayesAttack",
    "MembershipAttack",
    "OperatingPoint",
    "RocSummary",
    "bayes",
    "likelihood_ratio",
    "lira",
    "membership_attack",
    "roc",
]
