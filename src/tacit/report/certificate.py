"""The certificate: values, intervals, promise, assumptions, and nothing for the holder alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tacit import __version__
from tacit._ground.files import check_writable, write_text_atomic
from tacit.pages import embedded_json, rendered, table, verdict
from tacit.pages.strength import assumed, not_hidden, number_row, strength_rows
from tacit.releases import Release
from tacit.releases.loading import read_checked
from tacit.text import percent, percent_up


def render_certificate(release: Any) -> str:
    """Return what may be published of a release as one self-contained HTML page.

    It holds the values with their 95% intervals, the promise, what is assumed, and the public part
    of the release as JSON; no attack, no diagnostics, no fingerprint of data.

    Args:
        release: what a workflow returned, its dictionary, or the path of its file.

    Raises:
        ValueError: nothing of it may be published: it guarantees nothing, a seed voids it, or an
            attack contradicts it.

    Example:
        >>> import numpy as np
        >>> from tacit import Effort, Rows, privatize
        >>> rows = np.arange(60.0)
        >>> release = privatize("mean", rows, Rows(success=0.7), Effort(trials=0))
        >>> "mean[x0]" in render_certificate(release)
        True
    """
    read = read_checked(release)
    found = read.release
    judged = verdict(found)
    if found.withheld or judged.kind != "bounded":
        why = found.withheld or judged.sentence
        raise ValueError(f"release: expected one with a guarantee to certify: {why}")
    public = found.public()
    numbers = [] if public.numbers is None else [number_row(one) for one in public.numbers]
    return rendered(
        "tacit.report",
        "certificate",
        release=public,
        claim=_claim(public),
        version=__version__,
        rows=numbers,
        sampled=any(row.sampling for row in numbers),
        strength=table("strength of the promise", (), strength_rows(public), "strength"),
        assumed=assumed(public),
        not_hidden=not_hidden(public),
        unchecked=read.unchecked,
        json=embedded_json(public.to_dict()),
    )


def write_certificate(release: Any, path: str | os.PathLike[str]) -> Path:
    """Write what may be published of a release to ``path``, whole or not at all.

    Args:
        release: what a workflow returned, its dictionary, or the path of its file.
        path: the HTML file to write; an older one is replaced.

    Returns:
        The absolute path written.

    Raises:
        ValueError: as ``render_certificate``, or ``path`` cannot be written.
    """
    check_writable("path", path)
    return write_text_atomic("path", path, render_certificate(release))


def _claim(release: Release[Any]) -> str:
    """Return the promise in one sentence, without what was measured."""
    bound = release.headline
    if bound is None:
        return release.guarantees[0].describe()
    known = bound.law or "its law, as assumed,"
    return (
        f"Whoever knows only {known} guesses {bound.task} right at most "
        f"{percent_up(release.success(bound))} of the time; guessing blind is right "
        f"{percent(bound.prior)} of the time."
    )
