"""What the file of a codebook tells about the prompts it was fitted on, as a measurement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from tacit._ground.checks import Array, RandomSource
from tacit.attacks.membership.roc import RocSummary, roc
from tacit.hidden_states.codebooks.clustering import nearest
from tacit.hidden_states.codebooks.codec import Codec
from tacit.models.behaviours import as_states


@dataclass(frozen=True, kw_only=True)
class CalibrationMembership:
    """How well the nearest codeword tells calibration prompts from fresh ones: evidence.

    Attributes:
        roc: of the guess "fitted on it" where the nearest codeword is near.
        exact: calibration states that a codeword repeats to the bit.
        fresh_exact: fresh states that a codeword repeats to the bit.
    """

    roc: RocSummary
    exact: int
    fresh_exact: int


def calibration_membership(
    book: Codec,
    calibration: ArrayLike,
    fresh: ArrayLike,
    *,
    confidence: float = 0.95,
    rng: RandomSource = None,
) -> CalibrationMembership:
    """Measure whether a codebook's file tells the states it was fitted on from fresh ones.

    The attacker holds the file and a state, and guesses by ``−min_c ‖h − codeword_c‖²``.

    Args:
        book: the codebook.
        calibration: (n, d) states it was fitted on.
        fresh: (m, d) states of other prompts of the same law.
        confidence: of each interval.
        rng: splits the scores, as for ``tacit.attacks.roc``.

    Returns:
        The area under the ROC curve with its interval, and exact matches.

    Raises:
        ValueError: states of another width, or fewer than four of a kind.

    Example:
        >>> from tacit.hidden_states import Codebook, CodebookFit
        >>> rows = torch.randn(1000, 4, generator=torch.Generator().manual_seed(0))
        >>> book = Codebook.fit(rows[:500], CodebookFit(size=8), rng=0)
        >>> found = calibration_membership(book, rows[:500], rows[500:], rng=0)
        >>> found.exact, 0.45 < found.roc.auc < 0.6
        (0, True)
    """
    # the attacker's score is −min_c ‖h − c‖²: near a codeword, so fitted on
    inside, outside = _distances(book, calibration), _distances(book, fresh)
    scores = -np.concatenate([inside, outside])
    members = np.arange(len(scores)) < len(inside)
    return CalibrationMembership(
        roc=roc(scores, members, confidence=confidence, fpr=(0.01,), rng=rng),
        exact=_repeated(book, calibration),
        fresh_exact=_repeated(book, fresh),
    )


def _parts(book: Codec, states: ArrayLike) -> list[tuple[Tensor, Tensor]]:
    """Return the numbers that each part codes, (n, d_j), beside the nearest that codes give."""
    rows = as_states("states", states, width=book.width)
    if book.summed:
        # codewords that are summed stand for a vector as a whole
        return [(rows, book.decode(book.encode(rows)))]
    blocks = torch.split(rows, [int(part.shape[1]) for part in book.centroids], dim=1)
    return [
        (block, part[nearest(block.contiguous(), part)[0]])
        for block, part in zip(blocks, book.centroids, strict=True)
    ]


def _distances(book: Codec, states: ArrayLike) -> Array:
    """Return ``min_c ‖h − codeword_c‖²``, which is a sum over parts, (n,)."""
    total = torch.zeros(len(as_states("states", states, width=book.width)), dtype=torch.float64)
    for block, best in _parts(book, states):
        # the difference itself in float64: ‖h‖² − 2h·c + ‖c‖² would cancel near a codeword
        total += ((block.double() - best.double()) ** 2).sum(dim=1)
    return total.numpy()


def _repeated(book: Codec, states: ArrayLike) -> int:
    """States of which a whole codeword, or the centroid of a part, is a copy."""
    copied: Any = False
    for block, best in _parts(book, states):
        # to the bit, in the float32 of the file
        copied = copied | (block == best).all(dim=1).numpy()
    return int(copied.sum())
