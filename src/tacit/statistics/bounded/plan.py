"""A query of sums over all rows of a table: what is decided before noise is drawn."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from tacit._ground.checks import Array, RandomSource
from tacit.attacks import MembershipAttack, group_attack
from tacit.covariance import Dense
from tacit.guarantees.adjacency import Adjacency
from tacit.statistics.bounded.contributions import MOST_ROWS, Contributions, probe
from tacit.statistics.bounded.noise import TableNoise, table_noise
from tacit.statistics.cost import frame_of
from tacit.statistics.errors import deviations
from tacit.statistics.queries.statistic import NORMAL_95
from tacit.statistics.queries.sums import GridValues

# Rows at random within the bounds, on which what noise costs is judged: never the table's own.
NOMINAL_SAMPLE, NOMINAL_ROWS = 512, 1000
# Share of them in which a column holds nothing, where that counts.
NOMINAL_GAPS = 0.125
# Simulated errors about each of the sums that noisy ones may have come from.
SIMULATED, PLAUSIBLE = 400, 8
ATTACKER = "likelihood ratio, told every other row"
# Rows that are attacked: those that add most.
ATTACKED_ROWS = 1000
# Steps of a derivative that are taken at once: a few megabytes.
STEPS_TOGETHER = 256
# Sums that are simulated at once, at most but for one set of them: some megabytes.
CELLS_TOGETHER = 2**20


class SampledNoise(Protocol):
    """Noise on sums whose errors can be simulated."""

    @property
    def covariance(self) -> Array:
        """Σ of all sums, (k, k)."""

    def sample(self, count: int, source: np.random.Generator) -> Array:
        """Return noise vectors for a simulation, (count, k)."""


@dataclass(frozen=True, eq=False)
class TablePlan:
    """Everything decided before the draw; the noise from the declared bounds alone.

    Attributes:
        added: what a row can add.
        values: what the rows of the table add; secret.
        noise: on the sums.
        adjacency: which tables are neighbours.
        errors: (d,) of the numbers of as many rows spread over the bounds, ``NOMINAL_ROWS`` where
            the number of rows is hidden.
    """

    added: Contributions = field(repr=False)
    values: GridValues = field(repr=False)
    noise: TableNoise = field(repr=False)
    adjacency: Adjacency
    errors: Array

    @property
    def sampling(self) -> None:
        """Not known: it would have to be read from the table."""
        return None

    def draw(self, rng: RandomSource) -> tuple[Array, Array]:
        """Return the numbers, and their errors as the released sums give them."""
        everything = np.arange(len(self.values.integers))
        published = self.noise.release(self.values.total(everything), rng)
        numbers = self.added.query.round_whole(self._finish(published))
        return numbers, errors_from_sums(self.added, self.noise, published, self._drawn)

    def errors_here(self) -> Array:
        """Return the errors (d,) about the table's own sums, which the holder alone may see."""
        sums = self.values.total(np.arange(len(self.values.integers)))
        return errors_from_sums(self.added, self.noise, sums, self._drawn)

    def numbers_here(self) -> Array:
        """Return the numbers (d,) without noise, which the holder alone may see."""
        return self._finish(self.values.total(np.arange(len(self.values.integers))))

    @property
    def _drawn(self) -> float | None:
        """The number of rows, which is public where rows are replaced."""
        return float(len(self.values.integers)) if self.adjacency is Adjacency.REPLACE else None

    def _finish(self, sums: Array) -> Array:
        return self.added.finish(sums, self._drawn)

    def attack(self, trials: int, source: np.random.Generator) -> MembershipAttack | None:
        """Run the attacker who knows every other row, on the rows that add most."""
        if not self.noise.parts or not len(self.values.integers):
            return None
        values = self.values.values
        # rows in units of the noise: the longest are told best from their absence
        live = np.diagonal(self.noise.covariance) > 0.0
        scales = np.sqrt(np.diagonal(self.noise.covariance)[live])
        lengths = np.square(values[:, live] / scales).sum(axis=1)
        chosen = np.sort(np.argsort(-lengths, kind="stable")[:ATTACKED_ROWS])
        others = np.zeros_like(values[chosen])
        if self.adjacency is Adjacency.REPLACE:
            # each is told from the row of the table that lies farthest from it
            gaps = values[chosen][:, live] / scales
            far = [int(np.square(values[:, live] / scales - g).sum(axis=1).argmax()) for g in gaps]
            others = values[far]
        # pairs of candidates: the row, and none or another in its place
        groups = np.stack([values[chosen], others], axis=1)[:, :, live]
        noise = Dense(self.noise.covariance[np.ix_(live, live)])
        attack = group_attack(groups, noise, trials=trials, rng=source)
        attack = replace(attack, name=ATTACKER)
        return attack.with_record(int(chosen[attack.worst_record // 2]))


def table_plan(
    added: Contributions, rows: Array, mu: float, adjacency: Adjacency, cost: Any
) -> TablePlan:
    """Design the noise from the bounds, and read the table.

    Args:
        added: what a row can add.
        rows: (N, p) the table.
        mu: μ > 0.
        adjacency: which tables are neighbours.
        cost: as ``frame_of`` takes it.
    """
    if len(rows) > MOST_ROWS:
        raise ValueError(f"pool: expected at most {MOST_ROWS} rows, got {len(rows)}")
    counted = adjacency is Adjacency.REPLACE
    if counted and not len(rows):
        raise ValueError("pool: expected at least 1 row, as one of them is replaced, got 0")
    size = len(rows) if counted else NOMINAL_ROWS
    # what rows at random add, less their offsets as the noise has them
    shifted = added.values(nominal_rows(added)).values
    nominal = added.restore(shifted)
    # what noise costs is judged on rows at random, not on the table's
    frame = frame_of(added.query, nominal, added.centres, size, cost, counted=counted)
    # the price of a sum without its offset: what is given back counts with the count
    back = np.eye(len(added.offsets))
    back[np.arange(len(back)), added.counts] += added.offsets
    noise = table_noise(added, mu, adjacency, back.T @ frame.costs[0] @ back)
    # what is expected is told before anything is drawn: of rows within the bounds, not the table's
    errors = errors_from_sums(
        added, noise, shifted.mean(axis=0) * size, float(size) if counted else None
    )
    return TablePlan(added, added.values(rows), noise, adjacency, errors)


def nominal_rows(added: Contributions) -> Array:
    """Rows at random: numbers within the bounds, and every way in which conditions can hold."""
    source = np.random.default_rng(0)
    rows = np.zeros((NOMINAL_SAMPLE, added.query.width))
    half = NOMINAL_SAMPLE // 2
    for column in range(added.query.width):
        # every way in which conditions on this column can hold, half of the rows within its bounds
        found = {c for one in added.query.terms for c in one.conditions if c.column == column}
        values = source.choice(probe(sorted(found)), NOMINAL_SAMPLE)
        low, high = added.lows[column], added.highs[column]
        if np.isfinite(low):
            values[half if found else 0 :] = source.uniform(low, high, half if found else 2 * half)
        if any(one.low == -np.inf and one.high == np.inf for one in found):
            # it is asked whether there is a number at all
            values[source.random(NOMINAL_SAMPLE) < NOMINAL_GAPS] = np.nan
        rows[:, column] = values
    return rows


def errors_from_sums(
    added: Contributions,
    noise: SampledNoise,
    sums: Array,
    drawn: float | None,
    widths: float = NORMAL_95,
) -> Array:
    """Return the errors (d,) of the numbers, from noisy sums alone.

    Standard deviations of numbers that are linear in the sums. Of others ±1.96 of them holds 95%
    of simulated errors about each of several sums that the noisy ones may have come from, and 95%
    of the numbers of many such sums: the true ones are hidden, and among those that rows can have.

    Args:
        added: what a row can add.
        noise: on the sums.
        sums: (k,) noisy, without the offsets.
        drawn: the number of rows, where it is public.
        widths: deviations that hold 95% of the noise.
    """
    farther = widths / NORMAL_95
    exact = exact_errors(added, noise, drawn) * farther
    known = added.query.additive_numbers.copy()
    if drawn is not None:
        known |= added.query.linear_numbers
    if known.all():
        return added.query.widen_whole(exact)
    source = np.random.default_rng(0)
    scales = np.sqrt(np.diagonal(noise.covariance))
    # sums that may have given the noisy ones, moved to where rows can have them
    sources = sums + noise.sample(SIMULATED, source)
    restored = added.restore(sources)
    # squares alone are lifted, so that the difference is the same without the offsets
    sources += added.query.possible(restored, added.centres, drawn, scales) - restored
    # errors of the numbers from such sums, as if each were what noise was added to
    numbers = added.finish(sources, drawn)
    found = [deviations(numbers - added.finish(sums, drawn))]
    # 95% of errors about each of a few of them; the widest is told
    simulated = noise.sample(SIMULATED, source)
    together = max(CELLS_TOGETHER // max(simulated.size, 1), 1)
    for at in range(0, PLAUSIBLE, together):
        middles = sources[at : at + min(together, PLAUSIBLE - at)]
        noisy = (middles[:, None] + simulated).reshape(-1, simulated.shape[1])
        finished = added.finish(noisy, drawn).reshape(len(middles), SIMULATED, -1)
        found += [
            deviations(some - clean) for some, clean in zip(finished, numbers[at:], strict=False)
        ]
    widest = np.max(found, axis=0)
    errors = np.where(known, exact, widest)
    widened = added.query.widen_whole(errors)
    spread = noise.covariance * farther**2
    return added.query.bracket(
        widened, sums, added.centres, drawn, spread, added.restore, bounds=(added.lows, added.highs)
    )


def exact_errors(added: Contributions, noise: SampledNoise, drawn: float | None) -> Array:
    """Return standard deviations (d,) of the numbers that are linear in the sums.

    ``√(J Σ Jᵀ)_jj`` with J by differences from sums of zero, exact for what is linear; of a number
    of rows that is not public counts and sums alone are.
    """
    # J column by column, f(e_k) − f(0): what is affine needs no smaller step
    origin = np.zeros(len(noise.covariance))
    steps = added.restore(np.eye(len(origin)))
    start = added.query.finish(origin, added.centres, drawn)
    if not origin.size:
        # no sum has noise
        return np.zeros(len(start))
    # some at a time: what groups have in common is computed once for all
    pieces = [steps[at : at + STEPS_TOGETHER] for at in range(0, len(steps), STEPS_TOGETHER)]
    numbers = [added.query.finish(some, added.centres, drawn) for some in pieces]
    jacobian = np.concatenate(numbers) - start
    variances = np.einsum("kd,kl,ld->d", jacobian, noise.covariance, jacobian, optimize=True)
    return np.asarray(np.sqrt(variances))
