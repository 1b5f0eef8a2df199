"""Codebooks on disk: safetensors with a header, nothing that runs when it is read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from tacit._ground.files import check_writable, write_bytes_atomic
from tacit.documents import dumps, loads
from tacit.hidden_states.codebooks.training import Predictor

FORMAT = "tacit-codebook-1"
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
    write_bytes_atomic("path", target, content)
    return target


def read_codebook(
    path: str | os.PathLike[str],
) -> tuple[dict[str, Tensor], Predictor | None, dict[str, Any]]:
    """Read what ``write_codebook`` wrote."""
    name = os.fspath(path)
    try:
        with safe_open(name, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ValueError(f"path: cannot read {name} ({error})") from None
    if header.get("format") != FORMAT or "codewords" not in tensors:
        raise ValueError(f"path: expected a codebook, got {name}")
    parts = {
        key.removeprefix(PREDICTOR): tensors.pop(key)
        for key in sorted(tensors)
        if key.startswith(PREDICTOR)
    }
    predictor = None
    if parts:
        hidden = int(parts["head.weight"].shape[1])
        predictor = Predictor(len(parts["mean"]), len(parts["head.bias"]), hidden)
        predictor.load_state_dict(parts)
        predictor = predictor.eval().requires_grad_(False)
    about: dict[str, Any] = loads(header["about"], name="path", source=name)
    return tensors, predictor, about
