"""A specification as it is stored and compared: one safetensors file with its manifest."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit._ground.checks import choice, integer
from tacit._ground.files import read_bytes, write_bytes_atomic
from tacit._ground.frozen import array_value
from tacit._ground.reprs import shown
from tacit.codec import leaf
from tacit.documents import Envelope, checked, dumps, loads
from tacit.guarantees import guarantee_from_dict
from tacit.guarantees.base import Guarantee

SpecificationKind: TypeAlias = Literal["model", "task"]
KINDS: tuple[SpecificationKind, ...] = ("model", "task")
ENVELOPE = Envelope("tacit.specification", 1)
MANIFEST = "tacit.specification"
# Where safetensors keeps text, so that no tensor has this name.
METADATA = "__metadata__"
# The header of a file is its manifest and one entry a layer: this many bytes hold thousands.
LONGEST_HEADER = 4 << 20
LENGTH = 8
LONGEST_INPUTS = 100


@dataclass(frozen=True, kw_only=True)
class SpecificationSpace:
    """What two specifications must share before their cosine means anything.

    Attributes:
        backbone: SHA-256 of the shared backbone's weights and form.
        layers: names of the layers whose change is described.
        shapes: (m_ℓ, r) of each factor; (m_ℓ, n_ℓ) in the full space.
        factor: identifier of A, the same for everyone who is to be found; "none" in the full space.
        subspace: digest of what is public and shapes the vector: scales, whitening, directions.
        output: identifier of the output map and of how labels are aligned, or of the objective
            that needs none.

    Example:
        >>> space = SpecificationSpace(
        ...     backbone="sha256:0", layers=("fc",), shapes=((4, 2),), factor="seed:7",
        ...     subspace="none", output="scatter",
        ... )
        >>> space.size
        8
    """

    backbone: str
    layers: tuple[str, ...]
    shapes: tuple[tuple[int, int], ...]
    factor: str
    subspace: str
    output: str

    def __post_init__(self) -> None:
        for name in ("backbone", "factor", "subspace", "output"):
            _text(name, getattr(self, name))
        layers = tuple(_text("layers", entry) for entry in _listed("layers", self.layers))
        shapes = tuple(_shape(entry) for entry in _listed("shapes", self.shapes))
        if not layers or len(set(layers)) < len(layers) or METADATA in layers:
            raise ValueError(f"layers: expected at least one, each once, none {METADATA!r}")
        if len(shapes) != len(layers):
            raise ValueError(f"shapes: expected {len(layers)}, one a layer, got {len(shapes)}")
        object.__setattr__(self, "layers", layers)
        object.__setattr__(self, "shapes", shapes)

    @property
    def size(self) -> int:
        """How many numbers a specification holds."""
        return sum(rows * columns for rows, columns in self.shapes)

    @property
    def digest(self) -> str:
        """SHA-256 of all fields: equal for those that may be compared, and for no others."""
        # sorted keys: one text for one space
        return _sha256(dumps(asdict(self), sort_keys=True).encode())

    def differences(self, other: SpecificationSpace) -> tuple[str, ...]:
        """Return the names of the fields in which another space differs."""
        return tuple(name for name in asdict(self) if getattr(self, name) != getattr(other, name))


@array_value(kw_only=True)
class Specification:
    """What a model can do or a task asks for, as factors of a shared backbone's change.

    Attributes:
        kind: ``"model"`` (outputs of a model as targets, Eq. 1) or ``"task"`` (labels, Eq. 2).
        space: what it may be compared within.
        factors: name of a layer to its float32 factor of that layer's shape.
        method: how it was made, such as ``"dp"`` or ``"compact"``.
        guarantees: what is certified, the headline first; none where nothing is.
        notes: what a reader should know, such as why nothing is certified.
        created: time of the draw, ISO 8601, UTC.
        classes: what the classes are called; none where that is not told.
        inputs: height and width of pictures, such as ``"28 × 28"``; empty of other records.

    Source: pave, Eq. 1 to 6.
    """

    kind: SpecificationKind
    space: SpecificationSpace
    factors: Mapping[str, NDArray[np.float32]]
    method: str
    guarantees: tuple[Guarantee, ...]
    created: str
    notes: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    inputs: str = ""
    _bytes: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        choice("kind", self.kind, KINDS)
        _text("method", self.method)
        _text("created", self.created)
        if not isinstance(self.space, SpecificationSpace):
            raise ValueError(f"space: expected a SpecificationSpace, got {shown(self.space)}")
        notes = tuple(_text("notes", line) for line in _listed("notes", self.notes))
        classes = tuple(_text("classes", name) for name in _listed("classes", self.classes))
        if len(set(classes)) < len(classes):
            raise ValueError("classes: expected every name once")
        if not isinstance(self.inputs, str) or len(self.inputs) > LONGEST_INPUTS:
            raise ValueError(f"inputs: expected at most {LONGEST_INPUTS} characters")
        for held in _listed("guarantees", self.guarantees):
            if not isinstance(held, Guarantee):
                raise ValueError(f"guarantees: expected guarantees, got {shown(held)}")
        if not isinstance(self.factors, Mapping):
            raise ValueError(f"factors: expected a mapping, got {shown(self.factors)}")
        if set(self.factors) != set(self.space.layers):
            given = shown(sorted(map(str, self.factors)))
            raise ValueError(f"factors: expected those of the layers of the space, got {given}")
        factors = {
            name: _factor(name, self.factors[name], shape)
            for name, shape in zip(self.space.layers, self.space.shapes, strict=True)
        }
        object.__setattr__(self, "notes", notes)
        object.__setattr__(self, "classes", classes)
        object.__setattr__(self, "guarantees", tuple(self.guarantees))
        object.__setattr__(self, "factors", MappingProxyType(factors))
        object.__setattr__(self, "_bytes", _written(self))

    @property
    def vector(self) -> NDArray[np.float32]:
        """All factors in the order of the layers, scaled to length 1; zero where nothing changed.

        Divided by the largest entry first, so that no square overflows.
        """
        joined = np.concatenate([held.ravel() for held in self.factors.values()]).astype(float)
        joined /= max(float(np.abs(joined).max()), np.finfo(float).tiny)
        return np.asarray(joined / max(float(np.linalg.norm(joined)), 1.0), dtype=np.float32)

    @property
    def revision(self) -> str:
        """SHA-256 of the file: the name of this content and of no other."""
        return _sha256(self._bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return specification_from_bytes, (self._bytes,)

    def to_bytes(self) -> bytes:
        """Return the safetensors file, the same bytes for the same content."""
        return self._bytes

    def to_dict(self) -> dict[str, Any]:
        """Return the file in base64, as strict JSON holds it."""
        return {"file": base64.b64encode(self._bytes).decode()}

    @staticmethod
    def from_dict(content: Any) -> Specification:
        """Return the specification that ``to_dict`` described.

        Raises:
            ValueError: it is no base64 of a file, or as ``specification_from_bytes``.
        """
        try:
            held = base64.b64decode(content["file"], validate=True)
        except (binascii.Error, TypeError, KeyError, ValueError):
            raise ValueError("file: expected base64 of a specification") from None
        return specification_from_bytes(held, name="file")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, whole or not at all.

        Raises:
            ValueError: it cannot be written.
        """
        write_bytes_atomic("path", path, self._bytes)

    def manifest(self) -> dict[str, Any]:
        """Return everything but the factors, JSON-able."""
        return ENVELOPE.closed(
            {
                "kind": self.kind,
                "space": asdict(self.space),
                "method": self.method,
                "guarantees": [held.to_dict() for held in self.guarantees],
                "notes": list(self.notes),
                "created": self.created,
                # left out where there are none, as files of before have it
                **({"classes": list(self.classes)} if self.classes else {}),
                **({"inputs": self.inputs} if self.inputs else {}),
            }
        )

    def cosine(self, other: Specification) -> float:
        """Return ⟨τ, τ'⟩ / (‖τ‖ ‖τ'‖) (Eq. 3), refused where it would mean nothing.

        Args:
            other: a specification of the same space.

        Raises:
            ValueError: the spaces differ; the message names in what. Or one has no direction.

        Source: pave, Eq. 3.
        """
        # numbers of other spaces have no angle
        check_comparable(self.space, other.space)
        # in double precision, the unit vectors' own rounding divided out
        left, right = self.vector.astype(float), other.vector.astype(float)
        if not left.any() or not right.any():
            raise ValueError("other: expected specifications that are not zero, got one that is")
        return float(np.clip(left @ right / np.linalg.norm(left) / np.linalg.norm(right), -1, 1))


