"""The page: what the template needs, filled in and written whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.releases.provenance import Provenance
from tacit.report.drawing import NARROW, WIDE
from tacit.report.embedding import embedded_json
from tacit.report.rendering import rendered
from tacit.report.statistic.figures import MOST_POINTS, success_plot, variance_figure
from tacit.report.statistic.record import ReleaseRecord, read_release
from tacit.report.statistic.words import seed_words, success_bound, verdict
from tacit.report.success import success_figure
from tacit.report.words import Verdict
from tacit.text import beside, percent, percent_up, significant, significant_up

SHOWN_ROWS = 30
EMBEDDED_LIMIT = 4_000_000


@dataclass(frozen=True)
class OutputRow:
    """One released number, as the table shows it."""

    name: str
    value: str
    noise_std: str
    output_std: str


def render_statistic(release: Any, provenance: Provenance) -> str:
    """Return the report on a release as one self-contained HTML page.

    Args:
        release: a ``StatisticRelease``, its dictionary, or the path of its JSON.
        provenance: how the release was made.

    Raises:
        ValueError: when ``release`` is not a tacit release.
    """
    record = read_release(release)
    conclusion = verdict(record)
    return rendered("statistic", **_content(record, conclusion, provenance))


def _content(record: ReleaseRecord, conclusion: Verdict, provenance: Provenance) -> dict[str, Any]:
    bound = success_bound(record)
    rows, plot = _rows(record), success_plot(record, bound)
    directions = record.principal_noise_variance.size
    assumptions = dict.fromkeys([*record.guarantee.assumptions, *record.membership.assumptions])
    notes = dict.fromkeys([*record.notes])
    return {
        "record": record,
        "verdict": conclusion,
        "headline": conclusion.sentence.replace(" ± ", "\u00a0±\u00a0"),
        "provenance": provenance,
        "bound": percent_up(bound),
        "prior": percent(record.prior),
        "nats": significant_up(record.guarantee.nats),
        "budget": significant(record.mi_budget),
        "gaussian": None
        if record.gaussian_information is None
        else significant_up(record.gaussian_information),
        "saved": None if record.noise_saved is None else percent(record.noise_saved),
        "success_wide": success_figure(plot, width=WIDE),
        "success_narrow": success_figure(plot, width=NARROW),
        "variance_wide": variance_figure(record, width=WIDE),
        "variance_narrow": variance_figure(record, width=NARROW),
        "most": MOST_POINTS,
        "thinned": directions if directions > MOST_POINTS else None,
        "rows": rows[:SHOWN_ROWS],
        "more_rows": rows[SHOWN_ROWS:],
        "drowned": int(np.sum(np.abs(record.values) < np.sqrt(record.noise_variance))),
        "assumptions": list(assumptions),
        "notes": list(notes),
        "attack": _attack_words(record),
        "confidence": _confidence(record),
        "draw": _draw(record),
        "gap": None if record.gap is None else significant_up(max(record.gap, 0.0), 2),
        "noise_power": significant(float(record.noise_variance.sum())),
        **_embedded(record, provenance),
    }


def _embedded(record: ReleaseRecord, provenance: Provenance) -> dict[str, Any]:
    """Return the embedded JSON, without the noise covariance when that alone makes a page heavy."""
    content = {**record.content, "provenance": provenance.to_dict()}
    text = embedded_json(content)
    design = content.get("design")
    if len(text) <= EMBEDDED_LIMIT or not isinstance(design, dict):
        return {"json": text, "shortened": False}
    text = embedded_json({**content, "design": {**design, "covariance": None}})
    return {"json": text, "shortened": True}


def _rows(record: ReleaseRecord) -> list[OutputRow]:
    spreads = np.sqrt(record.noise_variance)
    outputs = np.sqrt(record.output_variance)
    return [
        OutputRow(name, beside(value, spread), significant(spread), significant(output))
        for name, value, spread, output in zip(
            record.names,
            record.values.tolist(),
            spreads.tolist(),
            outputs.tolist(),
            strict=True,
        )
    ]


def _attack_words(record: ReleaseRecord) -> str:
    attack = record.attack
    if attack is None:
        return "No attack was run on this release, so nothing is measured beside the bound."
    low, high = (percent(end) for end in attack.interval)
    worst_low, worst_high = (percent(end) for end in attack.worst_interval)
    return (
        f"The strongest attack we ran ({attack.name}, {attack.trials:,} fresh releases) guessed "
        f"{percent(attack.success)} of memberships right, interval {low} to {high}; on its worst "
        f"row {percent(attack.worst_success)}, interval {worst_low} to {worst_high} "
        f"(confidence {attack.confidence:.0%} each). An attack is evidence, not a guarantee."
    )


def _confidence(record: ReleaseRecord) -> str:
    kinds = {
        "theorem": "a theorem",
        "numerical": "a theorem, evaluated numerically and rounded up",
        "statistical": "statistical",
    }
    words = kinds[record.guarantee.evidence]
    if record.guarantee.confidence is not None:
        words += f", it holds with probability {record.guarantee.confidence:g}"
    return words


def _draw(record: ReleaseRecord) -> str:
    if record.reproducible:
        return f"{seed_words(record)}: reproducible, so the guarantee is void"
    return "operating system entropy: this draw cannot be repeated"
