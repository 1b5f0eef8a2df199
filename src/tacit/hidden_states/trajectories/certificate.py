"""What codes of all positions tell, where every position has a number of codes of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import integer
from tacit.attacks.exact.channels import as_array
from tacit.hidden_states.codebooks.certificates import CodeCertificate, certify
from tacit.models.padding import PADDING


def certify_trajectory(
    codes: ArrayLike, sizes: Sequence[Any], *, weights: ArrayLike | None = None
) -> CodeCertificate:
    """Bound what the codes of T positions tell about a prompt, C_t of them at position t.

    For every prompt of T positions and every prior they multiply the chance of a right guess by at
    most ``Π_t C_t``; where prompts of the bank differ in length, for every prompt of at most T, by
    ``Π_t (C_t + 1)``. Where shorter prompts are served too, the bank holds one. Of N equally likely
    prompts of a bank nobody names one right more often than there are different sequences of codes,
    over N: the joint count, which is at most the product.

    Args:
        codes: of every prompt of the bank, (N, T), or (N, T, m) where m numbers are kept of a
            position; −1 before those of a shorter prompt, whose length is then told too.
        sizes: C_t of every position, T integers >= 1, or for each position m of them.
        weights: (N,) probabilities up to a factor; uniform when None.

    Returns:
        The bounds, rounded up.

    Raises:
        ValueError: sizes of another number of positions, codes of another shape or outside
            0 … C_t − 1, or a prior that is not one.

    Example:
        >>> found = certify_trajectory([[0, 1], [0, 2], [1, 0], [1, 2]], sizes=[2, 3])
        >>> found.leakage.factor, found.occupied, found.success.success
        (6.0, 4, 1.0)
        >>> certify_trajectory([[0, 0], [0, 1], [1, 0], [0, 1]], sizes=[2, 3]).success.success
        0.75

    Source: Issa, Wagner and Kamath (2020), Theorem 1; Bayes' rule for a deterministic release.
    """
    held = as_array("codes", codes)
    if held.ndim not in (2, 3) or held.dtype.kind not in "iu" or held.size == 0:
        raise ValueError(
            f"codes: expected integers (N, T) or (N, T, m), got {held.dtype} of shape {held.shape}"
        )
    rows = held if held.ndim == 3 else held[:, :, None]
    known = _sizes(sizes, rows.shape[1], rows.shape[2])
    padded = (rows == PADDING).all(axis=2)
    outside = ((rows < 0) | (rows >= np.array(known, dtype=object))).any(axis=2)
    if (~padded & outside).any():
        raise ValueError("codes: expected integers below the number of codes there are")
    # a position's codes as one number: which of those that occur there it is
    named = [np.unique(rows[:, at], axis=0, return_inverse=True)[1] for at in range(len(known))]
    # where lengths differ, no code is one more
    told = int(padded.any())
    return certify(
        np.stack([column.reshape(-1) for column in named], axis=1),
        [math.prod(position) + told for position in known],
        weights=weights,
    )


def _sizes(sizes: Any, length: int, parts: int) -> list[list[int]]:
    """Return the numbers of codes of every position, one for each number that is kept of it."""
    if isinstance(sizes, (str, bytes)) or not isinstance(sizes, (Sequence, np.ndarray)):
        raise ValueError(
            f"sizes: expected a number of codes of every position, got {type(sizes).__name__}"
        )
    if len(sizes) != length:
        raise ValueError(f"sizes: expected those of {length} positions, got {len(sizes)}")
    found = [
        [
            integer("sizes", one, minimum=1, maximum=None)
            for one in (each if isinstance(each, (Sequence, np.ndarray)) else [each])
        ]
        for each in sizes
    ]
    if wrong := [each for each in found if len(each) != parts]:
        raise ValueError(f"sizes: expected {parts} of every position, got {len(wrong[0])}")
    return found
