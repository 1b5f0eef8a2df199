"""What any release means, from its form: one sentence first, then ten lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tacit.guarantees.information import UNSTATED_LAW
from tacit.measured import Interval
from tacit.releases import Attack, Release
from tacit.releases.contradiction import refuted, standing
from tacit.text import beside, percent, percent_up, significant, significant_up

NUMBERS_PER_LINE = 4
# Released numbers told beside the verdict; a page and the JSON hold all of them.
MOST_NUMBERS = 12
# Attacks told in the verdict of what guarantees nothing.
TOLD = 3
# Measurements of use told in one line.
USES = 4


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The one sentence, and whether it is "bounded", "void", "contradicted" or "none".

    ``success`` is the bound it states; 1.0 where it states none.
    """

    kind: str
    sentence: str
    success: float


def verdict(release: Release[Any]) -> Verdict:
    """Return the verdict on a release: factor and bound first, strongest measured attack second."""
    bound = release.headline
    if release.reproducible:
        return Verdict(kind="void", sentence=void_sentence(release.seed), success=1.0)
    if bound is None:
        said = "; ".join(held.describe() for held in release.guarantees[:1])
        sentence = said or _measured_sentence(release)
        return Verdict(kind="bounded" if said else "none", sentence=sentence, success=1.0)
    success = release.success(bound)
    against = [attack for attack in release.attacks if attack.task == bound.task]
    strongest = max(against, key=lambda attack: attack.success.value, default=None)
    wrong = refuted(release)
    if wrong is not None:
        sentence = f"Do not release this: {wrong}, so something assumed does not hold."
        return Verdict(kind="contradicted", sentence=sentence, success=1.0)
    measured = (
        "" if strongest is None else f"; the strongest we ran got {plus_minus(strongest.success)}"
    )
    first = "" if release.leakage is None else f"{release.leakage.describe()} "
    sentence = (
        f"{first}An attacker who knows of the secret only {bound.law or UNSTATED_LAW} guesses "
        f"{bound.task} right at most {percent_up(success)} of the time (guessing blind: "
        f"{percent(bound.prior)}){measured}."
    )
    return Verdict(kind="bounded", sentence=sentence, success=success)


def _measured_sentence(release: Release[Any]) -> str:
    """Say what the strongest attacks reached, where that is all that is known."""
    ranked = sorted(release.attacks, key=lambda attack: -attack.success.value)
    said = "; ".join(
        f"{attack.name} guesses {attack.task} right {plus_minus(attack.success)} of the time"
        + ("" if attack.prior is None else f" (without the release: {percent(attack.prior)})")
        for attack in ranked[:TOLD]
    )
    return "Nothing is guaranteed." + (f" What was measured: {said}." if said else "")


def void_sentence(seed: int | None) -> str:
    """Say that a seeded release carries no guarantee."""
    source = "a generator given by the caller" if seed is None else f"the seed {seed}"
    return (
        f"This release carries no guarantee: its noise was drawn from {source}, and whoever can "
        "repeat the draw can take the noise off."
    )


def plus_minus(measured: Interval) -> str:
    """Return success ± the longer side of its interval, rounded up, such as "51.2 ± 0.9%".

    Where that would leave 0 … 1, the interval itself: "0.8% [0.0%, 57.1%]".
    """
    half = max(measured.value - measured.low, measured.high - measured.value)
    if half > min(measured.value, 1.0 - measured.value):
        low, high = percent(measured.low), percent_up(measured.high)
        return f"{percent(measured.value)} [{low}, {high}]"
    return f"{percent(measured.value)[:-1]} ± {percent_up(half)}"


def lines(release: Release[Any]) -> list[tuple[str, str]]:
    """Return the release in at most ten labelled lines, the verdict and further numbers aside."""
    first = [("release", f"{release.kind}: {release.title}"), *_released(release)]
    told: list[tuple[str, str]] = []
    void = "void: " if release.reproducible else ""
    told += [("guarantee", void + held.describe()) for held in release.guarantees[:3]]
    told += [
        ("attack", f"{attack.name}, on {attack.task}: {attack_words(release, attack)}")
        for attack in sorted(release.attacks, key=lambda attack: -attack.success.value)[:1]
    ]
    if release.use:
        told.append(("use", _use(release)))
    told.append(("noise", release.method))
    told.append(("made", _made(release)))
    return first + told[:7]


def attack_words(release: Release[Any], attack: Attack) -> str:
    """Return what an attack reached, and how it stands to the guarantees if that is not plain."""
    beside = standing(release, attack)
    return plus_minus(attack.success) + (f" ({beside})" if beside else "")


def _use(release: Release[Any]) -> str:
    named = [f"{use.name} {use_words(release, use.name)}" for use in release.use[:USES]]
    more = len(release.use) - USES
    return "; ".join(named) + (f"; {more} more in the report" if more > 0 else "")


def _released(release: Release[Any]) -> list[tuple[str, str]]:
    parts = [
        f"{number.name} = {beside(number.value, number.error)} ± "
        f"{significant(number.half_width(), 2)}"
        for number, _ in zip(release.numbers or (), range(MOST_NUMBERS), strict=False)
    ]
    starts = range(0, len(parts), NUMBERS_PER_LINE)
    told = [", ".join(parts[start : start + NUMBERS_PER_LINE]) for start in starts]
    if told:
        more = len(release.numbers or ()) - len(parts)
        told[-1] += (f", and {more:,} more" if more else "") + " (95%, of the noise)"
    return [("" if place else "released", line) for place, line in enumerate(told)]


def use_words(release: Release[Any], name: str) -> str:
    """Return one measurement of use with its interval and unit."""
    use = next(use for use in release.use if use.name == name)
    ends = (use.measured.value, use.measured.low, use.measured.high)
    if use.unit == "share":
        value, low, high = (percent(end) for end in ends)
        return f"{value} [{low[:-1]}, {high[:-1]}]"
    value, low, high = (significant(end) for end in ends)
    return f"{value} [{low}, {high}] {use.unit}"


def information_words(release: Release[Any]) -> str | None:
    """Return the bound on the information, rounded up."""
    return None if release.information is None else f"{significant_up(release.information)} nats"


def _made(release: Release[Any]) -> str:
    if release.provenance is None:
        return release.created
    command, version = release.provenance.command, release.provenance.tacit_version
    return f"{release.created}, tacit {version}: {command}"
