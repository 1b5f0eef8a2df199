"""The gate: whether a stored release stays under the thresholds someone set for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tacit._validation import in_interval, positive
from tacit.report.record import ReleaseRecord, read_release
from tacit.report.words import percent, percent_up, significant_up, success_bound


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
) -> GateResult:
    """Compare a release with thresholds.

    The success compared is the larger of the one stored and the one that follows from the stored
    information bound, so that an edited success does not pass. The attack compared is the upper end
    of its interval over all rows; it also fails when the interval of its worst row lies above the
    threshold as a whole.

    Args:
        release: a ``StatisticRelease``, its dictionary, or the path of its JSON.
        max_success: largest success allowed, in (0, 1].
        max_information: largest information allowed, in nats, > 0.
        max_attack: largest measured success allowed, in (0, 1].

    Returns:
        The ``GateResult``; a reproducible (seeded) release never passes.

    Raises:
        ValueError: when no threshold is given or in range, or ``release`` is not a release.
    """
    success = _share("max_success", max_success)
    nats = None if max_information is None else positive("max_information", max_information)
    attack = _share("max_attack", max_attack)
    if success is None and nats is None and attack is None:
        raise ValueError(
            "max_success: expected at least one threshold (max_success, max_information or "
            "max_attack), got none"
        )
    record = read_release(release)
    checks: list[GateCheck] = []
    if success is not None:
        checks.append(_check_success(record, success))
    if nats is not None:
        checks.append(_check_information(record, nats))
    if attack is not None:
        checks.append(_check_attack(record, attack))
    return GateResult(
        passed=all(check.holds for check in checks) and not record.reproducible,
        checks=tuple(checks),
        reproducible=record.reproducible,
    )


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
