"""How far numbers that follow from noisy sums may be off: simulated under the laws they have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from tacit._ground.checks import Array
from tacit.statistics.cost import CostFrame
from tacit.statistics.errors import LEVEL, deviations, two_digits_up
from tacit.statistics.pairs.pairing import Pairing
from tacit.statistics.queries.statistic import NORMAL_95, SumQuery
from tacit.statistics.queries.sums import GridValues
from tacit.statistics.rows.noise import SumNoise

# Simulated releases of errors, and of sampling; draws at which errors hold on their own.
SIMULATED, RESAMPLED, DRAWS = 2000, 1000, 8
# Numbers that are added up for simulated draws, and of simulated noise; and draws at least.
LARGEST_WORK, LARGEST_NOISE, FEWEST = 2**26, 2**22, 40
GROUPS_TOGETHER = 2**14
# Degrees of freedom with which a sampling error is told (docs/explanation/intervals.md).
LEAST_FREEDOM = 8.0


@dataclass(frozen=True, eq=False)
class Sampling:
    """How much numbers vary over pools and draws from them.

    Attributes:
        deviations: (d,) standard deviations.
        known: (d,) whether many rows make them; where few do, as under heavy tails or in small
            pools, the error of a number that is not linear in the sums may be much larger.
    """

    deviations: Array
    known: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Simulated:
    """What is simulated: a query over what is drawn of some groups.

    Attributes:
        query: what is computed.
        pairing: the groups.
        centres: (p,) what was taken from the columns.
        counted: whether the number of rows drawn is public.
    """

    query: SumQuery
    pairing: Pairing
    centres: Array
    counted: bool

    @property
    def linear_numbers(self) -> npt.NDArray[np.bool_]:
        """Which of the numbers are linear in the sums, (d,)."""
        return self.query.linear_numbers if self.counted else self.query.additive_numbers

    def numbers(self, sums: Array, *, smooth: bool = False) -> Array:
        """Return the numbers (…, d) of sums (…, k)."""
        drawn = float(len(self.pairing)) if self.counted else None
        return self.query.finish(sums, self.centres, drawn, smooth=smooth)


def noise_errors(
    simulated: Simulated, values: GridValues, noise: SumNoise, frame: CostFrame
) -> Array:
    """Return errors (d,) with which ``value ± 1.96 error`` holds the number of the rows drawn.

    Standard deviations of numbers that are linear in the sums. Of others the error of a release,
    by its coins and its noise, is one more of N + 1 exchangeable ones of which N are simulated, so
    that the ``⌈0.95 (N + 1)⌉``-th smallest of these is exceeded 1 time in 20 at most. It is
    enlarged to what holds 95% of simulated errors at each of some draws, so that few draws have
    less on their own. All follows from the pool alone.

    Source: order statistics of exchangeable numbers, as in Monte Carlo tests (Barnard, 1963).
    """
    # √(J Σ Jᵀ)_jj, exact for what is linear in the sums
    influence = frame.jacobian @ noise.covariance
    exact = np.sqrt(np.maximum(np.einsum("ij,ij->i", influence, frame.jacobian), 0.0))
    linear, source = simulated.linear_numbers, np.random.default_rng(0)
    if linear.all() or noise.design is None:
        return np.asarray(exact)
    # f(S + B) − f(S) for simulated draws S and noise B: errors are of the pool alone, and so told
    totals = _totals(simulated.pairing, values, np.random.default_rng(1))
    clean = simulated.numbers(totals)
    gaps = [
        simulated.numbers(totals + noise.sample(len(totals), source)) - clean
        for _ in range(-(-SIMULATED // len(totals)))
    ]
    found = [deviations(np.concatenate(gaps))]
    # the same noise at every draw, so that these differ by the draw and not by chance
    errors = noise.sample(min(max(LARGEST_NOISE // len(totals.T), FEWEST), SIMULATED), source)
    for total, number in zip(totals[:DRAWS], clean, strict=False):
        found.append(deviations(simulated.numbers(total + errors) - number))
    return np.asarray(np.where(linear, exact, np.max(found, axis=0)))


def sampling_errors(simulated: Simulated, values: GridValues, frame: CostFrame) -> Sampling:
    """Return how much the numbers vary over pools and draws from them, rounded up.

    With ψ a row's influence on a number, the sum of ``ψ`` over the rows drawn varies by the
    coins, ``Σ_g Var_g ψ`` over groups, and by the pool, ``P² Var ψ / N``. Rows that are alike
    share groups, so that it is less than ``P Var ψ`` of as many rows at random. Numbers that are
    not linear in the sums are simulated: rows drawn by coins weigh Γ(k, 1/k) each, of variance
    1/k, as pools vary that have k rows for each drawn (Rubin's bootstrap, 1981).

    All are as much larger as Student's law of ν degrees of freedom reaches beyond the normal law,
    ``ν = 2N/(κ − 1)`` by the kurtosis κ of the influences, N − 1 at most (Satterthwaite, 1946).
    """
    # ψ = J (φ − mean φ), row by row; its second moments by groups, and its fourth for the kurtosis
    pairing, linear = simulated.pairing, simulated.linear_numbers
    members, numbers = pairing.members, len(frame.jacobian)
    # in powers of two near the spread of each number: fourth powers stay within double precision
    unit = np.ldexp(1.0, np.where(frame.spread > 0.0, np.frexp(frame.spread)[1], 0))
    jacobian = frame.jacobian / unit[:, None]
    mean = jacobian @ (values.total(members.ravel()) / members.size)
    coins, squares, fourths = np.zeros((3, numbers))
    for start in range(0, len(members), GROUPS_TOGETHER):
        gaps = values.times(jacobian.T, members[start : start + GROUPS_TOGETHER]) - mean
        # Σ_g Var_g ψ: one row of each group is drawn, and groups are independent
        coins += gaps.var(axis=1).sum(axis=0)
        gaps *= gaps
        squares += gaps.sum(axis=(0, 1))
        gaps *= gaps
        fourths += gaps.sum(axis=(0, 1))
    # Var ψ of the pool, with N − 1; the sum over P rows drawn varies by P²/N of it
    pool = squares / (members.size - 1)
    # P²/N = P/k for N = k P rows in groups
    found = unit * np.sqrt(coins + len(members) / pairing.group_size * pool)
    if not linear.all():
        found = np.where(linear, found, _resample(simulated, values, frame))
    # wider by Student's quantile over the normal one: few rows, or few that matter, say less
    freedom = _freedom(members.size, squares, fourths)
    factor = special.stdtrit(freedom, 0.5 + 0.5 * LEVEL) / NORMAL_95
    known = linear | (freedom >= LEAST_FREEDOM)
    return Sampling(two_digits_up(found * factor), known)


def _totals(pairing: Pairing, values: GridValues, source: np.random.Generator) -> Array:
    """Return sums over simulated draws, (n, k)."""
    work = len(pairing) * values.integers.shape[1]
    draws = min(max(LARGEST_WORK // max(work, 1), DRAWS), SIMULATED)
    return np.stack([values.total(pairing.draw(source)) for _ in range(draws)])


def _resample(simulated: Simulated, values: GridValues, frame: CostFrame) -> Array:
    """Return deviations (d,) about the pool's own numbers of those of weighed draws."""
    pairing = simulated.pairing
    source, shape = np.random.default_rng(2), float(pairing.group_size)
    drawn, terms = len(pairing), values.integers.shape[1]
    work = drawn * terms
    count = min(max(LARGEST_WORK // max(work, 1), FEWEST), RESAMPLED)
    sums = np.empty((count, terms))
    for place in range(count):
        # Γ(k, 1/k) has mean 1 and variance 1/k, as k rows of a new pool stand for each drawn
        weights = source.gamma(shape, 1.0 / shape, drawn)
        sums[place] = values.weighted_total(pairing.draw(source), weights / weights.mean())
    middle = simulated.numbers(frame.middle, smooth=True)
    return deviations(simulated.numbers(sums, smooth=True) - middle)


def _freedom(count: int, squares: Array, fourths: Array) -> Array:
    """Return ν of each number, (d,), from 1 to N − 1.

    Args:
        count: N, rows.
        squares: (d,) sums of the squares of their influences, less the mean.
        fourths: (d,) sums of the fourth powers.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        # κ = N Σψ⁴ / (Σψ²)², ν = 2N/(κ − 1); no fewer than 1, no more than a sample of N has
        excess = count * fourths / squares**2 - 1.0
        freedom = np.where(excess > 0.0, 2.0 * count / excess, count - 1.0)
    return np.asarray(np.clip(freedom, 1.0, count - 1.0))
