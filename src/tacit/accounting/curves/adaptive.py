"""The profile of several releases whose own profiles were fixed in advance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS
from tacit.accounting.curves.composition import compose, least
from tacit.accounting.curves.discretisation import Curve
from tacit.accounting.curves.moments import capped

if TYPE_CHECKING:
    from tacit.accounting.curves.profile import PrivacyProfile

FIXED = "the profiles composed were fixed in advance, not chosen after seeing a release"


def composed(
    parts: Sequence[tuple[PrivacyProfile, int]], name: str, adjacency: str
) -> PrivacyProfile:
    """Return the profile of every release of ``parts``, their profiles fixed in advance.

    A mechanism may use the releases before it; which profile it has may not depend on them. For
    that there are filters, on Rényi curves and on μ, in `tacit.ledger`.
    """
    both = [profile.parts(count) for profile, count in parts]
    symmetric = all(profile.symmetric for profile, _ in parts)
    firsts, seconds = [pair[0] for pair in both], [pair[1] for pair in both]
    ahead = compose(firsts)
    back = ahead if symmetric else compose(seconds)
    forward: Curve = capped(least(ahead), firsts)
    curves = [(profile.renyi_curve, count) for profile, count in parts]

    def renyi(orders: Array) -> Array:
        total: Any = sum(count * curve(orders) for curve, count in curves if curve is not None)
        return np.asarray(total * (1 + 8 * EPS))

    finite = math.fsum(n * math.log1p(-p.infinite_mass) for p, n in parts if p.infinite_mass < 1)
    lost = any(profile.infinite_mass == 1 for profile, _ in parts)
    sources = dict.fromkeys(p.source for p, _ in parts)
    return replace(
        parts[0][0],
        name=name,
        forward=forward,
        backward=forward if symmetric else capped(least(back), seconds),
        infinite_mass=1.0 if lost else min(-math.expm1(finite) * (1 + 16 * EPS), 1.0),
        source="; ".join([*sources, "pessimistic discretisation, Doroshenko et al. (2022)"]),
        assumptions=tuple(dict.fromkeys([*(a for p, _ in parts for a in p.assumptions), FIXED])),
        evidence="numerical",
        adjacency=adjacency,
        renyi_curve=None if any(curve is None for curve, _ in curves) else renyi,
        masses=(ahead[0], back[0]),
    )
