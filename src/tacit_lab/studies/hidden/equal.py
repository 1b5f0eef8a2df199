"""Comparison at equal measured KL: releases with the same K or σ do not cost the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tacit_lab.studies.hidden.rows import NoiseRow


@dataclass(frozen=True)
class Equal:
    """What a mechanism gives away, and leaves, at a KL that was asked for."""

    attack: float
    low: float
    high: float
    agreement: float

    def below(self, other: Equal) -> bool:
        """Whether the attack is lower, the intervals apart."""
        return self.high < other.low


def at_kl(rows: Iterable[NoiseRow], kl: float) -> Equal | None:
    """Interpolate linearly in ln KL between the neighbours measured; None outside of them."""
    ordered = sorted(rows, key=lambda row: row.kl)
    for left, right in pairwise(ordered):
        if left.kl <= kl <= right.kl:
            wide = math.log(right.kl / left.kl)
            share = math.log(kl / left.kl) / wide if wide > 0.0 else 0.0
            return Equal(*(
                (1 - share) * getattr(left, name) + share * getattr(right, name)
                for name in ("attack", "attack_low", "attack_high", "agreement")
            ))  # fmt: skip
    return None


def budgets_for(rows: Iterable[NoiseRow], targets: Sequence[float]) -> list[float]:
    """Return K, to three digits, at which each KL is expected: ln K is linear in ln KL between."""
    ordered = sorted(rows, key=lambda row: row.kl)
    found = []
    for kl in targets:
        for left, right in pairwise(ordered):
            if left.kl <= kl <= right.kl and left.kl < right.kl:
                share = math.log(kl / left.kl) / math.log(right.kl / left.kl)
                level = left.level ** (1 - share) * right.level**share
                found.append(float(f"{level:.3g}"))
                break
    return found


def crossing(
    rows: Iterable[NoiseRow], attack: float, attacker: str | None = None, *, along: str = "level"
) -> float | None:
    """Return where the attack falls to a level; None where it never does, or always has.

    Args:
        rows: of one mechanism on one layer.
        attack: success to fall to.
        attacker: ``"euclidean"`` or ``"mahalanobis"``; the best of them when None.
        along: ``"level"`` for K, or ``"kl"`` for the KL measured, nats.
    """
    pairs = sorted((getattr(row, along), getattr(row, attacker or "attack")) for row in rows)
    for (near, before), (far, after) in pairwise(pairs):
        if before >= attack >= after and before > after:
            share = (before - attack) / (before - after)
            return float(near ** (1 - share) * far**share)
    return None


def gain(
    reference: Iterable[NoiseRow],
    rows: Iterable[NoiseRow],
    attack: float,
    attacker: str | None = None,
    *,
    along: str = "level",
) -> float | None:
    """Return how much more the reference costs at the same attack; None where one lacks it."""
    base = crossing(reference, attack, attacker, along=along)
    own = crossing(rows, attack, attacker, along=along)
    return None if base is None or own is None else base / own


def scaled_to(measured: Callable[[float], float], level: float) -> float:
    """Return the scale of Σ at which the measured KL is a level, by bisection of its logarithm."""
    low, high = -7.0, 5.0
    for _ in range(14):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if measured(math.exp(middle)) < level else (low, middle)
    return math.exp(0.5 * (low + high))
