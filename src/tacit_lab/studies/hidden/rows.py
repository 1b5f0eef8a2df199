"""A point of a sweep as one short row of numbers, so that a result file stays small."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

from tacit.hidden_states import Point
from tacit.measured import Interval

DIGITS = 5


@dataclass(frozen=True)
class NoiseRow:
    """A release: what it costs, what it leaves, what it gives away.

    ``level`` is K in nats, ε of order 2 or C, as ``kind`` says: ``"kl"``, ``"epsilon"`` or
    ``"codewords"``. ``attack`` is the best attacker's top-1 success; ``nearest`` and ``random``
    are the Rényi ε of order 2 over the two sets of pairs, inf where Σ is bare.
    """

    layer: int
    mechanism: str
    kind: str
    level: float
    reading: str
    protocol: str
    kl: float
    kl_low: float
    kl_high: float
    agreement: float
    agreement_low: float
    agreement_high: float
    attacker: str
    attack: float
    attack_low: float
    attack_high: float
    euclidean: float | None
    mahalanobis: float | None
    nearest: float | None
    random: float | None
    bound: float | None

    @property
    def leak(self) -> float:
        """The bound where there is one, else the best attack measured."""
        return self.attack if self.bound is None else self.bound

    def inside(self, agreement: float = 0.5, leak: float = 0.5) -> bool:
        """Whether it agrees so often and gives away no more."""
        return self.agreement >= agreement and self.leak <= leak


def row(point: Point) -> NoiseRow:
    """Return the row of a point."""
    best = point.best_attack
    level: tuple[str, float]
    if point.codewords is not None:
        level = "codewords", float(point.codewords)
    elif point.target_epsilon is not None:
        level = "epsilon", point.target_epsilon
    else:
        level = "kl", point.kl_budget or 0.0
    by_name = {attack.name: attack.top1.value for attack in point.attacks}
    return NoiseRow(
        point.layer, point.mechanism, *level, point.reading, point.protocol,
        *ends(point.kl), *ends(point.agreement), best.name, *ends(best.top1),
        by_name.get("euclidean"), by_name.get("mahalanobis"),
        point.epsilon_nearest, point.epsilon_random, point.bound,
    )  # fmt: skip


def ends(measured: Interval) -> tuple[float, float, float]:
    """Return the value and both ends."""
    return measured.value, measured.low, measured.high


def packed(rows: Iterable[NoiseRow]) -> dict[str, Any]:
    """Return columns and rows for JSON, to five digits."""
    return {
        "columns": [field.name for field in fields(NoiseRow)],
        "rows": [[_short(value) for value in astuple(entry)] for entry in rows],
    }


def unpacked(content: dict[str, Any]) -> list[NoiseRow]:
    """Return the rows that ``packed`` wrote."""
    names: Sequence[str] = content["columns"]
    return [
        NoiseRow(**{name: _long(value) for name, value in zip(names, entry, strict=True)})
        for entry in content["rows"]
    ]


def _short(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return "Infinity" if math.isinf(value) else float(f"{value:.{DIGITS}g}")


def _long(value: Any) -> Any:
    return math.inf if value == "Infinity" else value
