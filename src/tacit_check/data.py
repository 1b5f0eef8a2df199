"""The holder's data: what a file takes as given, computed from the file that its digest names."""

from __future__ import annotations

from typing import Any

from tacit_check.balls import RefusedFileError
from tacit_check.reading import Proof


def measure(proof: Proof, path: str) -> dict[str, Any]:
    """Return the numbers of a file of data, by its digest."""
    raise RefusedFileError(f"data of {path!r} is not read yet by this {proof.adjacency!r} checker")
