"""Every threshold beside what is found of a release."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tacit.attacks.inversion.result import ANY_TOKEN
from tacit.gate.judged import Judged, how_known
from tacit.gate.outcome import GateCheck, GateResult
from tacit.gate.policy import Policy
from tacit.guarantees import Guarantee, SuccessBound
from tacit.guarantees.leakage import factor_words
from tacit.releases.contradiction import refuted
from tacit.releases.loading import Read, read_checked
from tacit.releases.verification import HOLDS, NOTHING, REMOVED, verify_stated
from tacit.text import (
    chance_down,
    in_nats,
    number_up,
    percent,
    share_down,
    share_nearest,
    share_up,
    significant,
    significant_up,
)

MEASURES = {"min_agreement": "agreement", "max_kl": "kl"}
Found = tuple[GateCheck, Guarantee | None]


def check_release(release: Any, policy: Policy) -> GateResult:
    """Compare a release of any workflow with thresholds.

    What a stored file lets one work out again is worked out again, and a file that contradicts
    itself is refused. The success compared is the largest that any of its guarantees allows: of
    those stored and of what follows from the stored information bound. The attack compared is the
    upper end of its interval over all records; it also fails when the interval of its worst record
    lies above the threshold as a whole. What is measured of its use is compared at the bad end of
    its interval. For more releases than the guarantees cover, factors multiply and bounds on
    success and information follow from them.

    Args:
        release: a release, its dictionary, or the path of its file.
        policy: the thresholds.

    Returns:
        The ``GateResult``; a reproducible (seeded) release never passes, nor does one without the
        guarantee or the measurement that is asked for, or one whose stored attack did better than
        its guarantees allow.

    Raises:
        ValueError: when no threshold is given, ``release`` is not a release, or its file
            contradicts itself.
    """
    policy.required()
    return judge(read_checked(release), policy)


def judge(found: Read, policy: Policy) -> GateResult:
    """Compare a release that was read with a policy."""
    asked, release = policy.required().asked, found.release
    for name, measure in MEASURES.items():
        if name in asked and release.guarantees and all(use.name != measure for use in release.use):
            raise ValueError(f"{name}: expected a release whose {measure} was measured")
    judged = Judged(release, policy.releases, found.proof, found.removed)
    pairs = [CHECKS[name](judged, policy, limit) for name, limit in asked.items()]
    checks = [check for check, _ in pairs]
    checks += _confidence([held for _, held in pairs if held is not None], policy.min_confidence)
    if found.unchecked:
        said = f"claimed, not checked: {found.unchecked}"
        checks = [replace(one, sentence=f"{one.sentence}; {said}") for one in checks]
    wrong = refuted(release)
    if wrong is not None:
        checks.append(_failed("contradiction", f"something assumed does not hold: {wrong}"))
    return GateResult(
        passed=all(check.holds for check in checks) and not release.reproducible,
        checks=tuple(checks),
        reproducible=release.reproducible,
    )


def _failed(name: str, sentence: str, allowed: float = 0.0) -> GateCheck:
    return GateCheck(name=name, found=None, allowed=allowed, holds=False, sentence=sentence)


def _missing(judged: Judged, name: str, what: str, allowed: float) -> Found:
    sentence = f"{what}: the release has none"
    if judged.silent:
        sentence = f"{what}: nothing in the release is proved of {judged.releases} releases"
    return _failed(name, sentence, allowed), None


def _check_factor(name: str) -> Callable[[Judged, Policy, float], Found]:
    def check(judged: Judged, policy: Policy, allowed: float) -> Found:
        held = judged.leakage
        if held is None:
            return _missing(judged, name, "factor for every prior (maximal leakage)", allowed)
        found = held.factor if name == "max_factor" else held.nats
        holds = found <= allowed
        limit = f"{allowed:,g}" if name == "max_factor" else f"{allowed:g} nats"
        shown = (
            f"factor {factor_words(held)}"
            if name == "max_factor"
            else f"maximal leakage {in_nats(significant_up(found, 4))}"
        )
        sentence = (
            f"{shown} {_sign(holds)} {limit} on any attacker's chance, {_times(policy.releases)} "
            f"({how_known(held)})"
        )
        return _checked(name, found, allowed, holds, sentence), held

    return check


def _check_success(judged: Judged, policy: Policy, allowed: float) -> Found:
    if policy.candidates is not None:
        return _check_candidates(judged, policy, policy.candidates, allowed)
    bounds = judged.successes
    if not bounds or judged.silent:
        return _missing(judged, "max_success", "success bound", allowed)
    worst = max(bounds, key=judged.success)
    found = judged.success(worst)
    holds = found <= allowed
    sentence = f"success bound {share_up(found)} {_sign(holds)} {share_nearest(allowed)}"
    sentence += f" ({_game(worst)}; {_times(policy.releases)}; {how_known(worst)})"
    if judged.times == 1 and found > worst.success * (1 + 1e-9):
        sentence += f" (stored as {share_up(worst.success)}; the information "
        sentence += "bound stored beside it gives more)"
    return _checked("max_success", found, allowed, holds, sentence), worst


def _check_candidates(judged: Judged, policy: Policy, candidates: int, allowed: float) -> Found:
    """Judge naming one of N equally likely secrets by the factor, whatever bank was measured."""
    held = judged.leakage
    if held is None:
        what = f"success at naming one of {candidates:,}, by a factor"
        return _missing(judged, "max_success", what, allowed)
    found = held.success_by_candidates([candidates])[0][1]
    holds = found <= allowed
    sentence = (
        f"success bound {share_up(found)} {_sign(holds)} {share_nearest(allowed)} (which of "
        f"{candidates:,} secrets it is, all equally likely; {_times(policy.releases)}; "
        f"{how_known(held)})"
    )
    return _checked("max_success", found, allowed, holds, sentence), held


def _check_verified(judged: Judged, policy: Policy, allowed: float) -> Found:
    del policy
    found = verify_stated(judged.stated)
    # the first claim that is not proved; of a file without any, that there is none
    open_ones = [line for line in found.lines if not line.startswith((HOLDS, NOTHING))]
    said = f": {open_ones[0]}" if open_ones else f"; {REMOVED}" if judged.removed else ""
    holds = found.word == HOLDS
    return _checked("verified", None, allowed, holds, f"{found.sentence}{said}"), None


def _check_epsilon(judged: Judged, policy: Policy, allowed: float) -> Found:
    name, delta = "max_epsilon", policy.delta
    held = judged.epsilon(delta)
    if held is None:
        # most noise has an ε at a δ above 0 alone
        more = "" if delta else " (--delta 1e-6 asks at another)"
        what = f"ε of differential privacy at δ = {number_up(delta)}{more}"
        return _missing(judged, name, what, allowed)
    found, guarantee = held
    holds = found <= allowed
    sentence = (
        f"ε = {significant_up(found, 4)} {_sign(holds)} {allowed:g} at "
        f"δ = {number_up(delta)} ({guarantee.adjacency}; {_times(policy.releases)}; "
        f"{how_known(guarantee)})"
    )
    return _checked(name, found, allowed, holds, sentence), guarantee


def _check_information(judged: Judged, policy: Policy, allowed: float) -> Found:
    held = judged.information
    if held is None:
        return _missing(judged, "max_information", "information bound in nats", allowed)
    found, guarantee = held
    holds = found <= allowed
    sentence = (
        f"information {in_nats(significant_up(found, 4))} {_sign(holds)} {allowed:g} nats "
        f"({_times(policy.releases)}; {how_known(guarantee)})"
    )
    return _checked("max_information", found, allowed, holds, sentence), guarantee


def _check_attack(judged: Judged, policy: Policy, allowed: float) -> Found:
    name, release = "max_attack", judged.release
    if not release.attacks:
        what = "no attack was run on this release, so none is shown to stay below"
        return _failed(name, what, allowed), None
    if judged.times > 1:
        what = f"no attack was run on {policy.releases} releases, so none is shown to stay below"
        return _failed(name, what, allowed), None
    for attack in release.attacks:
        if attack.worst is not None and attack.worst.low > allowed:
            low, high = (percent(end, 2) for end in (attack.worst.low, attack.worst.high))
            sentence = (
                f"attack on the worst record in [{low}, {high}], above {share_nearest(allowed)}"
            )
            return _checked(name, attack.worst.value, allowed, False, sentence), None
    strongest = max(release.attacks, key=lambda attack: attack.success.high).success
    holds = strongest.high <= allowed
    level = (
        "" if strongest.confidence is None else f" ({share_down(strongest.confidence)} interval)"
    )
    sentence = (
        f"attack at most {share_up(strongest.high)}{level} {_sign(holds)} {share_nearest(allowed)}"
    )
    return _checked(name, strongest.high, allowed, holds, sentence), None


def _check_inversion(judged: Judged, policy: Policy, allowed: float) -> Found:
    name = "max_inversion"
    run = [attack for attack in judged.release.attacks if attack.task == ANY_TOKEN]
    if not run:
        what = "no inverter was run on this release, so none is shown to stay below"
        return _failed(name, what, allowed), None
    if judged.times > 1:
        what = f"no inverter was run on {policy.releases} releases, so none is shown to stay below"
        return _failed(name, what, allowed), None
    strongest = max(run, key=lambda attack: attack.success.high)
    found = strongest.success.high
    holds = found <= allowed
    sentence = (
        f"{strongest.name}: at most {share_up(found)} of tokens read back (upper end of its "
        f"interval) {_sign(holds)} {share_nearest(allowed)}"
    )
    return _checked(name, found, allowed, holds, sentence), None


def _check_use(name: str) -> Callable[[Judged, Policy, float], Found]:
    def check(judged: Judged, policy: Policy, allowed: float) -> Found:
        del policy
        measured = [use for use in judged.release.use if use.name == MEASURES[name]]
        if not measured:
            return _failed(name, f"{MEASURES[name]}: the release has none", allowed), None
        # which end is bad is the threshold's to say, and of several the worst is judged
        more = name.startswith("min_")
        use = min(measured, key=lambda one: one.measured.low if more else -one.measured.high)
        found = use.measured.low if more else use.measured.high
        holds = found >= allowed if more else found <= allowed
        relation = ("≥" if holds else "<") if more else _sign(holds)
        # rounded down where less is worse, up where more is
        shown = significant(_down(found), 4) if more else significant_up(found, 4)
        end = "lower" if more else "upper"
        sentence = f"{use.name} in {use.unit} ({end} end of its interval) {shown} {relation} "
        return _checked(name, found, allowed, holds, sentence + f"{allowed:g}"), None

    return check


def _confidence(judged: list[Guarantee], least: float) -> list[GateCheck]:
    """Return the check of the least confidence judged; none where nothing rests on samples."""
    known = [held.confidence for held in judged if held.confidence is not None]
    if not known:
        return []
    found = min(known)
    holds = found >= least
    said = f"confidence {chance_down(found)} {'≥' if holds else '<'} {least:g}"
    sentence = f"{said} of what rests on samples"
    return [_checked("min_confidence", found, least, holds, sentence)]


CHECKS: dict[str, Callable[[Judged, Policy, float], Found]] = {
    "verified": _check_verified,
    "max_factor": _check_factor("max_factor"),
    "max_nats": _check_factor("max_nats"),
    "max_success": _check_success,
    "max_epsilon": _check_epsilon,
    "max_information": _check_information,
    "max_attack": _check_attack,
    "max_inversion": _check_inversion,
    "min_agreement": _check_use("min_agreement"),
    "max_kl": _check_use("max_kl"),
}


def _checked(
    name: str, found: float | None, allowed: float, holds: bool, sentence: str
) -> GateCheck:
    return GateCheck(name=name, found=found, allowed=allowed, holds=holds, sentence=sentence)


def _game(bound: SuccessBound) -> str:
    law = bound.law.rstrip(",") or "the law of its assumptions"
    return f"{bound.task}, knowing only {law}; blind {share_nearest(bound.prior)}"


def _times(releases: int) -> str:
    return "one release about a secret" if releases == 1 else f"{releases} releases about a secret"


def _down(value: float) -> float:
    return math.floor(value * 1e4) / 1e4


def _sign(holds: bool) -> str:
    return "≤" if holds else ">"
