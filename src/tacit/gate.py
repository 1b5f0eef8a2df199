"""The gate: whether a stored release or audit stays within the thresholds someone set for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit._ground.checks import in_interval, positive
from tacit.guarantees import InformationBound, SuccessBound
from tacit.hidden_states.audit.findings import KIND, Audit
from tacit.hidden_states.audit.points import Point
from tacit.report.statistic.record import ReleaseRecord, read_json, read_release
from tacit.report.statistic.words import (
    percent,
    percent_up,
    significant,
    significant_up,
    success_bound,
)


@dataclass(frozen=True, kw_only=True)
class GateCheck:
    """One threshold: what was found beside what is allowed, and whether it holds."""

    name: str
    found: float | None
    allowed: float
    holds: bool
    sentence: str


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """The outcome of every threshold asked for, and the reason where there is no guarantee."""

    passed: bool
    checks: tuple[GateCheck, ...]
    reproducible: bool

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary."""
        return {
            "passed": self.passed,
            "reproducible": self.reproducible,
            "checks": [vars(check) for check in self.checks],
        }


def check_release(
    release: Any,
    *,
    max_success: float | None = None,
    max_information: float | None = None,
    max_attack: float | None = None,
    min_agreement: float | None = None,
    max_kl: float | None = None,
) -> GateResult:
    """Compare a release, or what an audit of hidden states recommends, with thresholds.

    The success compared is the larger of the one stored and the one that follows from the stored
    information bound, so that an edited success does not pass. The attack compared is the upper end
    of its interval over all rows; it also fails when the interval of its worst row lies above the
    threshold as a whole. Agreement and KL are compared at the bad end of their intervals.

    Args:
        release: a ``StatisticRelease``, an ``Audit``, the dictionary of one, or the path of its
            JSON.
        max_success: largest success allowed, in (0, 1].
        max_information: largest information allowed, in nats, > 0.
        max_attack: largest measured success allowed, in (0, 1].
        min_agreement: least agreement allowed, in (0, 1]; of audits.
        max_kl: largest mean KL allowed, in nats, > 0; of audits.

    Returns:
        The ``GateResult``; a reproducible (seeded) release never passes, nor does an audit that
        recommends nothing.

    Raises:
        ValueError: when no threshold is given or in range, or ``release`` is not a release.
    """
    limits = {
        "max_success": _share("max_success", max_success),
        "max_information": _nats("max_information", max_information),
        "max_attack": _share("max_attack", max_attack),
        "min_agreement": _share("min_agreement", min_agreement),
        "max_kl": _nats("max_kl", max_kl),
    }
    asked = {name: limit for name, limit in limits.items() if limit is not None}
    if not asked:
        raise ValueError(
            "max_success: expected at least one threshold (max_success, max_information, "
            "max_attack, min_agreement or max_kl), got none"
        )
    source = read_json(release) if isinstance(release, (str, Path)) else release
    if isinstance(source, Audit) or (isinstance(source, dict) and source.get("kind") == KIND):
        return _check_audit(source, asked)
    for name in ("min_agreement", "max_kl"):
        if name in asked:
            raise ValueError(f"{name}: expected an audit of hidden states, which measures it")
    record = read_release(source)
    makers = {
        "max_success": _check_success,
        "max_information": _check_information,
        "max_attack": _check_attack,
    }
    checks = tuple(makers[name](record, limit) for name, limit in asked.items())
    return GateResult(
        passed=all(check.holds for check in checks) and not record.reproducible,
        checks=checks,
        reproducible=record.reproducible,
    )


def _nats(name: str, value: float | None) -> float | None:
    return None if value is None else positive(name, value)


def _check_audit(source: Any, asked: dict[str, float]) -> GateResult:
    audit = source if isinstance(source, Audit) else Audit.from_dict(source)
    chosen = audit.recommendation.point
    found = {} if chosen is None else _found(chosen, audit)
    checks = tuple(_check_found(name, found.get(name), limit) for name, limit in asked.items())
    return GateResult(
        passed=all(check.holds for check in checks), checks=checks, reproducible=False
    )


