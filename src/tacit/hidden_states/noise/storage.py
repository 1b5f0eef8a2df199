"""Noisy states on disk: safetensors with their design, guarantee and origin in its header."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load as from_safetensors
from safetensors.numpy import save as to_safetensors

from tacit._ground.checks import matrix
from tacit._ground.files import check_writable, read_bytes, write_bytes_atomic
from tacit.design import Design
from tacit.documents import check_known, dumps, loads
from tacit.guarantees import RenyiDP
from tacit.guarantees.reading import guarantee_of
from tacit.hidden_states.origin import origin_from
from tacit.releases.form import Form

if TYPE_CHECKING:
    from tacit.hidden_states.noise.release import HiddenRelease

FORMAT = "tacit.hidden_states"
FORMAT_VERSION = 1
STATES = "states"
PART = "covariance."
FROM_SYSTEM = "the noise is the operating system's"
REPRODUCIBLE = (
    "VOID: a seed or generator was given, so whoever knows it can take the noise off; the bound "
    "describes the same release with the operating system's randomness"
)

CLAIMED = (
    "Claimed, not checked: the differences that ε is about are not in the file, so that whoever "
    "reads it cannot work ε out again."
)
# between orders of the Rényi divergence of one Gaussian shift, which is linear in the order
LINEAR = 1e-6

# what is written of every release, and what of a covariance is no tensor
WRITTEN = ("format", "version", "reproducible", "seed", "created", "tensor", "digest")
SCALARS = ("type", "variance", "dim", "floor", "lower")
# what of a design is not written
UNSAVED = {"multipliers": (), "iterations": 0, "information": None, "confidence": None}


def write_states(path: str | os.PathLike[str], release: HiddenRelease) -> None:
    """Write a release whole or not at all; nothing clean is in the file."""
    target = check_writable("path", path)
    design = release.design
    description = design.covariance.to_dict()
    arrays = {
        name: np.asarray(value, dtype=np.float64)
        for name, value in description.items()
        if isinstance(value, list)
    }
    metadata: dict[str, Any] = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "covariance": {k: v for k, v in description.items() if k not in arrays},
        "design": {
            "cost": design.cost,
            "gap": None if math.isnan(design.gap) else design.gap,
            "method": design.method,
            "notes": list(design.notes),
        },
        "guarantee": None if release.guarantee is None else release.guarantee.to_dict(),
        "reproducible": release.reproducible,
        "seed": release.seed,
        "created": release.created,
    }
    # what was measured with the clean states stays with their holder
    published = replace(release, utility=None).form
    metadata |= {"tensor": STATES, "digest": release.digest, "form": published.to_dict()}
    if release.origin is not None:
        metadata["origin"] = release.origin.to_dict()
    tensors: dict[str, npt.NDArray[Any]] = {STATES: release.states}
    tensors.update({PART + name: part for name, part in arrays.items()})
    content = to_safetensors(tensors, {"tacit": dumps(metadata, ascii_only=True)})
    write_bytes_atomic("path", target, content)


def read_states(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the fields of the release that ``write_states`` wrote.

    Raises:
        ValueError: no such file, or not a release of hidden states.
    """
    name, content = os.fspath(path), read_bytes("path", path)
    try:
        size = int.from_bytes(content[:8], "little")
        metadata = loads(content[8 : 8 + size])["__metadata__"]
        described = loads(metadata["tacit"])
        parts = from_safetensors(content)
    except (SafetensorError, ValueError, KeyError, TypeError):
        raise ValueError(f"path: expected a release of hidden states, got {name}") from None
    if described.get("format") != FORMAT or described.get("version") != FORMAT_VERSION:
        raise ValueError(
            f"path: expected format {FORMAT!r} of version {FORMAT_VERSION}, got "
            f"{described.get('format')!r} of version {described.get('version')!r}"
        )
    try:
        check_described(described)
        return _fields(described, parts)
    except (KeyError, TypeError) as error:
        raise ValueError(f"path: a field is missing or malformed: {error!r}") from None


def check_described(described: Mapping[str, Any]) -> None:
    """Refuse a certificate with a field that ``write_states`` does not write.

    Raises:
        ValueError: a field is unknown; the message says in what it stands.
    """
    origin = origin_from(described.get("origin"))
    held = described.get("guarantee")
    check_known(
        "release",
        described,
        {
            **dict.fromkeys(WRITTEN),
            "covariance": dict.fromkeys(SCALARS),
            "design": dict.fromkeys(("cost", "gap", "method", "notes")),
            "guarantee": held and guarantee_of(RenyiDP, "guarantee", held).to_dict(),
            "form": Form.from_dict(described["form"]).to_dict(),
            "origin": None if origin is None else origin.to_dict(),
        },
    )
    _check_claim(described)


def _check_claim(described: Mapping[str, Any]) -> None:
    """Refuse a guarantee that stands twice, or that no Gaussian noise has."""
    held = described.get("guarantee")
    if described["form"]["guarantees"] != ([] if held is None else [held]):
        raise ValueError("release: the file contradicts itself, its form guarantees other things")
    if held is None:
        return
    guarantee = guarantee_of(RenyiDP, "guarantee", held)
    told = [
        nats / order
        for order, nats in zip(guarantee.orders, guarantee.epsilons, strict=True)
        if math.isfinite(nats)
    ]
    # D_α(N(m, Σ) ‖ N(0, Σ)) = α/2 mᵀ Σ⁻¹ m
    if told and max(told) > min(told) * (1.0 + LINEAR):
        raise ValueError("release: the file contradicts itself, no Gaussian noise has these ε")
    if told and described["covariance"].get("variance", 1.0) == 0.0:
        raise ValueError(BARE)


BARE = "release: the file contradicts itself, it holds no noise and claims a finite ε"


def _fields(described: Mapping[str, Any], parts: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
    strange = [name for name in parts if name != STATES and not name.startswith(PART)]
    if strange:
        raise ValueError(f"path: expected the states and their Σ, got {len(strange)} other tensors")
    arrays = {name.removeprefix(PART): part for name, part in parts.items() if name != STATES}
    kept, held = described["design"], described["guarantee"]
    states = parts[STATES]
    matrix("states", states)
    if hashlib.sha256(np.ascontiguousarray(states).tobytes()).hexdigest() != described["digest"]:
        raise ValueError("path: the rows are not those that were certified (SHA-256)")
    design = Design.from_dict(
        {**UNSAVED, **kept, "covariance": {**described["covariance"], **arrays}}
    )
    guarantee = None if held is None else guarantee_of(RenyiDP, "guarantee", held)
    if guarantee is not None and design.rank == 0 and min(guarantee.epsilons) < math.inf:
        raise ValueError(BARE)
    return {
        "states": states.astype(np.float32, copy=False),
        "design": design,
        "guarantee": guarantee,
        "utility": None,
        "reproducible": described["reproducible"],
        "seed": described["seed"],
        "created": described["created"],
        "origin": origin_from(described.get("origin")),
    }
