"""A secret rotation found from prompts whose releases are known, and releases that repeat."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit._ground.checks import in_interval, matrix
from tacit.attacks.alignment.alignment import Alignment
from tacit.attacks.exact.channels import STATE_ROUNDING, Codes


def align_pairs(states: Any, released: Any, *, tolerance: float = STATE_ROUNDING) -> Alignment:
    """Find a secret rotation on the span of states whose releases are known.

    ``min ‖H Qᵀ − Y‖_F`` over orthogonal Q, restricted to the span of the rows of H, outside of
    which pairs say nothing of Q. As many independent pairs as a state has numbers give all of Q up
    to rounding, and with it every other release of the store.

    Args:
        states: H, (n, d), states of prompts that the attacker knows.
        released: Y, (n, d), their releases.
        tolerance: singular values of H below this part of the largest count as zero.

    Returns:
        The alignment, of rank min(n, d) where states are in general position.

    Raises:
        ValueError: no pairs, shapes that differ, NaN, or states that are zero.

    Example:
        >>> source = np.random.default_rng(0)
        >>> secret = np.linalg.qr(source.normal(size=(4, 4)))[0]
        >>> known, other = source.normal(size=(4, 4)), source.normal(size=(2, 4))
        >>> found = align_pairs(known, known @ secret.T)
        >>> bool(np.allclose(found.undo(other @ secret.T), other))
        True

    Source: orthogonal Procrustes problem (Schönemann 1966).
    """
    rows = matrix("states", states)
    images = matrix("released", released, columns=rows.shape[1])
    if len(rows) != len(images) or not len(rows):
        raise ValueError(
            f"released: expected one for each of at least one state, got {len(images)} for "
            f"{len(rows)}"
        )
    least = in_interval("tolerance", tolerance, 0.0, 1.0, open_high=True)
    # their directions alone count, so that no product of entries over- or underflows
    rows, images = (part / (np.abs(part).max() or 1.0) for part in (rows, images))
    _, values, directions = np.linalg.svd(rows, full_matrices=False)
    rank = int((values > least * values[0]).sum())
    if rank == 0:
        raise ValueError("states: expected states that are not all zero, got zeros")
    span = directions[:rank].T
    left, _, right = np.linalg.svd((rows @ span).T @ images, full_matrices=False)
    pairs = f"{len(rows)} known pair{'s' if len(rows) > 1 else ''}"
    return Alignment(span @ left, right.T, pairs)


def linked_releases(released: Any) -> Codes:
    """Return a number for each release, the same for releases that are equal to the bit.

    A store that has one key gives one prompt one release: who knows nothing else still sees which
    prompts were stored twice.

    Args:
        released: (n, d).

    Returns:
        (n,) numbers from 0.

    Raises:
        ValueError: NaN, or another shape.

    Example:
        >>> linked_releases([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]).tolist()
        [0, 1, 0]
    """
    rows = matrix("released", released)
    found: Codes = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return found
