"""What any release means, from its form: one sentence first, then ten lines."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.guarantees.information import UNSTATED_LAW
from tacit.measured import Interval
from tacit.releases import Attack, Form
from tacit.releases.contradiction import refuted, standing
from tacit.text import beside, percent, percent_up, significant, significant_up

NUMBERS_PER_LINE = 4
# kind of what was attacked and nothing else
MEASURED = "hidden-inversion"
# kind of what was taken out of a state without noise
REMOVED = "hidden-features"
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


def verdict(form: Form) -> Verdict:
    """Return the verdict on a release: factor and bound first, strongest measured attack second."""
    bound = form.headline
    if form.reproducible:
        return Verdict(kind="void", sentence=void_sentence(form.seed), success=1.0)
    if bound is None:
        if form.kind == MEASURED:
            return Verdict(kind="none", sentence=_measured_sentence(form), success=1.0)
        if form.kind == REMOVED:
            return Verdict(kind="none", sentence=_removed_sentence(form), success=1.0)
        said = "; ".join(held.describe() for held in form.guarantees[:1])
        sentence = said or "Nothing is recommended, so nothing is guaranteed."
        return Verdict(kind="bounded" if said else "none", sentence=sentence, success=1.0)
    success = form.success(bound)
    against = [attack for attack in form.attacks if attack.task == bound.task]
    strongest = max(against, key=lambda attack: attack.success.value, default=None)
    wrong = refuted(form)
    if wrong is not None:
        sentence = f"Do not release this: {wrong}, so something assumed does not hold."
        return Verdict(kind="contradicted", sentence=sentence, success=1.0)
    measured = (
        "" if strongest is None else f"; the strongest we ran got {plus_minus(strongest.success)}"
    )
    first = "" if form.leakage is None else f"{form.leakage.describe()} "
    sentence = (
        f"{first}An attacker who knows of the secret only {bound.law or UNSTATED_LAW} guesses "
        f"{bound.task} right at most {percent_up(success)} of the time (guessing blind: "
        f"{percent(bound.prior)}){measured}."
    )
    return Verdict(kind="bounded", sentence=sentence, success=success)


def _measured_sentence(form: Form) -> str:
    """Say what an inverter read back, where that is all that is known."""
    said = "; ".join(
        f"{attack.task}: {plus_minus(attack.success)}"
        + ("" if attack.prior is None else f" (without the release: {percent(attack.prior)})")
        for attack in form.attacks
    )
    return f"Nothing is guaranteed. What an inverter reads back right: {said}."


def _removed_sentence(form: Form) -> str:
    """Say what the strongest attack named from features, which have no noise."""
    strongest = max(form.attacks, key=lambda attack: attack.success.value, default=None)
    said = "Nothing is guaranteed: features are taken out without noise."
    if strongest is None:
        return said
    blind = "" if strongest.prior is None else f" (guessing blind: {percent(strongest.prior)})"
    return (
        f"{said} The strongest attack here, {strongest.name}, tells {strongest.task} it is: "
        f"{plus_minus(strongest.success)}{blind}."
    )


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


def lines(form: Form) -> list[tuple[str, str]]:
    """Return the release in at most ten labelled lines, the verdict and further numbers aside."""
    first = [("release", f"{form.kind}: {form.title}"), *_released(form)]
    told: list[tuple[str, str]] = []
    void = "void: " if form.reproducible else ""
    told += [("guarantee", void + held.describe()) for held in form.guarantees[:3]]
    told += [
        ("attack", f"{attack.name}, on {attack.task}: {attack_words(form, attack)}")
        for attack in sorted(form.attacks, key=lambda attack: -attack.success.value)[:1]
    ]
    if form.use:
        told.append(("use", _use(form)))
    told.append(("noise", form.method))
    told.append(("made", _made(form)))
    return first + told[:7]


def attack_words(form: Form, attack: Attack) -> str:
    """Return what an attack reached, and how it stands to the guarantees if that is not plain."""
    beside = standing(form, attack)
    return plus_minus(attack.success) + (f" ({beside})" if beside else "")


def _use(form: Form) -> str:
    named = [f"{use.name} {use_words(form, use.name)}" for use in form.use[:USES]]
    more = len(form.use) - USES
    return "; ".join(named) + (f"; {more} more in the report" if more > 0 else "")


def _released(form: Form) -> list[tuple[str, str]]:
    parts = [
        f"{number.name} = {beside(number.value, number.error)} ± "
        f"{significant(number.half_width(), 2)}"
        for number in form.numbers
    ]
    starts = range(0, len(parts), NUMBERS_PER_LINE)
    told = [", ".join(parts[start : start + NUMBERS_PER_LINE]) for start in starts]
    if told:
        told[-1] += " (95%, of the noise)"
    return [("" if place else "released", line) for place, line in enumerate(told)]


def use_words(form: Form, name: str) -> str:
    """Return one measurement of use with its interval and unit."""
    use = next(use for use in form.use if use.name == name)
    ends = (use.measured.value, use.measured.low, use.measured.high)
    if use.unit == "share":
        value, low, high = (percent(end) for end in ends)
        return f"{value} [{low[:-1]}, {high[:-1]}]"
    value, low, high = (significant(end) for end in ends)
    return f"{value} [{low}, {high}] {use.unit}"


def information_words(form: Form) -> str | None:
    """Return the bound on the information, rounded up."""
    return None if form.information is None else f"{significant_up(form.information)} nats"


def _made(form: Form) -> str:
    if form.provenance is None:
        return form.created or "time not recorded"
    command, version = form.provenance.get("command"), form.provenance.get("tacit_version")
    return f"{form.created or form.provenance.get('created')}, tacit {version}: {command}"
