"""The strongest attacker on one of a group of rows, who is told what was drawn of all others."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array, RandomSource, array, generator, in_interval, integer
from tacit.attacks.membership.declared import MembershipAttack, best_attack
from tacit.covariance import Covariance
from tacit.covariance.coercion import as_covariance
from tacit.linalg import default_tolerance

TOLD = "likelihood ratio, told what was drawn of every other group"
# Scores that are held at once: 32 MB.
ENTRIES_PER_CHUNK = 4_000_000
PAIR = 2
# Posteriors as far from even odds as this are no tie.
TIE = 1e-12


def group_attack(
    groups: Any,
    covariance: Covariance,
    *,
    trials: int = 2000,
    confidence: float = 0.95,
    rng: RandomSource = None,
) -> MembershipAttack:
    """Guess which row of each group was drawn, from a noisy sum whose other rows are known.

    A trial draws a row j of every group and noise e. For group g the attacker takes what all other
    groups added from the release and sees ``x_gj + e``; the posterior over the k rows is exact,
    and a row is guessed in where it is likelier in than out. No attacker does better.

    Args:
        groups: (G, k, d), what each row of each group adds to the sum, k >= 2.
        covariance: Σ of the noise on the sum.
        trials: simulated releases, >= 4.
        confidence: coverage of the intervals, in (0, 1).
        rng: seed or generator of the simulation; the operating system's when None.

    Returns:
        The attack; row number ``g k + j`` is row j of group g.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> from tacit.covariance import Isotropic
        >>> attack = group_attack([[[0.0], [9.0]]], Isotropic(1.0, 1), trials=200, rng=0)
        >>> attack.success
        1.0

    Source: the Neyman-Pearson lemma.
    """
    noise = as_covariance("covariance", covariance)
    values = array("groups", groups, ndim=3)
    count = integer("trials", trials, minimum=4)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    source = generator(rng)
    # about the middle of each group: what its rows have in common is in every release
    white = _whitened(values - values.mean(axis=1, keepdims=True), noise)
    right = {TOLD: _right(white, count, source)}
    return best_attack(right, 1.0 - 1.0 / values.shape[1], level)


def swap_attack(
    swaps: Any,
    covariance: Covariance,
    *,
    confidence: float = 0.95,
    rng: RandomSource = None,
) -> MembershipAttack:
    """Guess each coin of simulated draws, told every other coin of the same draw.

    In draw t a flip of coin i moves the output by z_ti. The attacker sees ``x + e`` or
    ``x + z_ti + e`` and guesses the likelier; where nothing moves, by lot.

    Args:
        swaps: (T, P, d), T >= 4 draws, by how much each of P coins moves each.
        covariance: Σ of the noise, of full rank where anything moves.
        confidence: coverage of the intervals, in (0, 1).
        rng: seed or generator of the simulation; the operating system's when None.

    Returns:
        The attack; row number i stands for the rows of coin i.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> from tacit.covariance import Isotropic
        >>> swap_attack(np.full((8, 3, 1), 40.0), Isotropic(1.0, 1), rng=0).success
        1.0

    Source: the Neyman-Pearson lemma.
    """
    noise = as_covariance("covariance", covariance)
    values = array("swaps", swaps, ndim=3)
    integer("swaps", len(values), minimum=4)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    source = generator(rng)
    white = _whitened(values, noise)
    drawn = source.standard_normal((len(white), white.shape[2]))
    squared = np.square(white).sum(axis=2)
    scores = 0.5 * squared + np.einsum("tir,tr->ti", white, drawn)
    lot = source.random(scores.shape) < 0.5
    right = {TOLD: np.where(squared > 0.0, scores > 0.0, lot)}
    return best_attack(right, 0.5, level)


def _whitened(values: Array, noise: Covariance) -> Array:
    """Return values in coordinates in which the noise is N(0, I) on the directions it covers."""
    scales = np.sqrt(noise.diagonal())
    live = scales > 0.0
    if not live.any():
        return np.zeros((*values.shape[:2], 1))
    dense = noise.to_dense()[np.ix_(live, live)] / np.outer(scales[live], scales[live])
    spectrum, axes = scipy_linalg.eigh(dense)
    kept = spectrum > default_tolerance(spectrum.size) * spectrum[-1]
    white: Array = (values[..., live] / scales[live]) @ (axes[:, kept] / np.sqrt(spectrum[kept]))
    return white


def _right(white: Array, trials: int, source: np.random.Generator) -> Any:
    """Return (trials, G k): whether each row's guess, in or out, was right."""
    groups, size, _ = white.shape
    if size == PAIR:
        return _pairs_right(white, trials, source)
    # −½‖y − x_l‖² at y = x_j + e is ⟨x_l, e⟩ + ⟨x_l, x_j⟩ − ½‖x_l‖² up to what all l share
    inner = np.einsum("gjr,glr->gjl", white, white)
    halves = 0.5 * np.einsum("gjj->gj", inner)
    index = np.arange(groups)
    right = np.empty((trials, groups * size), dtype=bool)
    step = max(1, ENTRIES_PER_CHUNK // (groups * size))
    for start in range(0, trials, step):
        rows = min(step, trials - start)
        drawn = source.integers(size, size=(rows, groups))
        noise = source.standard_normal((rows, white.shape[2]))
        scores = np.einsum("gjr,tr->tgj", white, noise, optimize=True)
        scores += inner[index, :, drawn] - halves
        top = scores.max(axis=2, keepdims=True)
        posterior = np.exp(scores - top)
        posterior /= posterior.sum(axis=2, keepdims=True)
        tie = np.abs(posterior - 0.5) <= TIE
        lot = source.random((rows, groups, 1)) < 0.5
        # of two rows that look the same one is guessed, not both
        lot = np.where(np.arange(size) == 0, lot, ~lot)
        guess = np.where(tie, lot, posterior > 0.5)
        truth = np.arange(size) == drawn[:, :, None]
        right[start : start + rows] = (guess == truth).reshape(rows, -1)
    return right


def _pairs_right(white: Array, trials: int, source: np.random.Generator) -> Any:
    """Return the same for pairs, whose rows are both guessed right or both wrong.

    With a flip z the log odds of the row drawn are ``‖z‖²/2 ± zᵀe``, the sign that of the coin.
    """
    flips = white[:, 1] - white[:, 0]
    halves = 0.5 * np.einsum("gr,gr->g", flips, flips)
    right = np.empty((trials, 2 * len(flips)), dtype=bool)
    step = max(1, ENTRIES_PER_CHUNK // (2 * len(flips)))
    for start in range(0, trials, step):
        rows = min(step, trials - start)
        odds = source.standard_normal((rows, flips.shape[1])) @ flips.T
        second = source.integers(2, size=odds.shape, dtype=np.uint8)
        np.negative(odds, out=odds, where=second == 0)
        odds += halves
        found = odds > 0.0
        # the logistic function has slope 1/4 at even odds
        tie = np.abs(odds) <= 4.0 * TIE
        if tie.any():
            found = np.where(tie, source.random(odds.shape) < 0.5, found)
        right[start : start + rows, ::2] = right[start : start + rows, 1::2] = found
    return right
