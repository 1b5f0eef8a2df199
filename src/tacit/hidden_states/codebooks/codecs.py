"""What codes are made with, a codebook or a product of them: read, assigned, stored small."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from tacit.hidden_states.codebooks.certificates import Codes
from tacit.hidden_states.codebooks.codebook import Codebook
from tacit.hidden_states.codebooks.product import ProductCodebook
from tacit.hidden_states.codebooks.storage import PRODUCT, format_of
from tacit.hidden_states.codebooks.vectors import Vectors
from tacit.hidden_states.quotient.storage import FORMAT as QUOTIENT

Codec = Codebook | ProductCodebook


def load_codec(path: str | os.PathLike[str]) -> Codec:
    """Read a codebook or a product of codebooks.

    Raises:
        ValueError: no such file, or neither of the two.
    """
    held = format_of(path)
    if held == QUOTIENT:
        raise ValueError(
            f"path: {os.fspath(path)} is a quotient, not a codebook; what it released is attacked "
            "by tacit hidden attack RELEASED --fitted QUOTIENT --prompts FILE"
        )
    return ProductCodebook.load(path) if held == PRODUCT else Codebook.load(path)


def sha256_of(blocks: Iterable[Vectors]) -> str:
    """Return the SHA-256 of rows in order."""
    found = hashlib.sha256()
    for part in blocks:
        found.update(np.ascontiguousarray(part).tobytes())
    return found.hexdigest()


def codes_of_states(codec: Codec, states: Any) -> Codes:
    """Return the codes of states alone, (n, m).

    By the nearest centre, or by the predictor where behaviours decide and one was fitted.

    Raises:
        ValueError: a codebook of behaviours without a predictor, or states it was not made for.
    """
    if isinstance(codec, ProductCodebook):
        return codec.assign(states)
    if codec.centres is not None:
        return codec.assign(states)[:, None]
    if codec.predictor is None:
        raise ValueError(
            f"codebook: one of metric {codec.metric!r} without a predictor needs the model's "
            "prediction: give prompts, or a codebook of metric 'euclidean' or 'fisher'"
        )
    return codec.predict(states)[:, None]
