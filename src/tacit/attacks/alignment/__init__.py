"""Attackers of a secret rotation: what they know of it, and what of a state they then compare."""
