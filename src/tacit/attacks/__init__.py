"""Attacks told everything the defender did: what they reach is evidence, never a guarantee."""

from tacit.attacks.membership import MembershipAttack, membership_attack

__all__ = ["MembershipAttack", "membership_attack"]
