"""The page of promises side by side: one figure, one table, and which to take."""

from __future__ import annotations

from tacit import codec
from tacit.pages import NARROW, WIDE, embedded_json, rendered
from tacit.releases.provenance import Provenance
from tacit.releases.release import Attack
from tacit.statistics.queries.statistic import NORMAL_95
from tacit.text import percent, share_up, significant_up
from tacit_lab.comparison.figures import comparison_figure
from tacit_lab.comparison.result import Comparison, PromiseResult

SHOWN_NUMBERS = 12
LIRA = "LiRA"
# The promise that hides most is taken where its total error is at most so many times the least.
LITTLE_MORE = 1.25


def render_comparison(found: Comparison, provenance: Provenance) -> str:
    """Return the promises side by side as one self-contained HTML page.

    Args:
        found: what ``tacit_lab.comparison.compare`` returned.
        provenance: how it was made.
    """
    # the number first, what to do about it below
    title, _, advice = headline(found).partition(". ")
    content = {**found.to_dict(), "provenance": codec.write(Provenance, provenance)}
    return rendered(
        "tacit_lab.comparison",
        "page",
        found=found,
        title=f"{title}.",
        advice=advice,
        errors=errors_beside(found),
        bound=share_up(found.success),
        wide=comparison_figure(found, width=WIDE),
        narrow=comparison_figure(found, width=NARROW),
        rows=[_row(result) for result in found.results],
        numbers=[
            (name, [_half_width(one, place) for one in found.results])
            for place, name in enumerate(found.names[:SHOWN_NUMBERS])
        ],
        hidden=max(len(found.names) - SHOWN_NUMBERS, 0),
        provenance=provenance,
        json=embedded_json(content),
    )


def headline(found: Comparison) -> str:
    """Return which promise to take, and when not: the one that hides most where it costs little."""
    best = min(found.results, key=lambda one: one.total)
    whole = [one for one in found.results if one.promise == "table"]
    table = min(whole, key=lambda one: one.total, default=None)
    if table is not None and table.total <= LITTLE_MORE * best.total:
        return (
            f"{significant_up(table.total, 3)}: the total error by {table.name}, which hides most. "
            "Take it, unless no bounds can be declared."
        )
    told = f"{significant_up(best.total, 3)}: the total error by {best.name}, the least. Take it"
    if table is None:
        return f"{told}, unless more has to be hidden."
    return (
        f"{told}, unless being in the table must be hidden: {table.name} has "
        f"{significant_up(table.total, 3)}."
    )


def errors_beside(found: Comparison) -> str:
    """Return the errors of all promises in one sentence, and their unit."""
    parts = [
        f"{significant_up(one.total, 3)} by {one.name} (noise alone {significant_up(one.noise, 3)})"
        for one in found.results
    ]
    return (
        f"At a success of guessing membership of at most {share_up(found.success)}, the total "
        f"error is {', '.join(parts)}, in units of the sampling error of the whole table. They "
        "hide different things."
    )


def comparison_lines(found: Comparison) -> list[tuple[str, str]]:
    """Return a line for each promise, then the notes."""
    lines = []
    for one in found.results:
        words = f"total error {significant_up(one.total, 3)}, noise {significant_up(one.noise, 3)}"
        if one.clipped > 0.0:
            words += f", clipping {significant_up(one.clipped, 3)}"
        words += f" of the table's sampling error, {one.rows:,} {found.unit}s"
        for attack in one.attacks:
            words += f"; {attack_words(attack)}"
        lines.append((one.name, words))
    hidden = {one.promise: one.hides for one in found.results}
    lines += [("hides", f"{promise}: {what}") for promise, what in hidden.items()]
    return lines + [("note", note) for note in found.notes]


def attack_words(attack: Attack) -> str:
    """Return who attacked and what it reached."""
    who = LIRA if attack.name.startswith(LIRA) else "told all it may know"
    return f"{who} {_interval_words(attack)}"


def _row(result: PromiseResult) -> dict[str, str]:
    told = [one for one in result.attacks if not one.name.startswith(LIRA)]
    blind = [one for one in result.attacks if one.name.startswith(LIRA)]
    return {
        "name": result.name,
        "hides": result.hides,
        "rows": f"{result.rows:,}",
        "noise": significant_up(result.noise, 3),
        "clipping": significant_up(result.clipped, 3) if result.clipped > 0.0 else "none",
        "total": significant_up(result.total, 3),
        "evidence": result.evidence,
        "told": _interval_words(told[0]) if told else "–",
        "lira": _interval_words(blind[0]) if blind else "–",
    }


def _interval_words(attack: Attack) -> str:
    found = attack.success
    low, high = (percent(end)[:-1] for end in (found.low, found.high))
    return f"{percent(found.value)} [{low}, {high}]"


def _half_width(result: PromiseResult, place: int) -> str:
    noise = NORMAL_95 * float(result.errors[place])
    total = NORMAL_95 * float(result.totals[place])
    return f"± {significant_up(noise, 2)} / ± {significant_up(total, 2)}"