leaf(Specification, Specification.from_dict)


def check_comparable(one: SpecificationSpace, other: SpecificationSpace) -> None:
    """Refuse two spaces in which a cosine means nothing.

    Raises:
        ValueError: names the fields that differ.
    """
    differing = one.differences(other)
    if differing:
        raise ValueError(
            f"other: expected a specification of the same space, got another {', '.join(differing)}"
        )


def read_specification(path: str | os.PathLike[str]) -> Specification:
    """Read the file that ``Specification.save`` wrote.

    Raises:
        ValueError: as ``specification_from_bytes``, or the file cannot be read.
    """
    return specification_from_bytes(read_bytes("path", path), name="path")


def specification_from_bytes(content: bytes, *, name: str = "content") -> Specification:
    """Return the specification of a file's bytes; nothing in them is ever run.

    Args:
        content: the whole file.
        name: what a ValueError calls it.

    Raises:
        ValueError: it is no safetensors file, truncated or longer than it says, without a manifest,
            or a field is missing, malformed, not finite or not as the manifest says.
    """
    header, start = _header(name, content)
    try:
        text = header[METADATA][MANIFEST]
    except (KeyError, TypeError):
        raise ValueError(f"{name}: expected a manifest named {MANIFEST!r} in the file") from None
    if not isinstance(text, str):
        raise ValueError(f"{name}: expected a manifest of text")
    manifest = loads(text, name=name, source="its manifest")
    try:
        fields = ENVELOPE.fields(name, manifest)
        found = checked(name, lambda: _read(fields, header, content[start:]))
    except ValueError as error:
        text = str(error)
        raise ValueError(text if text.startswith(f"{name}:") else f"{name}: {text}") from None
    if found.to_bytes() != content:
        raise ValueError(f"{name}: expected a file as Specification.save writes it, got another")
    return found


