"""Canaries for the audit of one run: nearly orthogonal gradients, and scores of who was in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from tacit._ground.checks import (
    Array,
    RandomSource,
    as_float,
    generator,
    integer,
    matrix,
    plain,
    vector,
)

Integers = npt.NDArray[np.int64]


def random_images(
    count: int, shape: tuple[int, ...], classes: int, rng: RandomSource = None
) -> tuple[Array, Integers]:
    """Return canaries for an image classifier: noise N(0, 1) with random labels.

    Noise in many dimensions is nearly orthogonal to all else, and so are its gradients.

    Args:
        count: m >= 1.
        shape: of one image, such as (3, 32, 32), in the units the model is trained in, where the
            data has mean 0 and standard deviation 1 or nearly so.
        classes: number of labels, >= 2.
        rng: seed or generator; the operating system's when None.

    Returns:
        Images, (m,) and ``shape`` behind it, and (m,) labels.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> images, labels = random_images(10, (3, 8, 8), 10, rng=0)
        >>> images.shape, labels.shape
        ((10, 3, 8, 8), (10,))
    """
    total = integer("count", count, minimum=1)
    sizes = tuple(integer("shape", size, minimum=1) for size in shape)
    source = generator(rng)
    labels = source.integers(integer("classes", classes, minimum=2), size=total)
    return source.standard_normal((total, *sizes)), labels


def mislabelled(labels: ArrayLike, classes: int, rng: RandomSource = None) -> Integers:
    """Return a wrong label for every example, uniform on the others: canaries that look real.

    Args:
        labels: (m,) integers from 0 to classes − 1, the true ones.
        classes: number of labels, >= 2.
        rng: seed or generator; the operating system's when None.

    Returns:
        (m,) labels, none of them the true one.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> wrong = mislabelled([0, 1, 2, 2], 3, rng=0)
        >>> bool((wrong != [0, 1, 2, 2]).all())
        True
    """
    total = integer("classes", classes, minimum=2)
    true = np.asarray(plain(labels))
    if true.ndim != 1 or true.size == 0 or true.dtype.kind not in "iu":
        raise ValueError(
            f"labels: expected a vector of integers, got shape {true.shape} of type {true.dtype}"
        )
    if true.min() < 0 or true.max() >= total:
        raise ValueError(
            f"labels: expected integers in 0 … {total - 1}, got {true.min()} to {true.max()}"
        )
    moved: Integers = (true + generator(rng).integers(1, total, size=true.size)) % total
    return moved


def random_tokens(count: int, length: int, vocabulary: int, rng: RandomSource = None) -> Integers:
    """Return canaries for a token model: sequences of independent uniform tokens.

    Args:
        count: m >= 1.
        length: tokens of each, >= 1.
        vocabulary: number of tokens, >= 2.
        rng: seed or generator; the operating system's when None.

    Returns:
        (m, length) tokens, no two sequences the same.

    Raises:
        ValueError: a bad argument, or fewer than 2m such sequences exist.

    Example:
        >>> random_tokens(4, 16, 50_000, rng=0).shape
        (4, 16)
    """
    total = integer("count", count, minimum=1)
    width = integer("length", length, minimum=1)
    tokens = integer("vocabulary", vocabulary, minimum=2)
    if tokens**width < 2 * total:
        raise ValueError(
            f"count: expected at most half of the {tokens**width} sequences, got {total}"
        )
    source = generator(rng)
    drawn = source.integers(tokens, size=(total, width))
    while (repeated := _repeats(drawn)).size:
        drawn[repeated] = source.integers(tokens, size=(repeated.size, width))
    return drawn


def _repeats(rows: Integers) -> npt.NDArray[np.intp]:
    """Return the indices of rows that stand further up already."""
    first = np.unique(rows, axis=0, return_index=True)[1]
    return np.setdiff1d(np.arange(len(rows)), first)


def gradient_overlap(gradients: ArrayLike) -> float:
    """Return the largest |cosine| between the gradients of two canaries.

    The lower it is, the less one canary's coin hides in another's: the audit is sound whatever it
    is, and powerful where it is near 0.

    Args:
        gradients: (m, p), m >= 2, none of them zero.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> gradient_overlap([[1.0, 0.0], [0.0, 2.0]])
        0.0
    """
    rows = matrix("gradients", gradients)
    if len(rows) < 2:
        raise ValueError(f"gradients: expected at least 2 rows, got {len(rows)}")
    largest = np.abs(rows).max(axis=1, keepdims=True)
    if not largest.all():
        raise ValueError(f"gradients: row {int(np.flatnonzero(largest == 0)[0])} is zero")
    units = rows / largest
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    cosines = np.abs(units @ units.T)
    np.fill_diagonal(cosines, 0.0)
    return float(min(cosines.max(), 1.0))


def white_box_scores(gradients: Any, updates: Iterable[ArrayLike], *, weight: float = 0.0) -> Array:
    """Score canaries by how far the released updates lean to their gradients.

    ``s_i = Σ_t ⟨g_ti, u_t⟩ − w ‖g_ti‖²/2``. Where the update is the sum of the gradients of what
    is in, each times w, and of isotropic noise, this orders canaries of any length by likelihood;
    at w = 0 it is the inner product alone. For noise of covariance Σ pass Σ⁻¹ᐟ² times both.

    Args:
        gradients: (m, p), the same in every round; or an iterable of such, one for each round, at
            the parameters that the round began with.
        updates: u_t, (p,) each, the noisy gradients that were released; of a change of the
            parameters its negative.
        weight: w, that of one example in the update, such as 1/B.

    Returns:
        (m,) scores, higher for canaries that look in.

    Raises:
        ValueError: a bad argument, no update, or rounds that differ in number.

    Example:
        >>> gradients = np.eye(3)
        >>> white_box_scores(gradients, [[0.9, 0.1, 0.0], [1.1, -0.2, 0.1]]).round(1).tolist()
        [2.0, -0.1, 0.1]

    Source: Steinke, Nasr and Jagielski (2023), Sec. 6.
    """
    factor = as_float("weight", weight)
    fixed = matrix("gradients", gradients) if _is_matrix(gradients) else None
    rounds = None if fixed is not None else iter(gradients)
    scores: Array | None = None
    for update in updates:
        rows = fixed if fixed is not None else _next(rounds)
        gain = rows @ vector("updates", update, size=rows.shape[1])
        gain -= 0.5 * factor * np.einsum("ij,ij->i", rows, rows)
        if scores is not None and gain.shape != scores.shape:
            raise ValueError(f"gradients: expected {scores.size} rows, got {gain.size}")
        scores = gain if scores is None else scores + gain
    if scores is None:
        raise ValueError("updates: expected at least one update, got none")
    if rounds is not None and next(rounds, None) is not None:
        raise ValueError("gradients: expected as many rounds as updates, got more")
    return scores


def _is_matrix(values: Any) -> bool:
    if hasattr(values, "ndim"):
        return int(values.ndim) == 2
    return isinstance(values, (list, tuple)) and np.ndim(values[0] if values else 0.0) == 1


def _next(rounds: Any) -> Array:
    found = next(rounds, None)
    if found is None:
        raise ValueError("gradients: expected as many rounds as updates, got fewer")
    return matrix("gradients", found)


def black_box_scores(final: ArrayLike, initial: ArrayLike | None = None) -> Array:
    """Score canaries by their loss under the trained model, ``−ℓ_i``, or by how much it fell.

    Args:
        final: (m,) losses under the released model.
        initial: (m,) losses before training, or under a model that saw no canary; the score is
            then ``initial − final``, which takes out how hard each canary is.

    Returns:
        (m,) scores, higher for canaries that look in.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> black_box_scores([0.5, 2.0], [2.5, 2.5]).tolist()
        [2.0, 0.5]

    Source: Steinke, Nasr and Jagielski (2023), Sec. 6.
    """
    after = vector("final", final)
    if initial is None:
        return -after
    return vector("initial", initial, size=after.size) - after
