"""The certificate: values, intervals, promise, assumptions, and nothing for the holder alone."""

from __future__ import annotations

from tacit.classifiers import ClassifierRelease
from tacit.guarantees import InformationBound
from tacit.releases import Form, Provenance
from tacit.releases.form import Release
from tacit.report.embedding import embedded_json
from tacit.report.promise.page import KINDS
from tacit.report.promise.words import assumed, not_hidden, number_row, strength_rows
from tacit.report.rendering import rendered
from tacit.report.words import verdict
from tacit.text import percent, percent_up, significant_up

CLASSIFIER = "classifier"
CERTIFIED = ("statistic", *KINDS, CLASSIFIER)
# What the interval of a number holds, where that is no statistic.
CLEAN = {CLASSIFIER: "logit without noise"}


def render_certificate(release: Release, provenance: Provenance) -> str:
    """Return what may be published of a statistic, or of logits, as one self-contained HTML page.

    It holds the values with their 95% intervals, the promise, what is assumed, and the publishable
    fields of the release as JSON; no attack, no diagnostics, no fingerprint, no number of rows, and
    of categories no level that was not declared: it is a cell of the table.

    Args:
        release: of a statistic, or of a classifier's logits.
        provenance: how it was made; its version and the codes of categories are taken.

    Raises:
        ValueError: a release of another kind, one whose guarantee is void, or one that an attack
            contradicts.

    Example:
        >>> import numpy as np
        >>> from tacit.statistics import privatize
        >>> release = privatize("mean", np.arange(60.0), success=0.7, attack=False)
        >>> "mean[x0]" in render_certificate(release, Provenance.capture("in Python"))
        True
    """
    form = release.form
    if form.kind not in CERTIFIED:
        raise ValueError(f"release: expected one of a statistic or a classifier, got {form.kind!r}")
    found = verdict(form)
    if found.kind != "bounded":
        raise ValueError(f"release: expected one with a guarantee to certify: {found.sentence}")
    numbers = release.numbers if isinstance(release, ClassifierRelease) else form.numbers
    rows = [number_row(number) for number in numbers]
    return rendered(
        "certificate",
        form=form,
        claim=_claim(form),
        version=provenance.tacit_version,
        codes={
            name: levels
            for name, levels in provenance.data_categories.items()
            if name not in provenance.data_observed
        },
        # how many there are is told where the table is known, and hidden with it
        observed={}
        if form.kind == "statistic-table"
        else {name: len(provenance.data_categories[name]) for name in provenance.data_observed},
        rows=rows,
        clean=CLEAN.get(form.kind, "statistic of the rows that were used"),
        sampled=any(row.sampling for row in rows),
        strength=[*strength_rows(form), *_information(form)],
        assumed=assumed(form),
        not_hidden=not_hidden(form),
        json=embedded_json(release.published()),
    )


def _claim(form: Form) -> str:
    """Return the promise in one sentence, without what was measured."""
    bound = form.headline
    assert bound is not None
    known = bound.law or "its law, as assumed,"
    return (
        f"Whoever knows only {known} guesses {bound.task} right at most "
        f"{percent_up(form.success(bound))} of the time; guessing blind is right "
        f"{percent(bound.prior)} of the time."
    )


def _information(form: Form) -> list[tuple[str, str]]:
    return [
        (f"information about {held.secret}", f"at most {significant_up(held.nats)} nats")
        for held in form.guarantees
        if isinstance(held, InformationBound)
    ]
