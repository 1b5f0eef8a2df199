"""Any query by a declared family of draws: membership bounded by the exact posterior."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from tacit._ground.checks import Array
from tacit.design import gaussian_information
from tacit.statistics.pairs.pairing import Pairing
from tacit.statistics.rows.coins import Halves, throw_coins
from tacit.statistics.rows.swaps import LARGEST_BET, LOG_SLACK

# Nats for which the shape of the noise is chosen: few, as membership is hidden by few.
SHAPE_NATS = 0.01
# Grids of sizes that may be certified: where they start, relative to what the pilot expects, and
# by what they fall. Where the success hardly depends on the noise, as that of a yes or no, far
# more than expected may be needed before it is seen to be below what is asked for.
GRIDS = ((1.1, 1.01), (1.5, 1.01), (3.0, 1.02), (100.0, 1.06), (1e4, 1.1), (1e7, 1.2))
# Sizes of one grid, at most.
MOST_STEPS = 60
# Bets relative to the one that is best where the pilot's moments are right.
BET_FACTORS = np.array([1.0, 0.4, 2.0])
# Halvings, in logarithms, of the size that the pilot seeks.
PILOT_ROUNDS = 14
# Numbers of simulated posteriors at a time.
ENTRIES_TOGETHER = 4_000_000


@dataclass(frozen=True, eq=False)
class OutputFamily:
    """K declared draws of one row of every pair, complements included, with their outputs.

    Attributes:
        halves: the draws.
        outputs: (K, d).
        covariance: Σ₀, the shape of the noise.
        price: tr(FΣ₀).
    """

    halves: Halves
    outputs: Array
    covariance: Array
    price: float

    def posteriors(self, scale: float, draws: int, source: np.random.Generator) -> Array:
        """Return the success of guessing each coin from simulated releases, (draws, P).

        ``max(P(coin i = 0 | y), P(coin i = 1 | y))`` for ``y = x_j + N(0, scale Σ₀)``, j uniform.
        """
        # white coordinates, in which the noise is N(0, I)
        root = np.linalg.cholesky(self.covariance * scale)
        white = np.linalg.solve(root, (self.outputs - self.outputs.mean(axis=0)).T).T
        coins = self.halves.fallen.astype(np.float64)
        found = np.empty((draws, coins.shape[1]))
        rows = max(1, ENTRIES_TOGETHER // max(white.shape[0], coins.shape[1]))
        for start in range(0, draws, rows):
            part = slice(start, min(start + rows, draws))
            count = part.stop - part.start
            chosen = source.integers(len(white), size=count)
            seen = white[chosen] + source.standard_normal((count, white.shape[1]))
            # P(x_j | y) ∝ exp(−‖y − x_j‖²/2); far outputs would cancel in products
            scores = -0.5 * cdist(seen, white, "sqeuclidean")
            scores = np.exp(scores - scores.max(axis=1, keepdims=True))
            # P(coin i = 1 | y): the posterior of the draws in which it is
            one = (scores @ coins) / scores.sum(axis=1, keepdims=True)
            found[part] = np.maximum(one, 1.0 - one)
        return np.clip(found * (1.0 + LOG_SLACK), 0.5, 1.0)


def declared_halves(pairing: Pairing, candidates: int, source: np.random.Generator) -> Halves:
    """Declare at least ``candidates`` draws, each with its complement."""
    fallen = throw_coins(-(-candidates // 2), len(pairing), source)
    return Halves(pairing, np.concatenate([fallen, 1 - fallen]))


def family_of(halves: Halves, outputs: Array, prices: Array) -> OutputFamily:
    """Return the family with the shape of the Gaussian optimum for few nats."""
    centred = outputs - outputs.mean(axis=0)
    spread = centred.T @ centred / len(outputs)
    spread += np.diag(np.diagonal(spread) * 1e-9) + np.eye(len(spread)) * 1e-300
    shape = gaussian_information(spread, SHAPE_NATS, cost=prices).covariance.to_dense()
    return OutputFamily(halves, outputs, shape, float(prices @ np.diagonal(shape)))


def expected_scale(
    family: OutputFamily, success: float, draws: int, source: np.random.Generator
) -> float:
    """Return about how large the noise has to be, by bisection on simulated releases."""
    low, high = 1e-6, 1.0

    def worst(scale: float) -> float:
        return float(family.posteriors(scale, draws, source).mean(axis=0).max())

    while worst(high) > success:
        high *= 4.0
    for _ in range(PILOT_ROUNDS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if worst(middle) > success else (low, middle)
    return high


def certified_family_scale(
    family: OutputFamily,
    expected: float,
    success: float,
    failure: float,
    draws: int,
    source: np.random.Generator,
) -> float:
    """Return the size of noise at which every row's success is at most s, at the failure given.

    Sizes are tried from the largest of a grid fixed by the pilot down, on fresh releases each,
    until one is not certified: were the last one that is too small, the first too small of the
    grid would have been certified, every row of it, one that is above s too: that happens with
    probability ``failure`` at most.

    Args:
        family: the declared draws.
        expected: what the pilot expects.
        success: s in (½, 1).
        failure: probability that a row's success is above s.
        draws: simulated releases at every size.
        source: of the simulation.
    """
    pairs = family.halves.fallen.shape[1]
    # a grid that starts higher is tried only where nothing was certified below it
    level = math.log(len(GRIDS) / failure) + LOG_SLACK
    passed = 0.0
    for start, ratio in GRIDS:
        for step in range(MOST_STEPS):
            scale = expected * start * ratio**-step
            if not _refuted(family, scale, success, level, draws, source):
                break
            passed = scale
        if passed:
            return passed
    raise ValueError(
        f"simulations: expected enough to certify {success} for {pairs:,} pairs, got {draws:,} "
        "releases"
    )


def _refuted(
    family: OutputFamily,
    scale: float,
    success: float,
    level: float,
    draws: int,
    source: np.random.Generator,
) -> bool:
    """Whether a mean success of s or more is refuted for every row, by betting."""
    # bets near √(2 ln(1/failure) / (n Var)), the best where the pilot's variance is right
    early = family.posteriors(scale, max(200, draws // 10), source)
    variance = np.maximum(np.square(early - success).mean(axis=0), 1e-12)
    best = np.sqrt(2.0 * level / (draws * variance))
    bets = np.minimum(best[:, None] * BET_FACTORS, LARGEST_BET / (1.0 - success))
    # wealth Π (1 + λ (s − X_k)) has mean 1 at most where E X >= s, and so has its mixture over λ
    gains = success - family.posteriors(scale, draws, source)
    wealth = np.stack(
        [np.log1p(bets[:, place] * gains).sum(axis=0) for place in range(BET_FACTORS.size)]
    )
    total = np.logaddexp.reduce(wealth, axis=0) - math.log(BET_FACTORS.size)
    return bool((total >= level).all())
