"""A stored release worked out again from what its file holds, and refused where it disagrees."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tacit._ground.numbers import EPS
from tacit._ground.reprs import shown
from tacit.classifiers.release import ClassifierRelease
from tacit.conversions import success_from_information
from tacit.documents import dumps, loads
from tacit.gate.promises import check_promise
from tacit.guarantees import InformationBound, SuccessBound
from tacit.hidden_states.audit.findings import Audit
from tacit.hidden_states.codebooks.counting import code_type
from tacit.hidden_states.codebooks.encoded import EncodedCodes
from tacit.hidden_states.codebooks.vectors import open_vectors
from tacit.hidden_states.noise.storage import FORMAT as STATES
from tacit.hidden_states.noise.storage import read_states
from tacit.releases import Form, Release
from tacit.releases.form import DERIVED
from tacit.releases.loading import read_form, read_release, reader_of
from tacit.releases.stores import is_store, uncertified
from tacit.statistics import NumbersRelease
from tacit.statistics.plan import ASSUMPTIONS
from tacit.statistics.release import StatisticRelease

# judged above, or the name of what a store holds, which its reader judges
ELSEWHERE = ("form", "tensor")
# formats whose details are not worked out again
UNREAD = (STATES,)
# what double precision and a change of basis may lose
ROUNDING = 1e-9


def consistent_form(source: Any, *, partial: bool = False) -> Form:
    """Return the form of a release; of a file or dictionary, what it lets one recompute agrees.

    Args:
        source: as ``tacit.load`` takes it.
        partial: whether one is taken as it is that lacks what its details are worked out from.

    Raises:
        ValueError: as ``tacit.load``, or two parts of the file contradict each other.
    """
    content = read_release(source) if isinstance(source, (str, Path)) else source
    if isinstance(content, str):
        raise ValueError("release: expected a release of tacit, got a text")
    form = read_form(content)
    if isinstance(content, (Form, Release)):
        return form
    _check_void(form)
    reader = reader_of(content)
    if reader is None or content.get("format") in UNREAD:
        if not partial:
            _check_format(content)
        if isinstance(source, (str, Path)) and content.get("format") == STATES:
            # the Σ of the file, and what stands beside its states
            read_states(source)
        return form
    design = content.get("design")
    if isinstance(design, Mapping) and design.get("covariance", "") is None:
        if partial:
            return form
        raise ValueError(
            "release: expected the covariance of its design, which a large page leaves out; give "
            "the release's JSON"
        )
    # where it comes from stands beside a release, not in it
    release = reader({name: part for name, part in content.items() if name != "provenance"})
    stored = content["form"]
    for name, value in release.form.to_dict().items():
        if value != stored.get(name):
            raise ValueError(
                f"release: the file contradicts itself, its details give another {name!r}"
            )
    for name, value in _stored(release.to_dict()).items():
        if name not in ELSEWHERE and value != _stored(content.get(name)):
            raise ValueError(f"release: the file contradicts itself in {name!r}")
    _check_derived(release)
    _check_numbers(release)
    if isinstance(release, EncodedCodes) and isinstance(source, (str, Path)):
        _check_codes(Path(source), release, decoded="decoded" in content)
    return form


def _stored(value: Any) -> Any:
    """Return a value as its file holds it."""
    return loads(dumps(value))


def _check_format(content: Any) -> None:
    """Refuse a form whose details nothing here can read: a form alone has none."""
    found = content.get("format")
    if "form" in content and found not in UNREAD:
        raise ValueError(f"release: expected a format of tacit, got {shown(found)}")


def _check_codes(path: Path, release: EncodedCodes, *, decoded: bool) -> None:
    """Hold the codes of a file against the cells that its factor counts."""
    if not is_store(path):
        return
    if decoded:
        open_vectors("release", path)
        return
    if beside := uncertified(path):
        raise ValueError(
            f"release: the file contradicts itself: it holds {len(beside)} tensors, columns or "
            "entries of metadata beside the codes that it certifies"
        )
    found = open_vectors("release", path, integers=True)
    shape, kind = (release.rows, len(release.sizes)), code_type(release.sizes)
    if (found.count, found.width) != shape or any(
        part.dtype != kind or (part >= np.array(release.sizes)).any() for part in found.blocks()
    ):
        raise ValueError(
            "release: the file contradicts itself: its codes are not of the cells it certifies"
        )


def _check_derived(release: Release) -> None:
    """Refuse a success below what the information beside it gives, where that is its source.

    Without noise outcomes are counted, which may say less than any information does.
    """
    form, design = release.form, getattr(release, "design", None)
    if form.information is None or design is None or design.rank == 0:
        return
    for held in form.guarantees:
        if isinstance(held, SuccessBound) and DERIVED in held.source:
            least = success_from_information(form.information, held.prior)
            if held.success < least * (1.0 - ROUNDING):
                raise ValueError(
                    "release: the file contradicts itself, the information beside a success of "
                    f"{held.success:.6g} gives {least:.6g}"
                )


def _check_void(form: Form) -> None:
    void = any(line.startswith("VOID") for line in form.all_assumptions)
    if void and not form.reproducible:
        raise ValueError(
            "release: the file contradicts itself, an assumption says that its guarantee is void"
        )


def _check_numbers(release: Release) -> None:
    """Recompute what the details determine."""
    try:
        if isinstance(release, Audit):
            release.check()
        elif isinstance(release, ClassifierRelease):
            _check_information(release.guarantee, release.design.information)
        elif isinstance(release, StatisticRelease):
            _check_statistic(release)
        elif isinstance(release, NumbersRelease):
            check_promise(release)
    except ValueError as error:
        raise ValueError(f"release: the file contradicts itself: {error}") from None


def _check_information(guarantee: InformationBound, designed: float | None) -> None:
    if designed is not None and guarantee.nats < designed:
        raise ValueError(
            f"the noise was designed for {designed!r} nats, the guarantee says {guarantee.nats!r}"
        )


def _check_statistic(release: StatisticRelease) -> None:
    _check_information(release.guarantee, release.design.information)
    missing = [line for line in ASSUMPTIONS if line not in release.guarantee.assumptions]
    if missing:
        raise ValueError(f"{len(missing)} of the assumptions were removed")
    if release.seed is not None and not release.reproducible:
        raise ValueError("a seed is stored, and 'reproducible' is false")
    seen = release.diagnostics
    noise = (
        release.design.covariance.diagonal()
        if release.design.rank
        else np.zeros(len(release.names))
    )
    if not _close(noise, seen.noise_variance):
        raise ValueError("the covariance of the design is not the noise of the numbers")
    if not _close(seen.noise_variance.sum(), seen.principal_noise_variance.sum()):
        raise ValueError("the noise of the numbers is not that along the principal directions")
    if not _close(seen.output_variance.sum(), seen.principal_output_variance.sum()):
        raise ValueError("the variances of the outputs are not those along principal directions")
    if release.design.confidence is None and release.design.rank:
        # the spread is stored about a mean of K terms, whose rounding adds its square
        off = seen.candidates * EPS * np.abs(seen.output_mean)
        with np.errstate(over="ignore"):
            spread = np.maximum(seen.principal_output_variance - (off**2).sum(), 0.0)
        least = _least_information(spread, seen.principal_noise_variance)
        if release.guarantee.nats < least * (1 - ROUNDING) - ROUNDING:
            raise ValueError(
                f"this noise gives a bound of {least:.6g} nats or more, not "
                f"{release.guarantee.nats:.6g}"
            )


def _least_information(outputs: Any, noise: Any) -> float:
    """Return ½ Σ ln(1 + s_i/n_i): correlated noise of these variances gives no smaller bound."""
    heard = outputs > ROUNDING * max(float(outputs.max()), 0.0)
    if np.any(noise[heard] <= 0):
        return math.inf
    return 0.5 * float(np.log1p(outputs[heard] / noise[heard]).sum())


def _close(left: Any, right: Any) -> bool:
    return bool(np.allclose(left, right, rtol=1e-6, atol=0.0))
