"""What a run is, as a digest: the tensors, arrays, numbers and texts that decide it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor


def digest_of_tensors(named: Iterable[tuple[str, Tensor]]) -> str:
    """Return the SHA-256 of tensors in their order: names, types, shapes and values.

    Example:
        >>> digest_of_tensors([("bias", torch.zeros(2))])[:14]
        'sha256:ab97565'
    """
    found = hashlib.sha256()
    for name, value in named:
        # name, type, shape and bytes: tensors that differ in any of them differ here
        held = value.detach().cpu().contiguous()
        found.update(f"{name}:{held.dtype}:{tuple(held.shape)};".encode())
        # bytes by way of uint8, for NumPy has no bfloat16
        found.update(held.view(-1).view(torch.uint8).numpy().tobytes() if held.numel() else b"")
    return f"sha256:{found.hexdigest()}"


def digest_of_model(model: torch.nn.Module) -> str:
    """Return the SHA-256 of a state dict, in its own order."""
    return digest_of_tensors(model.state_dict().items())


def identity(*parts: Any) -> str:
    """Return the SHA-256 of what makes a run what it is, in any nesting.

    Tensors, arrays, frames and sparse matrices count by their values, sets in any order, all else
    by its ``repr``, which must say what it is.

    Example:
        >>> identity(np.zeros(2), "a", 3) == identity(np.zeros(2), "a", 4)
        False
    """
    found = hashlib.sha256()
    # each by what it is; nested values by the digest of theirs
    for part in parts:
        if isinstance(part, Tensor):
            found.update(digest_of_tensors([("", part)]).encode())
        elif isinstance(part, np.ndarray):
            # types count: 1 and 1.0 train differently
            held = np.ascontiguousarray(part)
            found.update(f"{held.dtype}{held.shape}".encode())
            # the bytes of an array of objects are addresses
            if held.dtype.hasobject:
                found.update(identity(*held.ravel().tolist()).encode())
            else:
                found.update(held.tobytes())
        elif isinstance(part, Mapping):
            found.update(identity(*(one for pair in part.items() for one in pair)).encode())
        elif isinstance(part, tuple | list):
            found.update(identity(*part).encode())
        elif isinstance(part, set | frozenset):
            found.update(identity(*sorted(identity(one) for one in part)).encode())
        elif hasattr(part, "tocoo"):
            sparse = part.tocoo()
            found.update(identity(sparse.shape, sparse.row, sparse.col, sparse.data).encode())
        elif hasattr(part, "__array__") and not isinstance(part, np.generic):
            # a frame's repr leaves out its middle
            names = [str(name) for name in getattr(part, "columns", ())]
            found.update(identity(names, np.asarray(part)).encode())
        else:
            found.update(f"{part!r};".encode())
    return f"sha256:{found.hexdigest()}"
