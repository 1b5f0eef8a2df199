"""The page of numbers under a promise about rows or about a table, from their form."""

from __future__ import annotations

from typing import Any

from tacit.releases import Form, Provenance
from tacit.report.drawing import NARROW, WIDE
from tacit.report.embedding import embedded_json
from tacit.report.promise.figures import MOST_NUMBERS, noise_figure, noise_ratios
from tacit.report.promise.words import assumed, not_hidden, number_row, strength_rows
from tacit.report.rendering import rendered
from tacit.report.success import SuccessPlot, success_figure
from tacit.report.words import attack_words, verdict
from tacit.text import percent, significant

SHOWN_ROWS = 30
KINDS = {
    "statistic-rows": "which rows were drawn is hidden, row by row",
    "statistic-table": "that a row is in the table is hidden",
    "statistic-draw": "which rows were drawn is hidden, as a whole",
}


def render_promise(form: Form, provenance: Provenance, content: Any) -> str:
    """Return the report on numbers released under a promise as one self-contained HTML page.

    Args:
        form: the release.
        provenance: how it was made.
        content: the JSON of the release, which the page carries.
    """
    rows = [number_row(number) for number in form.numbers]
    plot = _plot(form)
    ratios = noise_ratios(form.numbers)
    return rendered(
        "promise",
        form=form,
        kind=KINDS[form.kind],
        verdict=verdict(form),
        provenance=provenance,
        success_wide=None if plot is None else success_figure(plot, width=WIDE),
        success_narrow=None if plot is None else success_figure(plot, width=NARROW),
        attack=_attack_words(form),
        noise_wide=noise_figure(form.numbers, width=WIDE),
        noise_narrow=noise_figure(form.numbers, width=NARROW),
        most=MOST_NUMBERS if len(ratios) > MOST_NUMBERS else None,
        worst=significant(max(ratio for _, ratio in ratios), 2) if ratios else None,
        rows=rows[:SHOWN_ROWS],
        more_rows=rows[SHOWN_ROWS:],
        sampled=any(row.sampling for row in rows),
        strength=strength_rows(form),
        assumed=assumed(form),
        not_hidden=not_hidden(form),
        json=embedded_json(content),
    )


def _plot(form: Form) -> SuccessPlot | None:
    bound = form.headline
    if bound is None:
        return None
    measured = []
    for attack in form.attacks:
        measured.append(("attack, rows tried", attack.success))
        if attack.worst is not None:
            measured.append(("attack, worst row", attack.worst))
    return SuccessPlot(
        task="membership",
        bound=form.success(bound),
        prior=bound.prior,
        void=form.reproducible,
        rows=tuple(measured),
    )


def _attack_words(form: Form) -> str:
    if not form.attacks:
        return "No attack was run on this release, so nothing is measured beside the bound."
    attack = form.attacks[0]
    words = (
        f"The attack we ran ({attack.name}, {attack.trials:,} fresh releases) guessed "
        f"{attack_words(form, attack)} of the rows it tried right"
    )
    if attack.worst is not None:
        low, high = percent(attack.worst.low), percent(attack.worst.high)
        words += f"; on its worst row {percent(attack.worst.value)}, interval {low} to {high}"
    return f"{words}. An attack is evidence, not a guarantee."
