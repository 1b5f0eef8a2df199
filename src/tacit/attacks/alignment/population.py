"""A secret rotation found without a pair: a public population and the store are laid together."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit._ground.checks import Array, in_interval, integer, matrix
from tacit.attacks.alignment.alignment import Alignment
from tacit.attacks.alignment.pairs import align_pairs

ROWS_TOGETHER = 1024
GAME = "no pair, a public population"


def align_population(
    public: Any, released: Any, *, rounds: int = 4, kept: float = 0.5
) -> Alignment:
    """Find a secret rotation from states of other prompts and from releases of unknown ones.

    Axes of the two covariances match in the order of their variance, each with the sign that makes
    means and skewness agree: with c the mean along an axis, s the skewness and λ the variance, that
    of ``c c'/λ + s s'/6``. Nearest neighbours along the first two axes are then taken for pairs and
    the rotation is fitted to the closest of them; then along the first four, eight, to all d; or
    along all d at once. Of the three the one is kept that brings the store nearest to the public.

    Args:
        public: states of prompts of the same kind, (m, d), m > d.
        released: (n, d), n > d, of prompts that need not be among the public ones.
        rounds: refinements along each number of axes; 0 leaves the first guess.
        kept: share of pairs, the closest, that a refinement is fitted to, in (0, 1].

    Returns:
        The alignment, always of rank d: a guess, which is exact only where the store says enough.

    Raises:
        ValueError: NaN, other shapes, or fewer rows than numbers in a state.

    Example:
        >>> source = np.random.default_rng(0)
        >>> scales = np.array([1.0, 2.0, 4.0])
        >>> public, store = (source.exponential(size=(2000, 3)) * scales for _ in range(2))
        >>> secret = np.linalg.qr(source.normal(size=(3, 3)))[0]
        >>> found = align_population(public, store @ secret.T)
        >>> bool(np.abs(found.undo(store @ secret.T) - store).mean() < 0.2)
        True

    Source: iterated closest points (Besl and McKay 1992), trimmed (Chetverikov et al. 2002);
    Wasserstein–Procrustes (Grave, Joulin and Berthet 2019), from coarse to fine.
    """
    rows = matrix("public", public)
    images = matrix("released", released, columns=rows.shape[1])
    for name, given in (("public", rows), ("released", images)):
        if len(given) <= rows.shape[1]:
            raise ValueError(f"{name}: expected more rows than {rows.shape[1]}, got {len(given)}")
        if not np.abs(given).max():
            raise ValueError(f"{name}: expected some that are not zero, got zeros")
    # one scale for both changes no rotation, and no square over- or underflows
    largest = float(np.abs(rows).max())
    rows, images = rows / largest, images / largest
    most = integer("rounds", rounds, minimum=0)
    share = in_interval("kept", kept, 0.0, 1.0, open_low=True)
    count = max(rows.shape[1], int(share * len(images)))
    start = _moments(rows, images)
    tried = [start] + [
        _refined(start, rows, images, leading, most, count)
        for leading in (_leading(rows.shape[1]), [rows.shape[1]])
        if most
    ]
    found = min(tried, key=lambda each: _closest(rows, each.undo(images), count)[2])
    return Alignment(found.states, found.releases, GAME)


def _refined(
    start: Alignment, public: Array, released: Array, leading: list[int], rounds: int, count: int
) -> Alignment:
    """Fit to nearest neighbours along more and more of the axes."""
    found = start
    for size in leading:
        view = start.states[:, :size]
        for _ in range(rounds):
            closest, among, _ = _closest(public @ view, found.undo(released) @ view, count)
            later = align_pairs(public[among], released[closest], tolerance=0.0)
            if later.rank < start.dim:
                break
            found = later
    return found


def _moments(public: Array, released: Array) -> Alignment:
    """Axes by variance, signs by the mean and the skewness along each."""
    (axes, along, skew, variances), (own, across, other, _) = (
        _along(each) for each in (public, released)
    )
    scale = np.maximum(variances, np.finfo(np.float64).tiny)
    signs = np.where(along * across / scale + skew * other / 6.0 < 0.0, -1.0, 1.0)
    return Alignment(axes, own * signs, GAME)


def _along(rows: Array) -> tuple[Array, Array, Array, Array]:
    """Return axes (d, d), the largest variance first, and mean, skewness and variance of each."""
    mean = rows.mean(axis=0)
    variances, axes = np.linalg.eigh(np.cov(rows, rowvar=False, bias=True).reshape(len(mean), -1))
    variances, axes = np.maximum(variances[::-1], 0.0), axes[:, ::-1]
    spread = np.sqrt(np.maximum(variances, np.finfo(np.float64).tiny))
    return axes, mean @ axes, ((((rows - mean) @ axes) / spread) ** 3).mean(axis=0), variances


def _leading(dim: int) -> list[int]:
    """Return 2, 4, 8 … and d."""
    return [*(2**power for power in range(1, dim.bit_length()) if 2**power < dim), dim]


def _closest(public: Array, undone: Array, count: int) -> tuple[Any, Any, float]:
    """Return which releases are closest to a public state, those states, and the mean square."""
    found = np.zeros(len(undone), dtype=np.int64)
    own = (public**2).sum(axis=1)
    for start in range(0, len(undone), ROWS_TOGETHER):
        part = slice(start, start + ROWS_TOGETHER)
        found[part] = (own - 2.0 * undone[part] @ public.T).argmin(axis=1)
    squares = ((undone - public[found]) ** 2).sum(axis=1)
    closest = np.argsort(squares, kind="stable")[:count]
    return closest, found[closest], float(squares[closest].mean())
