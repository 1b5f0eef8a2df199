"""What any release means, from its form: a title and its conditions, then ten lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tacit.guarantees.information import known_alone
from tacit.measured import Interval
from tacit.pages.numbers import number_lines
from tacit.releases import Attack, Release
from tacit.releases.contradiction import refuted, standing
from tacit.releases.kinds import kind_named
from tacit.releases.numbers import INTERVAL_CONFIDENCE
from tacit.text import (
    number_down,
    percent,
    percent_up,
    share_down,
    share_nearest,
    share_up,
    significant,
)

# Released numbers told beside the verdict; a page and the JSON hold all of them.
MOST_NUMBERS = 12
# Attacks told in the verdict of what guarantees nothing.
TOLD = 3
# Measurements of use told in one line.
USES = 4


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The title, its conditions, and whether it is "bounded", "void", "contradicted" or "none".

    Attributes:
        kind: which of these.
        title: at most fifteen words, the number first.
        conditions: who is meant, what guessing blind reaches, what our attack reached.
        success: the bound that the title states; 1.0 where it states none.
    """

    kind: str
    title: str
    conditions: str
    success: float

    @property
    def sentence(self) -> str:
        """Both in one line."""
        return f"{self.title} {self.conditions}".strip()


def verdict(release: Release[Any], *, measured: bool = True) -> Verdict:
    """Return the verdict on a release: what is guaranteed in one line, and its conditions.

    Args:
        release: any.
        measured: whether what attacks reached is told, which is the holder's.
    """
    title, bound = f"{release.one_line.text}.", release.headline
    caution = kind_named(release.kind).caution
    if release.reproducible:
        return _without("void", title, void_sentence(release.seed))
    wrong = refuted(release)
    if wrong is not None:
        return _without(
            "contradicted",
            "Do not release this: an attack got above the bound.",
            f"{wrong[:1].upper()}{wrong[1:]}, so something assumed does not hold.",
        )
    if bound is None:
        if not release.guarantees:
            return _without("none", title, _measured_sentence(release) if measured else "")
        held = release.leakage or release.guarantees[0]
        return _without("bounded", title, " ".join([*filter(None, [caution]), held.describe()]))
    success, blind = release.success(bound), share_nearest(bound.prior)
    if release.leakage is not None:
        conditions = [
            "That holds for every prior and all side information but the coins of the release.",
            f"Right about {bound.task}: at most {share_up(success)}; guessing blind: {blind}.",
        ]
    else:
        conditions = [*filter(None, [caution]), f"Guessing blind: {blind}."]
    if measured:
        conditions += _against(release, bound.task)
    conditions.append(f"That is so if {known_alone('an attacker', bound.law)}.")
    said = " ".join(conditions)
    return Verdict(kind="bounded", title=title, conditions=said, success=success)


def _without(kind: str, title: str, conditions: str) -> Verdict:
    return Verdict(kind=kind, title=title, conditions=conditions, success=1.0)


def _against(release: Release[Any], task: str) -> list[str]:
    """Say what the strongest attack on a task reached, and that it is too little to tell."""
    against = [attack for attack in release.attacks if attack.task == task]
    if not against:
        return []
    strongest = max(against, key=lambda attack: attack.success.value)
    return [f"Our strongest attack: {attack_words(release, strongest)}."]


def _measured_sentence(release: Release[Any]) -> str:
    """Say what the strongest attacks reached, where that is all that is known."""
    ranked = sorted(release.attacks, key=lambda attack: -attack.success.value)
    said = "; ".join(
        f"{attack.name} guesses {attack.task} right {plus_minus(attack.success)} of the time"
        + ("" if attack.prior is None else f" (without the release: {share_nearest(attack.prior)})")
        for attack in ranked[:TOLD]
    )
    return "Nothing is guaranteed." + (f" What was measured: {said}." if said else "")


def void_sentence(seed: int | None) -> str:
    """Say where the randomness of a seeded release came from."""
    source = "a generator given by the caller" if seed is None else f"the seed {seed}"
    return f"Its noise was drawn from {source}, so that the draw can be repeated."


def plus_minus(measured: Interval) -> str:
    """Return a success with its 95% half-width, rounded up, such as "51.2 ± 0.9%".

    Where that would leave 0 … 1, the interval itself: "0.8% [0.0%, 57.1%]". One of another level
    says which, and one that was counted has none.
    """
    if measured.confidence is None:
        return f"{share_nearest(measured.value)} exactly"
    half = max(measured.value - measured.low, measured.high - measured.value)
    usual = measured.confidence == INTERVAL_CONFIDENCE
    if not usual or half > min(measured.value, 1.0 - measured.value):
        ends = f"[{percent(measured.low)}, {percent_up(measured.high)}]"
        level = "" if usual else f" at {share_down(measured.confidence)}"
        return f"{percent(measured.value)} {ends}{level}"
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
    # the deviation of the noise in a step, over the norm that each record is clipped to
    multiplier = getattr(release.details, "noise_multiplier", None)
    times = f", noise multiplier {number_down(multiplier)}" if multiplier else ""
    told.append(("noise", release.method + times))
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
    numbers = tuple(release.numbers or ())
    told = number_lines(numbers[:MOST_NUMBERS], len(numbers[MOST_NUMBERS:]))
    return [("" if place else "released", line) for place, line in enumerate(told)]


def use_words(release: Release[Any], name: str) -> str:
    """Return one measurement of use with its interval and unit."""
    use = next(use for use in release.use if use.name == name)
    ends = (use.measured.value, use.measured.low, use.measured.high)
    told = use.measured.confidence
    level = ""
    if told is not None and told != INTERVAL_CONFIDENCE:
        level = f" at {share_down(told)}"
    if use.unit == "share":
        value, low, high = (percent(end) for end in ends)
        return f"{value} [{low[:-1]}, {high[:-1]}]{level}"
    value, low, high = (significant(end) for end in ends)
    return f"{value} [{low}, {high}] {use.unit}{level}"


def _made(release: Release[Any]) -> str:
    if release.provenance is None:
        return release.created
    command, version = release.provenance.command, release.provenance.tacit_version
    return f"{release.created}, tacit {version}: {command}"
