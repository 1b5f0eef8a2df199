"""Any stored release, read back in the form that all of them have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.documents import read
from tacit.releases.form import Form, Release, stated


def load(source: Any) -> Form:
    """Return the form of a release given as an object, its dictionary, or the path of its JSON.

    Args:
        source: a ``Release``, the dictionary of one, or a path.

    Returns:
        What was released, its guarantees, attacks and use, whatever workflow made it.

    Raises:
        ValueError: the file is missing or not strict JSON, it is no release, or a field is missing
            or out of range.

    Example:
        >>> load({"format": "other"})
        Traceback (most recent call last):
        ValueError: release: expected a release of tacit, with its form, got format 'other'
    """
    if isinstance(source, Form):
        return source
    if isinstance(source, Release):
        return source.form
    content = read("release", source) if isinstance(source, (str, Path)) else source
    if not isinstance(content, Mapping):
        raise ValueError(f"release: expected a release of tacit, got {type(content).__name__}")
    if "form" not in content:
        found = content.get("format", content.get("kind"))
        raise ValueError(
            f"release: expected a release of tacit, with its form, got format {found!r}"
        )
    form = Form.from_dict(content["form"])
    _check_agreement(content, form)
    provenance = content.get("provenance")
    return stated(form, provenance) if isinstance(provenance, Mapping) else form


def _check_agreement(content: Mapping[str, Any], form: Form) -> None:
    """Refuse a file whose details say something else than its form."""
    stated = content["form"]["guarantees"]
    for name, value in content.items():
        if isinstance(value, Mapping) and "evidence" in value and value not in stated:
            raise ValueError(f"release: the file contradicts itself, {name!r} is not in its form")
    if content.get("reproducible", form.reproducible) != form.reproducible:
        raise ValueError("release: the file contradicts itself about 'reproducible'")
