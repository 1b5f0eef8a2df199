"""A release about people by keys or bounds that nobody declared: they are found, then used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from tacit._ground import outlet
from tacit._ground.checks import Array, RandomSource
from tacit._ground.frozen import read_only
from tacit.design.grid import random_bits
from tacit.releases.prepared import Expected
from tacit.releases.release import Release
from tacit.releases.strength import gaussian_mu
from tacit.statistics.bounded.workflow import summable
from tacit.statistics.details import NumbersDetails, Turn
from tacit.statistics.people.consistent import MOST_CELLS
from tacit.statistics.people.keys import (
    DELTA_SHARE,
    KEYS_SHARE,
    KeySearch,
    Whole,
    find_among,
    find_keys,
)
from tacit.statistics.people.plan import PeoplePlan
from tacit.statistics.people.radius import left_of
from tacit.statistics.people.ranges import EDGES, PARTS, RangeSearch, weigh_parts, weights_of
from tacit.statistics.people.vectors import MOST_SUMS
from tacit.statistics.people.workflow import FoundKeys, PreparedPeople, certify_clipped
from tacit.statistics.prepared import PreparedNumbers, StatisticRequest, expected_errors
from tacit.statistics.queries.chosen import chosen_of
from tacit.statistics.queries.counts import KeyCount
from tacit.statistics.queries.language import bind_query, keys_read
from tacit.statistics.queries.statistic import SumQuery

# Keys of which numbers are released, at most; of more, the first by their names.
MOST_FOUND = 10_000

Keys: TypeAlias = tuple[str, ...] | tuple[float, ...]


@dataclass(frozen=True)
class Asking:
    """What a request asks once keys are known, and what its release says of itself.

    Attributes:
        query: of the request, the pool that knows keys and bounds, and the keys that were found.
        told: the release but for what is drawn, with what only the asker knows to say of it.
        named: whether the numbers have names of the asker's own.
    """

    query: Callable[[StatisticRequest, Any, Keys | None], Any]
    told: Callable[[Release[Any]], Release[Any]] = lambda planned: planned
    named: bool = False


@read_only
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PreparedFound(PreparedNumbers):
    """Numbers by keys or bounds that are found when they are drawn; for the holder of the table.

    Attributes:
        request: what was asked.
        level: μ, or ε, of all noise together.
        found: how keys are found; None where they were declared.
        ranges: how bounds are found; None where they were declared.
        asking: what is asked once they are.
        most: keys of which numbers are released, at most.
        session: which answer of a session it is.
    """

    request: StatisticRequest = field(repr=False)
    level: float
    found: FoundKeys | None
    ranges: RangeSearch | None
    asking: Asking = field(repr=False)
    most: int = MOST_FOUND
    session: Turn | None = None

    def answer(
        self, rng: np.random.Generator | None, told: Callable[[Release[Any]], Release[Any]]
    ) -> Release[NumbersDetails]:
        """Draw an answer of a session, which was charged.

        Args:
            rng: of the session; None for the operating system's.
            told: as ``Asking`` has it.
        """
        request, asking = replace(self.request, rng=rng), replace(self.asking, told=told)
        return replace(self, request=request, asking=asking, reproducible=rng is not None)._drawn()

    def read(self) -> None:
        """Weigh keys and parts where the rows are, so that the draw cannot fail for want of them.

        Raises:
            ValueError: the engine that has their rows refuses.
        """
        pool = self.request.pool
        if self.found is not None and pool.keys_elsewhere is not None:
            pool.keys_elsewhere.weigh((), self.found.search.most)
        if self.ranges is not None and pool.elsewhere is not None:
            _weights_of_parts(self.request)

    def _drawn(self) -> Release[NumbersDetails]:
        request, rng = self.request, self.request.rng
        source = request.source()
        drawn_from = source if self.reproducible else None
        pool, keys = request.pool, None
        if self.ranges is not None:
            unit = request.promise.secret_unit
            ends = self.ranges.find(_weights_of_parts(request), unit, drawn_from)
            bounds = {**pool.bounds, **dict(zip(pool.unknown, ends, strict=True))}
            pool = replace(pool, bounds=bounds, unknown=())
        if self.found is not None:
            keys = _find(request, self.found.search, drawn_from)[: self.most]
            pool = pool.with_keys(keys)
        known = replace(request, query=self.asking.query(request, pool, keys), pool=pool)
        plan, planned = certify_clipped(
            known,
            self.level,
            source=source,
            session=self.session,
            found=self.found,
            ranges=self.ranges,
        )
        planned = self.asking.told(planned)
        drawn = PreparedPeople(
            guarantees=self.guarantees,
            spends=self.spends,
            expected=self.expected,
            description=self.description,
            reproducible=self.reproducible,
            plan=plan,
            planned=planned,
            source=source if rng is not None else None,
        )._drawn()
        return replace(drawn, title=self.planned.title)


def prepare_found(
    request: StatisticRequest, asking: Asking | None = None, *, session: Turn | None = None
) -> PreparedFound:
    """Certify a query by keys or bounds that will be found, before the table is looked at.

    Where keys are, the δ of the promise is split between the thresholds of keys and the noise,
    ``δ_noise(ε) + δ_keys <= δ`` (``KeySearch``), whose μ² is split between finding keys, finding
    bounds and the numbers. An answer of a ``session`` has the share of δ_keys that it has of μ².

    Raises:
        ValueError: a query that reads the keys as numbers, or a clip that is not declared.
    """
    promise, pool = request.promise, request.pool
    query, asking = summable(request), asking or Asking(_asked)
    if session is not None:
        level, own = session.spend, session.delta_of_keys
    elif pool.sought is not None:
        level, own = mu_beside_keys(promise)
    else:
        level, own = promise.epsilon if promise.pure else promise.largest_mu(), 0.0
    found, left = None, level
    if pool.sought is not None:
        _check(request, query, asking)
        search = KeySearch.of(level, own, KEYS_SHARE, adjacency=promise.adjacency)
        found, left = FoundKeys(pool.sought, search), left_of(level, KEYS_SHARE, pure=False)
    ranges = None
    if pool.unknown:
        # they may be found to reach below 0: a ratio that would be refused then is refused here
        below = {**pool.bounds, **dict.fromkeys(pool.unknown, (-1.0, 1.0))}
        bind_query(query.asked, replace(pool, bounds=below).as_columns(looked_at=False))
        names = [pool.columns[place] for place in pool.unknown]
        ranges = RangeSearch.of(names, left, pure=promise.pure, adjacency=promise.adjacency)
    # what is told before the draw is of no row at all
    persons = np.zeros(0, dtype=np.intp)
    nobody = pool if pool.persons is None else replace(pool, rows=pool.rows[:0], persons=persons)
    empty = replace(request, pool=nobody, effort=replace(request.effort, trials=0))
    source = request.source()
    plan, planned = certify_clipped(
        empty, level, source=source, session=session, found=found, ranges=ranges
    )
    planned = asking.told(planned)
    prepared = PreparedFound.of(
        planned,
        plan,
        planned.guarantees[1],
        None,
        request=request,
        level=level,
        found=found,
        ranges=ranges,
        asking=asking,
        most=_most(plan),
        session=session,
    )
    return replace(prepared, expected=_expected(planned.names, plan.errors, ranges))


def bounds_needed(query: SumQuery) -> set[int]:
    """Return places of columns that are summed or chosen from: groups and bins need no bounds."""
    summed = {column for one in query.terms for column in one.factors}
    return summed.union(one.column for one in chosen_of(query.function))


def mu_beside_keys(promise: Any) -> tuple[float, float]:
    """Return μ of all noise, and the δ of keys, that an ε with a δ leave where keys are found."""
    # both halves of δ are exact in double precision
    own = DELTA_SHARE * promise.delta
    return gaussian_mu(epsilon=promise.epsilon, delta=promise.delta - own), own


def _most(plan: PeoplePlan) -> int:
    """Return of how many keys numbers are released, from a plan of one of them."""
    # more sums, or cells that are made to add up, would be refused when the keys' budget is spent
    if plan.consistency is None:
        return min(MOST_FOUND, MOST_SUMS // max(len(plan.added.query.terms), 1))
    cells: int = max(one.sums.shape[1] for one in plan.consistency.tables)
    return MOST_CELLS // cells


def _expected(
    names: Sequence[str], errors: Array, ranges: RangeSearch | None
) -> tuple[Expected, ...]:
    """Return the errors to expect, and of which bounds they are where none are known."""
    found = expected_errors(names, errors)
    if ranges is None:
        return found
    scale = f" (as if {' and '.join(ranges.columns)} were from 0 to 1: bounds are found)"
    return tuple(replace(one, name=f"{one.name}{scale}") for one in found)


def _check(request: StatisticRequest, query: SumQuery, asking: Asking) -> None:
    """Refuse what could fail only once keys were found."""
    promise, pool = request.promise, request.pool
    place = pool.columns.index(pool.sought)
    if any(place in one.factors for one in query.terms) or any(
        one.column == place for one in chosen_of(query.function)
    ):
        raise ValueError(
            f"query: expected {pool.sought!r}, whose keys are found, to group rows only, got a "
            "query that computes with it"
        )
    if query.terms and promise.declared_clip is None:
        raise ValueError(
            "clip: expected a number of rows, or auto, where keys are found from the table, got "
            "None"
        )
    if not asking.named and query.names != query.function.names():
        raise ValueError("names: expected none for numbers by keys that are found, got some")


def _weights_of_parts(request: StatisticRequest) -> list[Whole]:
    """Return the weights of the parts of each column whose bounds are found; secret."""
    pool, pure = request.pool, request.promise.pure
    if pool.parts_elsewhere is None:
        columns = [pool.rows[:, place] for place in pool.unknown]
        return [weigh_parts(values, pool.persons, pure=pure) for values in columns]
    found = []
    for place in pool.unknown:
        totals = np.zeros(PARTS, dtype=np.int64)
        for part, total in pool.parts_elsewhere(place, weights_of(pure)).items():
            totals[part + len(EDGES)] = total
        found.append(totals)
    return found


def _find(request: StatisticRequest, search: KeySearch, rng: RandomSource) -> Keys:
    """Return the keys, by their names."""
    pool = request.pool
    if pool.keys_elsewhere is None:
        places, names = pool.sought_places()
        found = _plain(names, find_keys(pool.persons, places, search, rng))
    else:
        found = find_among(pool.keys_elsewhere, search, random_bits(rng))
    # the one place where what was found of the table leaves
    told: Any = outlet.let_out(frozenset(found))
    return tuple(sorted(told))


def _plain(names: tuple[str, ...] | Array, places: Any) -> list[str] | list[float]:
    if isinstance(names, tuple):
        return [names[place] for place in places.tolist()]
    return [float(one) for one in names[places]]


def _asked(request: StatisticRequest, pool: Any, keys: Keys | None) -> Any:
    """Return the query of what was found; of keys, how many there are as well."""
    query: Any = request.query
    if keys is None:
        again: Any = bind_query(query.asked, pool.as_columns(looked_at=False))
        return replace(again, names=query.names, description=query.description)
    column = request.pool.sought
    asked = [one for one in query.asked if keys or column not in keys_read(one)]
    known = (KeyCount(str(column), len(keys)), *asked)
    return bind_query(known, pool.as_columns(looked_at=False))
