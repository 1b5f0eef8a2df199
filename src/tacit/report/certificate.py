"""The certificate: values, intervals, promise, assumptions, and nothing for the holder alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tacit import __version__
from tacit._ground.files import check_writable, write_text_atomic
from tacit.pages import embedded_json, rendered, verdict
from tacit.pages.answers import found_out, published_beside, record_words
from tacit.pages.numbers import numbers_table
from tacit.pages.strength import assumed, not_hidden, strength_table
from tacit.releases.kinds import kind_named
from tacit.releases.loading import read_checked
from tacit.releases.verification import verify

# In sight, so that a printed certificate is one page.
SHOWN_ROWS = 16


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
    judged = verdict(found, measured=False)
    if found.withheld or judged.kind != "bounded":
        why = found.withheld or judged.sentence
        raise ValueError(f"release: expected one with a guarantee to certify: {why}")
    public = found.public()
    return rendered(
        "tacit.report",
        "certificate",
        release=public,
        judged=verdict(public, measured=False),
        found_out=found_out(public),
        record=record_words(public),
        beside=published_beside(public),
        kept=kind_named(public.kind).kept,
        version=__version__,
        numbers=None if public.numbers is None else numbers_table(public.numbers, SHOWN_ROWS),
        sampled=public.numbers is not None and public.numbers.sampling is not None,
        strength=strength_table(public),
        assumed=assumed(public),
        not_hidden=not_hidden(public),
        unchecked=read.unchecked,
        checked=verify(public),
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
