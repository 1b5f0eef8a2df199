"""The gate: whether a stored release stays within the thresholds someone set for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tacit._ground.checks import in_interval, positive
from tacit.guarantees import SuccessBound
from tacit.releases import Form, load
from tacit.text import percent, percent_up, significant, significant_up

MEASURES = {"min_agreement": "agreement", "max_kl": "kl"}


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
    """Compare a release of any workflow with thresholds.

    The success compared is the largest that any of its guarantees allows: of those stored and of
    what follows from the stored information bound, so that an edited success does not pass. The
    attack compared is the upper end of its interval over all records; it also fails when the
    interval of its worst record lies above the threshold as a whole. What is measured of its use
    is compared at the bad end of its interval.

    Args:
        release: a release, its dictionary, or the path of its JSON.
        max_success: largest success allowed, in (0, 1].
        max_information: largest information allowed, in nats, > 0.
        max_attack: largest measured success allowed, in (0, 1].
        min_agreement: least agreement allowed, in (0, 1]; where it was measured.
        max_kl: largest mean KL allowed, in nats, > 0; where it was measured.

    Returns:
        The ``GateResult``; a reproducible (seeded) release never passes, nor does one without the
        guarantee or the measurement that is asked for.

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
    form = load(release)
    for name, measure in MEASURES.items():
        if name in asked and form.guarantees and all(use.name != measure for use in form.use):
            raise ValueError(f"{name}: expected a release whose {measure} was measured")
    checks = tuple(CHECKS[name](form, limit) for name, limit in asked.items())
    return GateResult(
        passed=all(check.holds for check in checks) and not form.reproducible,
        checks=checks,
        reproducible=form.reproducible,
    )


def _nats(name: str, value: float | None) -> float | None:
    return None if value is None else positive(name, value)


def _share(name: str, value: float | None) -> float | None:
    return None if value is None else in_interval(name, value, 0.0, 1.0, open_low=True)


def _missing(name: str, what: str, allowed: float) -> GateCheck:
    sentence = f"{what}: the release has none"
    return GateCheck(name=name, found=None, allowed=allowed, holds=False, sentence=sentence)


def _check_success(form: Form, allowed: float) -> GateCheck:
    bounds = [held for held in form.guarantees if isinstance(held, SuccessBound)]
    if not bounds:
        return _missing("max_success", "success bound", allowed)
    worst = max(bounds, key=form.success)
    found = form.success(worst)
    holds = found <= allowed
    sentence = f"success bound {percent_up(found, 2)} {_sign(holds)} {percent(allowed, 2)}"
    if len(bounds) > 1:
        sentence += f" ({worst.task})"
    if found > worst.success * (1 + 1e-9):
        sentence += f" (stored as {percent_up(worst.success, 2)}; the information "
        sentence += "bound stored beside it gives more)"
    return GateCheck(
        name="max_success", found=found, allowed=allowed, holds=holds, sentence=sentence
    )


def _check_information(form: Form, allowed: float) -> GateCheck:
    found = form.information
    if found is None:
        return _missing("max_information", "information bound in nats", allowed)
    holds = found <= allowed
    sentence = f"information {significant_up(found, 4)} nats {_sign(holds)} {allowed:g} nats"
    return GateCheck(
        name="max_information", found=found, allowed=allowed, holds=holds, sentence=sentence
    )


def _check_attack(form: Form, allowed: float) -> GateCheck:
    name = "max_attack"
    if not form.attacks:
        sentence = "no attack was run on this release, so none is shown to stay below"
        return GateCheck(name=name, found=None, allowed=allowed, holds=False, sentence=sentence)
    for attack in form.attacks:
        if attack.worst is not None and attack.worst.low > allowed:
            low, high = (percent(end, 2) for end in (attack.worst.low, attack.worst.high))
            sentence = f"attack on the worst record in [{low}, {high}], above {percent(allowed, 2)}"
            found = attack.worst.value
            return GateCheck(
                name=name, found=found, allowed=allowed, holds=False, sentence=sentence
            )
    strongest = max(form.attacks, key=lambda attack: attack.success.high).success
    holds = strongest.high <= allowed
    level = "" if strongest.confidence is None else f" ({strongest.confidence:.0%} interval)"
    sentence = (
        f"attack at most {percent_up(strongest.high, 2)}{level} {_sign(holds)} "
        f"{percent(allowed, 2)}"
    )
    return GateCheck(
        name=name, found=strongest.high, allowed=allowed, holds=holds, sentence=sentence
    )


def _check_use(name: str) -> Callable[[Form, float], GateCheck]:
    def check(form: Form, allowed: float) -> GateCheck:
        measured = [use for use in form.use if use.name == MEASURES[name]]
        if not measured:
            return _missing(name, MEASURES[name], allowed)
        use = measured[0]
        found, more = use.bad_end, use.better == "higher"
        holds = found >= allowed if more else found <= allowed
        relation = ("≥" if holds else "<") if more else _sign(holds)
        # rounded down where less is worse, up where more is
        shown = significant(_down(found), 4) if more else significant_up(found, 4)
        end = "lower" if more else "upper"
        sentence = f"{use.name} in {use.unit} ({end} end of its interval) {shown} {relation} "
        return GateCheck(
            name=name,
            found=found,
            allowed=allowed,
            holds=holds,
            sentence=sentence + f"{allowed:g}",
        )

    return check


CHECKS: dict[str, Callable[[Form, float], GateCheck]] = {
    "max_success": _check_success,
    "max_information": _check_information,
    "max_attack": _check_attack,
    "min_agreement": _check_use("min_agreement"),
    "max_kl": _check_use("max_kl"),
}


def _down(value: float) -> float:
    return math.floor(value * 1e4) / 1e4


def _sign(holds: bool) -> str:
    return "≤" if holds else ">"