def _header(name: str, content: bytes) -> tuple[dict[str, Any], int]:
    # eight bytes say how long the header is; no more of it is read than there is
    length = int.from_bytes(content[:LENGTH], "little")
    if len(content) < LENGTH or not 2 <= length <= min(LONGEST_HEADER, len(content) - LENGTH):
        raise ValueError(f"{name}: expected a safetensors file, got another or a part of one")
    start = LENGTH + length
    header = loads(content[LENGTH:start], name=name, source="its header")
    if not isinstance(header, dict):
        raise ValueError(f"{name}: expected a safetensors file, got a header that is no object")
    return header, start


def _read(fields: dict[str, Any], header: dict[str, Any], data: bytes) -> Specification:
    space = SpecificationSpace(
        **{
            **fields["space"],
            "layers": tuple(fields["space"]["layers"]),
            "shapes": tuple(tuple(shape) for shape in fields["space"]["shapes"]),
        }
    )
    # float32 and nothing beside: a file has no room for more
    if len(data) != 4 * space.size:
        raise ValueError(f"expected {4 * space.size} bytes of factors, got {len(data)}")
    factors, at = {}, 0
    for layer, shape in zip(space.layers, space.shapes, strict=True):
        end = at + 4 * shape[0] * shape[1]
        # the header is what this writer writes, so bytes are read as what they are
        if header.get(layer) != _entry(shape, at, end):
            raise ValueError("expected every layer of the manifest as float32, in its order")
        factors[layer] = np.frombuffer(data[at:end], dtype="<f4").reshape(shape)
        at = end
    made = {name: value for name, value in fields.items() if name not in ("space", "guarantees")}
    guarantees = tuple(guarantee_from_dict(held) for held in fields["guarantees"])
    return Specification(**made, space=space, factors=factors, guarantees=guarantees)


def _written(held: Specification) -> bytes:
    """Return the file, byte for byte the same for the same content: a revision names it."""
    header: dict[str, Any] = {
        METADATA: {MANIFEST: dumps(held.manifest(), sort_keys=True, ascii_only=True)}
    }
    at = 0
    for layer, shape in zip(held.space.layers, held.space.shapes, strict=True):
        end = at + 4 * shape[0] * shape[1]
        header[layer] = _entry(shape, at, end)
        at = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=True).encode()
    # safetensors aligns what follows
    text += b" " * (-len(text) % LENGTH)
    if len(text) > LONGEST_HEADER:
        raise ValueError(f"space: expected a manifest of at most {LONGEST_HEADER} bytes")
    factors = [held.factors[layer].astype("<f4").tobytes() for layer in held.space.layers]
    return b"".join([len(text).to_bytes(LENGTH, "little"), text, *factors])


def _entry(shape: tuple[int, int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}


def _factor(name: str, value: Any, shape: tuple[int, int]) -> NDArray[np.float32]:
    try:
        found = np.array(value, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"factors: expected numbers for {shown(name)}") from None
    if found.shape != shape:
        raise ValueError(f"factors: expected shape {shape} for {shown(name)}, got {found.shape}")
    if not np.isfinite(found).all():
        raise ValueError(f"factors: expected finite numbers for {shown(name)}, got NaN or infinity")
    found.flags.writeable = False
    return found


def _shape(entry: Any) -> tuple[int, int]:
    pair = _listed("shapes", entry)
    if len(pair) != 2:
        raise ValueError(f"shapes: expected (rows, columns) of every layer, got {shown(entry)}")
    rows, columns = (integer("shapes", side, minimum=1) for side in pair)
    # by logarithms: the product of two large integers need not be formed
    if not math.log2(rows) + math.log2(columns) < 40:
        raise ValueError("shapes: expected factors of fewer than 2^40 numbers")
    return rows, columns


def _listed(name: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, (tuple, list)):
        raise ValueError(f"{name}: expected a tuple, got {shown(value)}")
    return tuple(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name}: expected text, got {shown(value)}")
    return value


def _sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
