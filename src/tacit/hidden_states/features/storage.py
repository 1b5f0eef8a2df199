"""Transcoders on disk: safetensors, Tacit's own or another's, told apart by names and shapes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from tacit._ground.files import check_writable, spelled, write_bytes_atomic
from tacit._ground.headers import in_order
from tacit.documents import dumps, loads

FORMAT = "tacit-transcoder-1"
NAMES = {
    "W_enc": ("W_enc", "w_enc", "encoder.weight"),
    "b_enc": ("b_enc", "encoder.bias"),
    "W_dec": ("W_dec", "w_dec", "decoder.weight"),
    "b_dec": ("b_dec", "decoder.bias"),
    "threshold": ("threshold",),
}
# a linear layer of torch has a row for every output
LINEAR = {"encoder.weight": False, "decoder.weight": True}
FIELDS = ("activation", "top_k", "reads", "trained")


def write_transcoder(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], about: Mapping[str, Any]
) -> Path:
    """Write tensors with their header whole or not at all."""
    target = check_writable("path", path)
    header = {"format": FORMAT, "about": dumps(dict(about), ascii_only=True)}
    held = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in tensors.items()
    }
    write_bytes_atomic("path", target, in_order(save(held, header)))
    return target


def read_transcoder(
    path: str | os.PathLike[str],
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors by Tacit's names, a row of each matrix a feature, and what the header says."""
    name = spelled("path", path)
    try:
        with safe_open(name, framework="pt") as file:
            stored = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            header = file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise ValueError(f"path: cannot read {name} ({error})") from None
    found, names = {}, {}
    for own, others in NAMES.items():
        held = next((other for other in others if other in stored), None)
        if held is not None:
            found[own], names[own] = stored[held].float(), held
        elif own != "threshold":
            raise ValueError(
                f"path: expected a tensor {' or '.join(others)} in {name}, got {sorted(stored)}"
            )
    for own, value in found.items():
        wanted = 2 if own.startswith("W_") else 1
        if value.ndim != wanted:
            raise ValueError(
                f"path: expected {names[own]} of {wanted} dimensions in {name}, got shape "
                f"{tuple(value.shape)}"
            )
    if header.get("format") == FORMAT:
        if set(header) != {"format", "about"} or set(stored) != set(names.values()):
            raise ValueError(f"path: expected tensors and header of a transcoder alone in {name}")
        about = loads(header.get("about", ""), name="path", source=name)
        if not isinstance(about, dict) or set(about) != set(FIELDS):
            raise ValueError(f"path: expected the fields {FIELDS} in the header of {name}")
        return found, about
    for matrix, bias in (("W_enc", "b_enc"), ("W_dec", "b_dec")):
        features, width = len(found["b_enc"]), len(found[bias])
        turned = LINEAR.get(names[matrix])
        found[matrix] = _oriented(
            names[matrix], found[matrix], features, None if bias == "b_enc" else width, turned
        )
    return found, {}


def _oriented(
    name: str, value: Tensor, features: int, width: int | None, turned: bool | None
) -> Tensor:
    """Return a matrix with a row for every feature."""
    if value.ndim != 2 or features not in value.shape:
        raise ValueError(
            f"path: expected {name} with {features} features on a side, got {tuple(value.shape)}"
        )
    stands = value.shape[0] == features and width in (None, value.shape[1])
    lies = value.shape[1] == features and width in (None, value.shape[0])
    if stands and lies and turned is None:
        raise ValueError(
            f"path: expected {name} of a shape that tells features from numbers, got "
            f"{tuple(value.shape)}; name it encoder.weight or decoder.weight, as torch's Linear"
        )
    if not stands and not lies:
        raise ValueError(f"path: expected {name} to fit its biases, got {tuple(value.shape)}")
    upright = stands if not (stands and lies) else not turned
    return (value if upright else value.T).contiguous()
