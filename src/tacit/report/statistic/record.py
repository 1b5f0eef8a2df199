"""A release as a report or a gate reads it: checked field by field, nothing believed unread."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit._ground import checks as check
from tacit._ground.checks import Array
from tacit._ground.frozen import read_only
from tacit._ground.reprs import short_repr
from tacit.documents import read
from tacit.guarantees import InformationBound, SuccessBound, guarantee_from_dict


@dataclass(frozen=True, kw_only=True)
class AttackRecord:
    """What the strongest attack measured: success in [0, 1] with its confidence interval."""

    name: str
    trials: int
    success: float
    interval: tuple[float, float]
    confidence: float
    worst_success: float
    worst_interval: tuple[float, float]
    worst_record: int
    prior: float


@short_repr
@read_only
@dataclass(frozen=True, kw_only=True, eq=False)
class ReleaseRecord:
    """A statistic release read back from its dictionary; arrays have one entry per output."""

    values: Array
    names: tuple[str, ...]
    guarantee: InformationBound
    membership: SuccessBound
    attack: AttackRecord | None
    pool_rows: int
    subset_rows: int
    candidates: int
    mi_budget: float
    gaussian_information: float | None
    noise_saved: float | None
    output_variance: Array
    noise_variance: Array
    principal_output_variance: Array
    principal_noise_variance: Array
    notes: tuple[str, ...]
    query: str
    method: str
    reproducible: bool
    seed: int | None
    created: str
    gap: float | None
    content: dict[str, Any]

    @property
    def noiseless(self) -> bool:
        """Whether the output was released as it is."""
        return not self.noise_variance.any()

    @property
    def prior(self) -> float:
        """Success of guessing blind: as stored, and never below what the drawn rows imply."""
        # subset_rows is the smaller of two sizes that may differ by one
        low, high = self.subset_rows / self.pool_rows, (self.subset_rows + 1) / self.pool_rows
        if low < 0.5 < high:
            return max(0.5, self.membership.prior)
        return max(min(max(low, 1 - low), max(high, 1 - high)), self.membership.prior)


def read_release(source: Any) -> ReleaseRecord:
    """Return the record of a release given as an object, its dictionary, or the path of its JSON.

    Raises:
        ValueError: when the file is missing or not JSON, or a field is missing or out of range.
    """
    if isinstance(source, (str, Path)):
        return _from_dict(read("release", source))
    if hasattr(source, "to_dict"):
        return _from_dict(source.to_dict())
    return _from_dict(source)


def _from_dict(content: Any) -> ReleaseRecord:
    if not isinstance(content, dict):
        raise ValueError(f"release: expected a tacit release, got {type(content).__name__}")
    diagnostics = _field(content, "diagnostics", dict)
    names = tuple(str(name) for name in _field(content, "names", list, tuple))
    size = len(names)
    pool = check.integer("release.diagnostics.pool_rows", _get(diagnostics, "pool_rows"), minimum=1)
    seed = content.get("seed")
    principal = _vector(diagnostics, "principal_output_variance", None)
    return ReleaseRecord(
        values=_vector(content, "release", size),
        names=names,
        guarantee=_guarantee(content, "guarantee", InformationBound),
        membership=_guarantee(content, "membership", SuccessBound),
        attack=_attack(content.get("attack")),
        pool_rows=pool,
        subset_rows=check.integer(
            "release.diagnostics.subset_rows",
            _get(diagnostics, "subset_rows"),
            minimum=0,
            maximum=pool,
        ),
        candidates=check.integer(
            "release.diagnostics.candidates", _get(diagnostics, "candidates"), minimum=1
        ),
        mi_budget=check.positive("release.diagnostics.mi_budget", _get(diagnostics, "mi_budget")),
        gaussian_information=_optional(diagnostics, "gaussian_information"),
        noise_saved=_optional(diagnostics, "noise_saved"),
        output_variance=_vector(diagnostics, "output_variance", size),
        noise_variance=_vector(diagnostics, "noise_variance", size),
        principal_output_variance=principal,
        principal_noise_variance=_vector(diagnostics, "principal_noise_variance", len(principal)),
        notes=_notes(diagnostics),
        query=str(_field(content, "query", str)),
        method=str(_field(content, "method", str)),
        reproducible=bool(_field(content, "reproducible", bool)),
        seed=None if seed is None else check.integer("release.seed", seed),
        created=str(_field(content, "created", str)),
        gap=_gap(content.get("design")),
        content=content,
    )


def _get(content: dict[str, Any], name: str) -> Any:
    if name not in content:
        raise ValueError(f"release: not a tacit release, the field {name!r} is missing")
    return content[name]


def _field(content: dict[str, Any], name: str, *kinds: type) -> Any:
    value = _get(content, name)
    if not isinstance(value, kinds):
        raise ValueError(
            f"release.{name}: expected {kinds[0].__name__}, got {type(value).__name__}"
        )
    return value


def _vector(content: dict[str, Any], name: str, size: int | None) -> Array:
    values = np.asarray(_get(content, name))
    if values.size == 0 and not size:
        return np.zeros(0)
    numbers = check.vector(f"release.{name}", values, size=size)
    if name.endswith("_variance"):
        check.non_negative(f"release.{name}", numbers.min())
    return numbers


def _notes(content: dict[str, Any]) -> tuple[str, ...]:
    found = _field(content, "notes", list, tuple) if content.get("notes") else ()
    return tuple(str(note) for note in found)


def _optional(content: dict[str, Any], name: str) -> float | None:
    value = content.get(name)
    return None if value is None else check.as_float(f"release.diagnostics.{name}", value)


def _guarantee(content: dict[str, Any], name: str, kind: type[Any]) -> Any:
    value = guarantee_from_dict(_field(content, name, dict))
    if not isinstance(value, kind):
        raise ValueError(f"release.{name}: expected {kind.__name__}, got {type(value).__name__}")
    return value


def _gap(design: Any) -> float | None:
    gap = design.get("gap") if isinstance(design, dict) else None
    return check.as_float("release.design.gap", gap) if isinstance(gap, (int, float)) else None


def _attack(content: Any) -> AttackRecord | None:
    if content is None:
        return None
    if not isinstance(content, dict):
        raise ValueError(f"release.attack: expected a dictionary, got {type(content).__name__}")
    return AttackRecord(
        name=str(_get(content, "name")),
        trials=check.integer("release.attack.trials", _get(content, "trials"), minimum=1),
        success=_share(content, "success"),
        interval=_interval(content, "interval"),
        confidence=_share(content, "confidence"),
        worst_success=_share(content, "worst_success"),
        worst_interval=_interval(content, "worst_interval"),
        worst_record=check.integer("release.attack.worst_record", _get(content, "worst_record")),
        prior=_share(content, "prior"),
    )


def _share(content: dict[str, Any], name: str) -> float:
    return check.in_interval(f"release.attack.{name}", _get(content, name), 0.0, 1.0)


def _interval(content: dict[str, Any], name: str) -> tuple[float, float]:
    low, high = check.vector(f"release.attack.{name}", _get(content, name), size=2)
    if not 0 <= low <= high <= 1:
        raise ValueError(
            f"release.attack.{name}: expected 0 <= low <= high <= 1, got {low}, {high}"
        )
    return float(low), float(high)
