"""Which page a release gets: one of its kind where there is one, else the page of any release."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit._ground.files import check_writable, write_text_atomic
from tacit.documents import read
from tacit.hidden_states import Audit
from tacit.releases import Form, Provenance, Release
from tacit.releases.loading import read_form
from tacit.report.certificate.page import render_certificate
from tacit.report.hidden.page import render_audit
from tacit.report.promise.page import KINDS, render_promise
from tacit.report.release.page import render_form
from tacit.report.statistic.page import render_statistic


def render_report(release: Any, provenance: Provenance) -> str:
    """Return the report on a release as one self-contained HTML page.

    Args:
        release: what a workflow returned, its dictionary, or the path of its JSON.
        provenance: how the release was made.

    Raises:
        ValueError: when ``release`` is not a release of tacit.
    """
    content = _content(release)
    form = read_form(content)
    if form.kind == "statistic":
        return render_statistic(content, provenance)
    if form.kind == "hidden-audit":
        audit = release if isinstance(release, Audit) else Audit.from_dict(content)
        return render_audit(audit, provenance)
    if form.kind in KINDS:
        return render_promise(form, provenance, {**content, "provenance": provenance.to_dict()})
    return render_form(form, provenance, {**content, "provenance": provenance.to_dict()})


def write_report(release: Any, path: str | os.PathLike[str], provenance: Provenance) -> Path:
    """Write the report on a release to ``path``, whole or not at all.

    Args:
        release: what a workflow returned, its dictionary, or the path of its JSON.
        path: the HTML file to write; an older one is replaced.
        provenance: how the release was made.

    Returns:
        The absolute path written.

    Raises:
        ValueError: when ``release`` is not a release of tacit or ``path`` cannot be written.
    """
    check_writable("path", path)
    return write_text_atomic("path", path, render_report(release, provenance))


def write_certificate(
    release: Release, path: str | os.PathLike[str], provenance: Provenance
) -> Path:
    """Write what may be published of a released statistic to ``path``, whole or not at all.

    Args:
        release: of a statistic.
        path: the HTML file to write; an older one is replaced.
        provenance: how the release was made.

    Returns:
        The absolute path written.

    Raises:
        ValueError: as ``render_certificate``, or ``path`` cannot be written.
    """
    check_writable("path", path)
    return write_text_atomic("path", path, render_certificate(release, provenance))


def _content(release: Any) -> Mapping[str, Any]:
    if isinstance(release, Release):
        return release.to_dict()
    content = read("release", release) if isinstance(release, (str, Path)) else release
    if not isinstance(content, Mapping) or isinstance(content, Form):
        raise ValueError(f"release: expected a release of tacit, got {type(content).__name__}")
    return content
