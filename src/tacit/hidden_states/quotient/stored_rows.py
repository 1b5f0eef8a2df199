"""Released rows read back from safetensors with what is certified of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as from_safetensors

from tacit._ground.checks import Array, matrix
from tacit._ground.files import read_bytes
from tacit.documents import loads


def read_rows(
    path: str | os.PathLike[str], tensor: str, expected: str
) -> tuple[Mapping[str, Any], Array]:
    """Return the certificate of a file and its rows of float64.

    Raises:
        ValueError: no such file, or not a release of the format expected.
    """
    name, content = os.fspath(path), read_bytes("path", path)
    try:
        size = int.from_bytes(content[:8], "little")
        described = loads(loads(content[8 : 8 + size])["__metadata__"]["tacit"])
        parts = from_safetensors(content)
        rows = parts[tensor]
    except (SafetensorError, ValueError, KeyError, TypeError):
        raise ValueError(f"path: expected a release of {expected}, got {name}") from None
    if set(parts) != {tensor} or rows.dtype != np.float64 or not isinstance(described, Mapping):
        raise ValueError(f"path: expected a release of {expected} alone, got {name}")
    return described, matrix("path", rows)
