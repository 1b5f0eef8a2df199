"""The proof of a release about people: whole noise on sums that a clipped person moves so far."""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any

from tacit._ground.proof import Node, composed, node
from tacit.design.choosing import range_of
from tacit.guarantees.adjacency import Adjacency
from tacit.releases.proof import ReleaseProof, claims_of
from tacit.releases.proofs import of_answer
from tacit.releases.release import Release
from tacit.statistics.details import declared_columns
from tacit.statistics.people.keys import UNIT, KeyRound, KeySearch
from tacit.statistics.people.ranges import PARTS, RangeSearch
from tacit.statistics.people.release import PeopleDetails
from tacit.statistics.queries.language import bind_query

# Digits of b, which is a fraction: rounded down, as less noise tells more.
SCALE = Context(prec=100, rounding=ROUND_FLOOR)


def proof(release: Release[PeopleDetails]) -> ReleaseProof:
    """Return the noise on the sums, and the choices of keys, a radius and quantiles beside it."""
    details = release.details
    parts: list[tuple[Node | None, int]] = []
    if details.keys is not None:
        parts += [(_weights(details.keys, one), 1) for one in details.keys.rounds]
    if details.ranges is not None:
        parts.append((_parts(details, details.ranges), 1))
    if not details.nothing_summed:
        parts.append((_noise(details), 1))
    if details.found == "private":
        parts.append((node("exponential", range=_radius_range(details)), 1))
    if details.quantiles:
        # a value, and both ends of its interval
        value, end = details.quantile_ranges
        parts.append((node("exponential", range=value), details.quantiles))
        parts.append((node("exponential", range=end), 2 * details.quantiles))
    unit = details.unit
    clipped = f"the vector that a {unit} adds to the sums is clipped to the radius"
    return ReleaseProof(
        mechanism=composed(parts) or {},
        claims=claims_of(of_answer(release, alone=details.session is None)),
        adjacency="replace" if details.promise.adjacency is Adjacency.REPLACE else "add-remove",
        given=(clipped, *release.all_assumptions),
    )


def _weights(search: KeySearch, one: KeyRound) -> Node:
    """Return a round in which keys are weighed, and pass a threshold with whole noise."""
    return node(
        "weighted-keys",
        length=UNIT,
        most=search.most,
        threshold=one.threshold,
        variance=one.variance,
    )


def _parts(details: PeopleDetails, ranges: RangeSearch) -> Node:
    """Return the noise on the weights of the parts of log scales."""
    reach = ranges.reach(details.promise.adjacency)
    if details.promise.pure:
        return node("discrete-laplace", sensitivity=reach, scale=_down(ranges.scale))
    return node(
        "discrete-gaussian",
        sensitivity=reach,
        variance=ranges.variance,
        coordinates=PARTS * len(ranges.columns),
    )


def _down(scale: tuple[int, int]) -> str:
    above, below = (Decimal(part) for part in scale)
    return str(SCALE.divide(above, below))


def _noise(details: PeopleDetails) -> Node:
    """Return the noise on whole sums that one person moves by the radius, or twice as far."""
    if details.promise.pure:
        return node("discrete-laplace", sensitivity=details.reach, scale=_down(details.scale))
    query: Any = bind_query(details.query, declared_columns(details.promise, details.columns))
    return node(
        "discrete-gaussian",
        sensitivity=details.reach,
        variance=details.variance,
        coordinates=max(len(query.terms), 1),
    )


def _radius_range(details: PeopleDetails) -> float:
    """Return the bounded range of the choice of a radius, at its share of what is left for it."""
    level, pure = details.numbers_level, details.promise.pure
    if details.quantiles:
        level *= 1.0 - details.quantile_share if pure else math.sqrt(1.0 - details.quantile_share)
    share = details.share if pure else math.sqrt(details.share)
    return level * share if pure else range_of(level * share)
