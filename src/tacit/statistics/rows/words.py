"""What a release by pairs promises and does not, in words."""

from __future__ import annotations

from typing import Any

from tacit.guarantees import GaussianDP, SuccessBound
from tacit.guarantees.base import Guarantee
from tacit.statistics.pairs.pairing import Pairing
from tacit.statistics.plan import FROM_SYSTEM, REPRODUCIBLE
from tacit.statistics.strength import naming_success, success_of

SECRET = "which row of each pair of the pool was drawn"
TASK = "whether any one row of the pool was drawn"
LAW = "that a fair coin drew one row of each pair, and how every other coin fell,"
GROUP_LAW = "that a fair die drew one row of each group, and what it drew of every other group,"
FAMILY_LAW = "that one of the declared draws was drawn, all equally likely,"
ADJACENCY = "which row of one pair was drawn"
SOURCE = (
    "sums move by one swap when one coin is flipped; Dong, Roth and Su (2022), Theorem 2.7 "
    "(Gaussian mechanism); noise by dsi, Theorem 3.3"
)
SWAPS_SOURCE = (
    "joint convexity of total variation over the other coins, the mean bounded on fresh coins by "
    "betting (Waudby-Smith and Ramdas, 2024)"
)
FAMILY_SOURCE = (
    "exact posterior over the declared draws, the mean success bounded on fresh releases by "
    "betting (Waudby-Smith and Ramdas, 2024)"
)
TOGETHER = (
    "one secret through many queries, each of which may be chosen by all answers before: the bound "
    "on guessing is of all of them together, up to the budget of the session; other sessions and "
    "releases add to it"
)
NOISE = (
    "the noise is independent of all else, computed in double precision; the sums are exact and "
    "what is published is on a grid that the noise alone sets"
)


def assumptions(pairing: Pairing, *, reproducible: bool, together: bool = False) -> tuple[str, ...]:
    """Return what must hold, and what is not hidden; ``together`` of all answers of a session."""
    sizes = pairing.group_size, len(pairing), int(pairing.left_out.size)
    return assumed_of(*sizes, reproducible=reproducible, together=together)


def assumed_of(
    size: int, count: int, outside: int, *, reproducible: bool, together: bool = False
) -> tuple[str, ...]:
    """Return what must hold for so many groups of a size, with so many rows in none."""
    groups = "pairs" if size == 2 else f"groups of {size}"
    coin = "a fair coin" if size == 2 else "a fair die"
    lines = [
        f"{coin} draws one row of each of {count:,} {groups} of the pool's rows; the pairs and the "
        "law of the noise are functions of the pool alone"
        if size == 2
        else f"{coin} draws one row of each of {count:,} {groups} of the pool's rows; the groups "
        "and the law of the noise are functions of the pool alone",
        "the attacker may know the pool, the groups, the query, the law of the noise and what was "
        "drawn of every other group",
        "not hidden: that a row is in the pool, and what the rows of one group have in common, "
        "such as near-duplicates",
    ]
    if outside:
        rows = "1 row is" if outside == 1 else f"{outside:,} rows are"
        lines.append(f"not hidden: {rows} in no group and never drawn, which everybody may know")
    lines += [
        "several rows of one person or household count as several coins: g of them are hidden with "
        "g times the μ of one",
        TOGETHER if together else "one release; further releases of the same draw add up as μ²",
        NOISE,
        REPRODUCIBLE if reproducible else FROM_SYSTEM,
    ]
    return tuple(lines)


def theorem(
    mu: float, pairing: Pairing, *, reproducible: bool, together: bool = False
) -> tuple[Guarantee, ...]:
    """Return what noise that keeps every swap within μ certifies.

    For groups of k > 2, with the row drawn uniformly: whether a row was drawn has prior 1/k, and
    out is a mixture over the others, so the profile of two rows bounds it by convexity; which row
    was drawn is bounded by that of a regular simplex of side μ.
    """
    size = pairing.group_size
    rest: dict[str, Any] = {
        "evidence": "theorem",
        "assumptions": assumptions(pairing, reproducible=reproducible, together=together),
        "source": SOURCE,
    }
    membership = SuccessBound(
        success=success_of(mu, 1.0 / size) if mu > 0.0 else max(0.5, 1.0 - 1.0 / size),
        prior=max(0.5, 1.0 - 1.0 / size),
        task=TASK,
        law=LAW if size == 2 else GROUP_LAW,
        **rest,
    )
    adjacency = ADJACENCY if size == 2 else f"which of two rows of one group of {size} was drawn"
    held: list[Guarantee] = [membership, GaussianDP(mu=mu, adjacency=adjacency, **rest)]
    if size > 2:
        held.append(
            SuccessBound(
                success=naming_success(mu, size),
                prior=1.0 / size,
                task=f"which of the {size} rows of any one group was drawn",
                law=GROUP_LAW,
                **rest,
            )
        )
    return tuple(held)


def with_confidence(
    success: float, pairing: Pairing, way: str, confidence: float, *, reproducible: bool
) -> SuccessBound:
    """Return what a release of any callable certifies, by expected swaps or a declared family."""
    lines = list(assumptions(pairing, reproducible=reproducible))
    if way == "swaps":
        lines[1] = (
            "the attacker may know the pool, the pairs, the query, the law of the noise and every "
            "other coin; its success is on average over the other coins, which are fair"
        )
    else:
        lines[0] = (
            "one of the declared draws, each with its complement, is drawn uniformly; the pairs, "
            "the draws and the law of the noise are functions of the pool alone"
        )
        lines[1] = (
            "the attacker may know the pool, the pairs, the query, the law of the noise and the "
            "list of declared draws; it is not told other coins, of which a few give the draw away"
        )
    lines[-3] = "one release; further releases of the same draw are not covered"
    return SuccessBound(
        success=success,
        prior=0.5,
        task=TASK,
        law=LAW if way == "swaps" else FAMILY_LAW,
        evidence="statistical",
        confidence=confidence,
        assumptions=tuple(lines),
        source=SWAPS_SOURCE if way == "swaps" else FAMILY_SOURCE,
    )
