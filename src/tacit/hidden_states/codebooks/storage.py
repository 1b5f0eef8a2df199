"""Codebooks on disk: safetensors with a header, nothing that runs when it is read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from tacit._ground.files import check_writable, write_bytes_atomic
from tacit._ground.headers import in_order
from tacit.documents import dumps, loads
from tacit.hidden_states.codebooks.training import Predictor

FORMAT = "tacit-codebook-1"
PRODUCT = "tacit-product-codebook-1"
TENSORS = ("codewords", "table", "centres", "root")
PREDICTOR = "predictor."


def write_codebook(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    predictor: Predictor | None,
    about: Mapping[str, Any],
) -> Path:
    """Write a codebook whole or not at all."""
    target = check_writable("path", path)
    kept = {name: value.contiguous() for name, value in tensors.items()}
    if predictor is not None:
        for name, value in predictor.state_dict().items():
            kept[PREDICTOR + name] = value.contiguous()
    content = save(kept, {"format": FORMAT, "about": dumps(dict(about), ascii_only=True)})
    write_bytes_atomic("path", target, in_order(content))
    return target


def read_codebook(
    path: str | os.PathLike[str],
) -> tuple[dict[str, Tensor], Predictor | None, dict[str, Any]]:
    """Read what ``write_codebook`` wrote."""
    tensors, header = _tensors(path)
    if header.get("format") != FORMAT or "codewords" not in tensors:
        raise ValueError(f"path: expected a codebook, got {os.fspath(path)}")
    parts = {
        key.removeprefix(PREDICTOR): tensors.pop(key)
        for key in sorted(tensors)
        if key.startswith(PREDICTOR)
    }
    if unknown := sorted(set(tensors) - set(TENSORS)):
        raise ValueError(f"path: {os.fspath(path)} has {len(unknown)} tensors of no codebook")
    predictor = None
    with malformed(path):
        if parts:
            hidden = int(parts["head.weight"].shape[1])
            predictor = Predictor(len(parts["mean"]), len(parts["head.bias"]), hidden)
            predictor.load_state_dict(parts)
            predictor = predictor.eval().requires_grad_(False)
        about = _about(header, path)
    return tensors, predictor, about


def write_parts(
    path: str | os.PathLike[str], parts: Sequence[Tensor], about: Mapping[str, Any]
) -> Path:
    """Write the centroids of a product of codebooks whole or not at all."""
    target = check_writable("path", path)
    tensors = {f"part.{place}": part.contiguous() for place, part in enumerate(parts)}
    content = save(tensors, {"format": PRODUCT, "about": dumps(dict(about), ascii_only=True)})
    write_bytes_atomic("path", target, in_order(content))
    return target


def read_parts(path: str | os.PathLike[str]) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    """Read what ``write_parts`` wrote."""
    tensors, header = _tensors(path)
    if header.get("format") != PRODUCT or not tensors:
        raise ValueError(f"path: expected a product of codebooks, got {os.fspath(path)}")
    with malformed(path):
        return tuple(tensors[f"part.{place}"] for place in range(len(tensors))), _about(
            header, path
        )


def _about(header: Mapping[str, str], path: str | os.PathLike[str]) -> dict[str, Any]:
    if set(header) != {"format", "about"}:
        raise ValueError("expected format and about in its header, got others")
    found = loads(header["about"], name="path", source=os.fspath(path))
    if not isinstance(found, dict):
        raise ValueError(f"expected an object, got {type(found).__name__}")
    return found


@contextmanager
def malformed(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say which file it is whose tensors or fields disagree, are missing or out of range."""
    try:
        yield
    except (KeyError, TypeError, IndexError, RuntimeError, AttributeError) as error:
        raise ValueError(
            f"path: a field of {os.fspath(path)} is missing or malformed: {error!r}"
        ) from None
    except ValueError as error:
        told = str(error).removeprefix("path: ")
        raise ValueError(f"path: {os.fspath(path)} is no codebook: {told}") from None


def format_of(path: str | os.PathLike[str]) -> str | None:
    """Return what a file of tensors says that it holds."""
    return _tensors(path)[1].get("format")


def _tensors(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    name = os.fspath(path)
    try:
        with safe_open(name, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            return tensors, file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise ValueError(f"path: cannot read {name} ({error})") from None
