"""Simulated releases of a prepared statistic, with which rows each has in; nothing is released."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit.statistics.bounded.contributions import Contributions
from tacit.statistics.bounded.plan import SampledNoise, TablePlan
from tacit.statistics.draws.workflow import DrawPlan
from tacit.statistics.pairs.pairing import Pairing
from tacit.statistics.people.contributors import InMemory
from tacit.statistics.people.plan import PeoplePlan
from tacit.statistics.people.vectors import clipped
from tacit.statistics.rows.callables import CallablePlan
from tacit.statistics.rows.coins import Halves, throw_coins
from tacit.statistics.rows.plan import SumPlan
from tacit.statistics.simulation import simulate

Flags = npt.NDArray[np.bool_]
# Coins that are thrown together.
ENTRIES_PER_CHUNK = 2**24


def can_simulate(plan: Any) -> bool:
    """Return whether releases can be simulated: of persons where all are sums in memory."""
    if not isinstance(plan, PeoplePlan):
        return True
    return plan.chooser is None and isinstance(plan.persons, InMemory)


def simulate_releases(
    plan: Any, rows: npt.NDArray[np.intp], count: int, source: np.random.Generator
) -> tuple[Array, Flags]:
    """Return (count, d) releases, and which of some rows each has in, (count, len(rows)).

    Args:
        plan: of what ``prepare`` returned.
        rows: places of rows or persons of the pool.
        count: how many.
        source: of coins and noise.
    """
    if isinstance(plan, DrawPlan):
        return _of_a_draw(plan, rows, count, source)
    if isinstance(plan, SumPlan):
        return _of_sums(plan, rows, count, source)
    if isinstance(plan, TablePlan):
        values = plan.values.values
        return _of_all(plan.added, values.sum(axis=0), values[rows], plan.noise, count, source)
    if isinstance(plan, PeoplePlan):
        return _of_people(plan, rows, count, source)
    return _of_a_callable(plan, rows, count, source)


def _of_a_draw(
    plan: DrawPlan, rows: npt.NDArray[np.intp], count: int, source: np.random.Generator
) -> tuple[Array, Flags]:
    chosen = source.integers(len(plan.family), size=count)
    # a declared candidate with fresh noise, as the release would be
    releases = plan.outputs[chosen]
    if plan.design.rank:
        releases = releases + plan.design.sample(count, source)
    return releases, plan.family.columns(rows)[chosen]


def _of_sums(
    plan: SumPlan, rows: npt.NDArray[np.intp], count: int, source: np.random.Generator
) -> tuple[Array, Flags]:
    members, values = plan.pairing.members, plan.values.values
    size, step = plan.pairing.group_size, max(1, ENTRIES_PER_CHUNK // max(len(members), 1))
    group, place = _places(plan.pairing, rows)
    sums, inside = [], []
    for start in range(0, count, step):
        fallen = source.integers(size, size=(min(step, count - start), len(members)))
        # Σ_g φ(row drawn of g) by one product of matrices for each place in a group
        sums.append(sum((fallen == j).astype(float) @ values[members[:, j]] for j in range(size)))
        inside.append(fallen[:, group] == place)
    noisy = np.concatenate(sums) + plan.noise.sample(count, source)
    drawn = float(len(members))
    releases = plan.query.finish(noisy, plan.centres, drawn)
    return releases, np.concatenate(inside)


def _of_all(
    added: Contributions,
    total: Array,
    own: Array,
    noise: SampledNoise,
    count: int,
    source: np.random.Generator,
) -> tuple[Array, Flags]:
    """Every other row or person is in; each of those attacked is by its own coin."""
    inside = source.random((count, len(own))) < 0.5
    # the whole table less what those attacked add that their coins left out
    sums = total - (~inside).astype(float) @ own
    noisy = sums + noise.sample(count, source)
    return added.finish(noisy, None), inside


def _of_people(
    plan: PeoplePlan, rows: npt.NDArray[np.intp], count: int, source: np.random.Generator
) -> tuple[Array, Flags]:
    persons, radius = plan.persons, plan.radius
    assert isinstance(persons, InMemory)
    assert radius is not None, "found() comes first"
    vectors = clipped(plan.metric.coordinates(persons.sums), radius, plan.budget.norm)
    held = plan.metric.restore(vectors.astype(np.float64))
    noise = plan.budget.noise(plan.metric, radius)
    return _of_all(plan.added, held.sum(axis=0), held[rows], noise, count, source)


def _of_a_callable(
    plan: CallablePlan, rows: npt.NDArray[np.intp], count: int, source: np.random.Generator
) -> tuple[Array, Flags]:
    group, place = _places(plan.pairing, rows)
    if plan.halves is None:
        fallen = throw_coins(count, len(plan.pairing), source)
        halves = Halves(plan.pairing, fallen)
        outputs = simulate(plan.query, plan.rows, halves, workers=1, progress=False)
    else:
        chosen = source.integers(len(plan.halves), size=count)
        fallen, outputs = plan.halves.fallen[chosen], plan.outputs[chosen]
    return outputs + plan.design.sample(count, source), fallen[:, group] == place


def _places(pairing: Pairing, rows: npt.NDArray[np.intp]) -> tuple[Any, Any]:
    """Return the group and the place in it of every row."""
    # rows in no group have −1, and are never drawn
    group = np.full(pairing.pool_rows, -1)
    place = np.full(pairing.pool_rows, -1)
    for j in range(pairing.group_size):
        group[pairing.members[:, j]] = np.arange(len(pairing))
        place[pairing.members[:, j]] = j
    return group[rows], place[rows]
