"""A released statistic in lines: what it says, what it hides, what attacks got, where it went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from tacit.cli.console import line
from tacit.cli.publishing import Destination, tell_table

if TYPE_CHECKING:
    from tacit.releases import Form, Release
    from tacit.report import ReleaseRecord
    from tacit.report.words import Verdict
    from tacit.statistics import NumbersRelease, StatisticRelease, Table


def tell(
    release: StatisticRelease | NumbersRelease, destination: Destination, table: Table
) -> None:
    """Print the verdict, every number with its interval, and the rest in a line each."""
    from tacit.statistics import StatisticRelease

    console = destination.json.console
    conclusion, told = (
        _of_a_draw(release) if isinstance(release, StatisticRelease) else _of_numbers(release)
    )
    style = "bold" if conclusion.kind == "bounded" else "bold red"
    console.print(Text(conclusion.sentence, style))
    for number, outputs in enumerate(released_lines(release.form)):
        line(console, "" if number else "released", outputs)
    for label, text in told:
        line(console, label, text)
    tell_table(console, table)
    destination.tell()


def released_lines(form: Form) -> list[str]:
    """Return the numbers, each with the half width of its 95% intervals."""
    from tacit.report.numbers import number_lines

    return number_lines(form.numbers)


def _of_numbers(release: NumbersRelease) -> tuple[Verdict, list[tuple[str, str]]]:
    from tacit.report.numbers import strength_words
    from tacit.report.words import verdict

    form = release.form
    void = "void: " if release.reproducible else ""
    lines = [("hides", form.secret), ("guarantee", void + strength_words(form.guarantees))]
    lines.append(("attack", _attack(form)))
    lines.append(("noise", form.method))
    lines += [("note", note) for note in form.notes]
    lines.append(("randomness", randomness_words(form)))
    return verdict(form), lines


def _attack(form: Form) -> str:
    from tacit.report.words import plus_minus
    from tacit.text import percent

    if not form.attacks:
        return "none was run"
    attack = form.attacks[0]
    words = f"{attack.name}: {plus_minus(attack.success)}"
    if attack.worst is not None:
        low, high = percent(attack.worst.low), percent(attack.worst.high)
        words += f"; worst row {percent(attack.worst.value)} [{low}, {high}]"
    return f"{words}; {attack.trials:,} simulated releases"


def randomness_words(form: Form) -> str:
    """Say where the randomness came from."""
    if not form.reproducible:
        return "operating system entropy"
    return "a generator given by the caller" if form.seed is None else f"the seed {form.seed}"


def _of_a_draw(release: Release) -> tuple[Verdict, list[tuple[str, str]]]:
    from tacit.report import read_release
    from tacit.report.statistic.words import verdict

    record = read_release(release)
    return verdict(record), [*_draw_lines(record, release.form)]


def _draw_lines(record: ReleaseRecord, form: Form) -> list[tuple[str, str]]:
    from tacit.report.statistic.words import success_bound
    from tacit.text import percent, percent_up, significant, significant_up

    void = "void: " if record.reproducible else ""
    lines = [
        (
            "guarantee",
            f"{void}information ≤ {significant_up(record.guarantee.nats)} nats, so success ≤ "
            f"{percent_up(success_bound(record))} (guessing blind {percent(record.prior)})",
        )
    ]
    if record.gaussian_information is not None and record.noise_saved is not None:
        lines.append(
            (
                "certified",
                f"by the exact posterior, with probability {record.guarantee.confidence:g}; the "
                f"Gaussian bound of this noise is {significant_up(record.gaussian_information)} "
                f"nats, and {percent(record.noise_saved)} of the noise it asks for is saved",
            )
        )
    lines.append(("attack", _attack(form)))
    power, own = float(record.noise_variance.sum()), float(record.output_variance.sum())
    ratio = f", {significant(power / own, 2)} times the output's own" if own > 0 else ""
    added = (
        f"none ({record.method}): the outputs carry no more than is certified"
        if record.noiseless
        else f"{record.method}, total variance {significant(power)}{ratio}"
    )
    lines.append(("noise", added))
    lines += [("note", note) for note in form.notes]
    lines.append(("randomness", randomness_words(form)))
    return lines