def _found(point: Point, audit: Audit) -> dict[str, float]:
    """What the recommended release reaches; a bound that is missing is left out."""
    found = {
        "max_attack": max(attack.top1.high for attack in point.attacks),
        "min_agreement": point.agreement.low,
        "max_kl": point.kl.high,
    }
    successes = [held.success for held in audit.guarantees if isinstance(held, SuccessBound)]
    nats = [held.nats for held in audit.guarantees if isinstance(held, InformationBound)]
    if point.bound is not None and successes:
        found["max_success"] = max(point.bound, *successes)
    if point.information is not None and nats:
        found["max_information"] = max(point.information, *nats)
    return found


AUDIT_WORDS = {
    "max_success": "success bound",
    "max_information": "information bound in nats",
    "max_attack": "strongest attack (upper end of its interval)",
    "min_agreement": "agreement (lower end of its interval)",
    "max_kl": "KL in nats (upper end of its interval)",
}


def _check_found(name: str, found: float | None, allowed: float) -> GateCheck:
    if found is None:
        sentence = f"{AUDIT_WORDS[name]}: none, for the audit recommends no release that has one"
        return GateCheck(name=name, found=None, allowed=allowed, holds=False, sentence=sentence)
    least = name == "min_agreement"
    holds = found >= allowed if least else found <= allowed
    relation = ("≥" if holds else "<") if least else _sign(holds)
    # rounded down where less is worse, up where more is
    shown = significant_up(found, 4) if not least else significant(_down(found), 4)
    sentence = f"{AUDIT_WORDS[name]} {shown} {relation} {allowed:g}"
    return GateCheck(name=name, found=found, allowed=allowed, holds=holds, sentence=sentence)


def _down(value: float) -> float:
    return math.floor(value * 1e4) / 1e4


def _share(name: str, value: float | None) -> float | None:
    return None if value is None else in_interval(name, value, 0.0, 1.0, open_low=True)


def _check_success(record: ReleaseRecord, allowed: float) -> GateCheck:
    found = success_bound(record)
    holds = found <= allowed
    sentence = f"success bound {percent_up(found, 2)} {_sign(holds)} {percent(allowed, 2)}"
    if found > record.membership.success:
        sentence += f" (stored as {percent_up(record.membership.success, 2)}; the information "
        sentence += "bound stored beside it gives more)"
    return GateCheck(
        name="max_success", found=found, allowed=allowed, holds=holds, sentence=sentence
    )


def _check_information(record: ReleaseRecord, allowed: float) -> GateCheck:
    found = record.guarantee.nats
    holds = found <= allowed
    sentence = f"information {significant_up(found, 4)} nats {_sign(holds)} {allowed:g} nats"
    return GateCheck(
        name="max_information", found=found, allowed=allowed, holds=holds, sentence=sentence
    )


def _check_attack(record: ReleaseRecord, allowed: float) -> GateCheck:
    name, attack = "max_attack", record.attack
    if attack is None:
        sentence = "no attack was run on this release, so none is shown to stay below"
        return GateCheck(name=name, found=None, allowed=allowed, holds=False, sentence=sentence)
    if attack.worst_interval[0] > allowed:
        low, high = (percent(end, 2) for end in attack.worst_interval)
        sentence = f"attack on the worst row in [{low}, {high}], above {percent(allowed, 2)}"
        found = attack.worst_success
        return GateCheck(name=name, found=found, allowed=allowed, holds=False, sentence=sentence)
    found = attack.interval[1]
    holds = found <= allowed
    sentence = (
        f"attack at most {percent_up(found, 2)} ({attack.confidence:.0%} interval) "
        f"{_sign(holds)} {percent(allowed, 2)}"
    )
    return GateCheck(name=name, found=found, allowed=allowed, holds=holds, sentence=sentence)


def _sign(holds: bool) -> str:
    return "≤" if holds else ">"
