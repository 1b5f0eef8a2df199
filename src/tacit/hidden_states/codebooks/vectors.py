"""Codes of vectors alone, of whatever kind is asked for: one way in, for all who fit."""

from __future__ import annotations

from numpy.typing import ArrayLike

from tacit._ground.checks import RandomSource
from tacit.hidden_states.codebooks.codebook import Codebook
from tacit.hidden_states.codebooks.codec import Codec
from tacit.hidden_states.codebooks.methods import CodebookFit, ProductFit, ResidualFit, VectorFit
from tacit.hidden_states.codebooks.product import ProductCodebook
from tacit.hidden_states.codebooks.residual import ResidualCodebook


def fit_vectors(
    vectors: ArrayLike,
    how: VectorFit,
    *,
    rng: RandomSource = None,
    progress: bool | None = None,
) -> Codec:
    """Fit a codebook on public vectors: whole, in parts, or in stages that are summed.

    Args:
        vectors: (n, d), public, disjoint from what is released.
        how: parts or stages, and codewords of each.
        rng: source of the choices.
        progress: whether a bar is shown; None for when stderr is a terminal.

    Returns:
        A ``ResidualCodebook`` of two stages or more, a ``ProductCodebook`` of two parts or more, a
        ``Codebook`` otherwise.

    Raises:
        ValueError: vectors that are not finite, or fewer than codewords or a least cell.

    Example:
        >>> import numpy as np
        >>> rows = np.random.default_rng(0).normal(size=(900, 6)).astype(np.float32)
        >>> fit_vectors(rows, VectorFit(size=8, stages=2), rng=0).sizes
        (8, 8)
    """
    if how.stages > 1:
        residual = ResidualFit(
            stages=how.stages, size=how.size, least_cell=how.least_cell, beam=how.beam
        )
        return ResidualCodebook.fit(vectors, residual, rng=rng, progress=progress)
    if how.parts > 1:
        product = ProductFit(parts=how.parts, size=how.size, least_cell=how.least_cell)
        return ProductCodebook.fit(vectors, product, rng=rng, progress=progress)
    whole = CodebookFit(size=how.size, least_cell=how.least_cell)
    return Codebook.fit(vectors, whole, rng=rng, progress=progress)
