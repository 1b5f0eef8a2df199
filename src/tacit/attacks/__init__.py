"""Attacks told everything the defender did: what they reach is evidence, never a guarantee."""

from tacit.attacks.bayes import BayesAttack, bayes, bayes_success
from tacit.attacks.membership import (
    MembershipAttack,
    OperatingPoint,
    RocSummary,
    likelihood_ratio,
    lira,
    membership_attack,
    roc,
)
from tacit.attacks.retrieval import retrieval, zipf
from tacit.attacks.retrieval_result import RetrievalAttack

__all__ = [
    "BayesAttack",
    "MembershipAttack",
    "OperatingPoint",
    "RetrievalAttack",
    "RocSummary",
    "bayes",
    "bayes_success",
    "likelihood_ratio",
    "lira",
    "membership_attack",
    "retrieval",
    "roc",
    "zipf",
]
