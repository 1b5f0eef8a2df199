"""The page of any release: what the template needs, from its form alone."""

from __future__ import annotations

from typing import Any

from tacit.guarantees import SuccessBound
from tacit.releases import Form, Provenance
from tacit.report.drawing import NARROW, WIDE
from tacit.report.embedding import embedded_json
from tacit.report.rendering import rendered
from tacit.report.success import SuccessPlot, success_figure
from tacit.report.words import attack_words, information_words, use_words, verdict
from tacit.text import beside, percent, percent_up, significant

SHOWN_NUMBERS = 200


def render_form(form: Form, provenance: Provenance, content: Any) -> str:
    """Return the report on any release as one self-contained HTML page.

    Args:
        form: the release as every workflow states it.
        provenance: how it was made.
        content: the JSON of the release, which the page carries.
    """
    bounds = [held for held in form.guarantees if isinstance(held, SuccessBound)]
    return rendered(
        "release",
        form=form,
        verdict=verdict(form),
        provenance=provenance,
        figures=[_figures(form, bound) for bound in bounds],
        information=information_words(form),
        numbers=[
            (number.name, beside(number.value, number.error), significant(number.error))
            for number in form.numbers[:SHOWN_NUMBERS]
        ],
        hidden_numbers=max(len(form.numbers) - SHOWN_NUMBERS, 0),
        attacks=[
            (
                attack.name,
                attack.task,
                attack_words(form, attack),
                "" if attack.prior is None else percent(attack.prior),
                f"{attack.trials:,}",
            )
            for attack in form.attacks
        ],
        blind=any(attack.prior is not None for attack in form.attacks),
        use=[(use.name, use_words(form, use.name), use.better) for use in form.use],
        json=embedded_json(content),
    )


def _figures(form: Form, bound: SuccessBound) -> dict[str, Any]:
    """One figure per bound: the line, and the attacks on the same task as points."""
    success = form.success(bound)
    rows = []
    for attack in form.attacks:
        if attack.task == bound.task:
            rows.append(("attack, every trial", attack.success))
            if attack.worst is not None:
                rows.append(("attack, worst record", attack.worst))
    plot = SuccessPlot(
        task=bound.task,
        bound=success,
        prior=bound.prior,
        void=form.reproducible,
        rows=tuple(rows),
    )
    return {
        "task": bound.task,
        "bound": percent_up(success),
        "prior": percent(bound.prior),
        "wide": success_figure(plot, width=WIDE),
        "narrow": success_figure(plot, width=NARROW),
        "measured": bool(rows),
    }
