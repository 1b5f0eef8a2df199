"""Any stored release, read back in the form that all of them have."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tacit._ground.checks import Array, vector
from tacit._ground.files import spelled
from tacit._ground.reprs import shown
from tacit.covariance import covariance_from_dict
from tacit.documents import checked, decoded, read
from tacit.releases.contradiction import refuted
from tacit.releases.form import Form, Release, stated
from tacit.releases.provenance import check_provenance
from tacit.releases.stores import is_store, read_store

# Stands for a Σ that is not there, while fields are read.
NOTHING = {"type": "isotropic", "variance": 0.0, "dim": 1}

# Between a variance as it was stored and as Σ gives it again.
ROUNDING = 1e-9

# Fields that a workflow states beside its form, under the same name.
SHARED = ("method", "reproducible", "seed", "created", "guarantees")

# Kinds that release nothing: their seed is of what was measured, and no form's.
MEASUREMENTS = ("hidden-audit",)

# What reads a stored release of each format, imported when a file of it is read: every field that
# stands in such a file, at any depth, is one that its workflow writes.
READERS = {
    "tacit.statistic": "tacit.statistics.release:StatisticRelease.from_dict",
    "tacit.statistic.numbers": "tacit.statistics.numbers:NumbersRelease.from_dict",
    "tacit.classifier": "tacit.classifiers.release:ClassifierRelease.from_dict",
    "hidden-audit": "tacit.hidden_states.audit.findings:Audit.from_dict",
    "tacit.training": "tacit.training.release:TrainingRelease.from_dict",
    "tacit.adapter": "tacit.adapters.release:AdapterRelease.from_dict",
    "tacit.inversion": "tacit.hidden_states.inversions:InversionEvidence.from_dict",
    "tacit.features": "tacit.hidden_states.features.study:FeatureStudy.from_dict",
    "tacit.specification-release": "tacit.specifications.release:SpecificationRelease.from_dict",
    "tacit.quotients": "tacit.hidden_states.quotient.release:QuotientRelease.from_dict",
    "tacit.codes": "tacit.hidden_states.codebooks.encoded:EncodedCodes.from_dict",
    "tacit.hidden_states": "tacit.hidden_states.noise.storage:check_described",
}

# Lists of released numbers, and which field of a number they hold.
NUMBERED = (("release", "value"), ("names", "name"))


def load(source: Any) -> Form:
    """Return the form of a release given as an object, its dictionary, or the path of its JSON.

    Args:
        source: a ``Release``, the dictionary of one or of its form, the path of its JSON, or that
            of a file of rows with its certificate (``.safetensors``, ``.parquet``, or ``.npy``
            beside ``.npy.json``), whose rows are held against their digest.

    Returns:
        What was released, its guarantees, attacks and use, whatever workflow made it.

    Raises:
        ValueError: the file is missing or not strict JSON, it is no release, a field is missing or
            out of range, what it says beside its form is something else, the rows beside it are
            others, or a stored attack did better than a stored guarantee allows.

    Example:
        >>> load({"format": "other"})
        Traceback (most recent call last):
        ValueError: release: expected a release of tacit, with its form, got format 'other'
    """
    form = read_form(source)
    wrong = None if isinstance(source, (Form, Release)) else refuted(form)
    if wrong is not None:
        raise ValueError(f"release: the file contradicts itself: {wrong}")
    return form


def read_form(source: Any) -> Form:
    """Return what ``load`` does, of a release too whose attacks refute its guarantees."""
    if isinstance(source, Form):
        return source
    if isinstance(source, Release):
        return source.form
    content = read_release(source) if isinstance(source, (str, os.PathLike)) else source
    if not isinstance(content, Mapping):
        raise ValueError(f"release: expected a release of tacit, got {type(content).__name__}")
    if "form" not in content:
        if {"version", "kind", "guarantees"} <= set(content):
            return Form.from_dict(content)
        found = shown(content.get("format", content.get("kind")))
        raise ValueError(f"release: expected a release of tacit, with its form, got format {found}")
    form = Form.from_dict(content["form"])
    _check_agreement(content, content["form"])
    provenance = content.get("provenance")
    if provenance is not None:
        check_provenance("release.provenance", provenance)
    _check_fields(content)
    return form if provenance is None else stated(form, provenance)


def reader_of(content: Mapping[str, Any]) -> Callable[[Any], Any] | None:
    """Return what reads a stored release of this format; None where no workflow has it."""
    place = READERS.get(str(content.get("format", content.get("kind"))))
    if place is None:
        return None
    module, _, names = place.partition(":")
    found: Any = import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    read: Callable[[Any], Any] = found
    return read


def _check_fields(content: Mapping[str, Any]) -> None:
    """Refuse a field that the workflow does not write; a large Σ may be left out, as in a page."""
    reader, design = reader_of(content), content.get("design")
    if reader is None:
        return
    if isinstance(design, Mapping) and design.get("covariance", "") is None:
        content = {**content, "design": {**design, "covariance": NOTHING}}
    own = {name: part for name, part in content.items() if name != "provenance"}
    checked("release", lambda: reader(own))


def _check_agreement(content: Mapping[str, Any], form: Mapping[str, Any]) -> None:
    """Refuse a file whose details say something else than its form."""
    for name, value in content.items():
        stray = isinstance(value, Mapping) and "evidence" in value
        if stray and value not in form["guarantees"]:
            raise ValueError(f"release: the file contradicts itself, {name!r} is not in its form")
        measured = name == "seed" and form["kind"] in MEASUREMENTS
        if name in SHARED and value != form[name] and not measured:
            raise ValueError(f"release: the file contradicts itself about {name!r}")
    for name, field in NUMBERED if {"release", "names"} <= set(content) else ():
        if content[name] != [one[field] for one in form["numbers"]]:
            raise ValueError(f"release: the file contradicts itself about {name!r}")
    _check_errors(content, form)


def _check_errors(content: Mapping[str, Any], form: Mapping[str, Any]) -> None:
    """Refuse errors of numbers, and variances of their noise, that the stored Σ does not give."""
    design, diagnostics = content.get("design"), content.get("diagnostics")
    if not form["numbers"] or not isinstance(design, Mapping):
        return
    told = [decoded(one["error"]) for one in form["numbers"]]
    noise = diagnostics.get("noise_variance") if isinstance(diagnostics, Mapping) else None
    held = design.get("covariance")
    # a page leaves a large Σ out, and then the variances stand for it
    if held is None:
        if noise is not None:
            _check_alike("error", told, np.sqrt(vector("release.noise_variance", noise)))
        return
    covariance = covariance_from_dict(held)
    if covariance.dim != len(told):
        raise ValueError("release: the file contradicts itself about 'error'")
    variances = covariance.diagonal()
    _check_alike("error", told, np.sqrt(variances))
    if isinstance(diagnostics, Mapping):
        _check_alike("noise_variance", noise, variances)


def _check_alike(name: str, told: Any, computed: Array) -> None:
    if not isinstance(told, list) or len(told) != computed.size:
        raise ValueError(f"release: the file contradicts itself about {name!r}")
    if not np.allclose(vector(f"release.{name}", told), computed, rtol=ROUNDING, atol=0.0):
        raise ValueError(f"release: the file contradicts itself about {name!r}")


def read_release(path: str | os.PathLike[str]) -> Any:
    """Return the dictionary of a release in a file: JSON, or a file of rows with its certificate.

    Raises:
        ValueError: no such file, it holds no release, or its rows are not those it describes.
    """
    place = Path(spelled("release", path))
    return read_store(place) if is_store(place) else read("release", path)
