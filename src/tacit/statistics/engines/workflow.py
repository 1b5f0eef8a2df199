"""From a SELECT and declared tables to numbers about people that are certified."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tacit._ground.checks import RandomSource
from tacit._ground.reprs import shown
from tacit.releases.promises import AUTO, Effort, Table
from tacit.releases.release import Release
from tacit.statistics.caps import caps_of
from tacit.statistics.engines.caps import CapStatement
from tacit.statistics.engines.contributors import InEngine
from tacit.statistics.engines.expressions import refused
from tacit.statistics.engines.keys import KeysInEngine, parts_in_engine
from tacit.statistics.engines.reading import columns_named, parse, select, tables_of
from tacit.statistics.engines.schema import TableThere
from tacit.statistics.engines.selection import Key, Selection
from tacit.statistics.people.found import Asking, Keys, prepare_found
from tacit.statistics.people.radius import TooFewSumsError
from tacit.statistics.people.workflow import FALLBACK_CLIP, prepare
from tacit.statistics.pools import NOMINAL_ENDS, Pool, key_word
from tacit.statistics.prepared import PreparedNumbers, StatisticRequest
from tacit.statistics.queries.counts import KeyCount
from tacit.statistics.queries.language import bind_query
from tacit.statistics.queries.statistic import Columns, SumQuery
from tacit.statistics.tables.table import Category

QUIET = Effort(trials=0)


@dataclass(frozen=True, eq=False)
class Answer:
    """A SELECT that can be answered; no row was read.

    Attributes:
        selection: what it asks.
        request: the same as a statistic.
        prepared: the numbers, certified.
        persons: what the persons add, in their engine.
        clip: whether how far one may move them was declared, found or neither.
    """

    selection: Selection
    request: StatisticRequest = field(repr=False)
    prepared: PreparedNumbers
    persons: InEngine = field(repr=False)
    clip: str

    def explained(self) -> dict[str, Any]:
        """Return what is read, clipped and noised, from what is declared alone."""
        plan: Any = self.prepared.plan
        found, details = self.selection, self.prepared.planned.details
        unit, sums = details.unit, len(plan.added.query.terms)
        told = f"{sums:,} sum{'s' * (sums != 1)}"
        norm = "length" if plan.budget.norm == 2 else "sum of sizes"
        noise = "discrete Gaussian" if plan.budget.norm == 2 else "discrete Laplace"
        far = f"found from the tables for {details.share:.3g} of the budget"
        if plan.radius is not None:
            far = f"{plan.radius * plan.metric.step:.6g} rows at the bounds"
            if self.clip == "found":
                far += ", or found from the tables where enough keys are found"
        weighed = self.request.pool.keys_elsewhere
        return {
            "tables": f"{', '.join(found.tables)}; {found.unit} says whose a row is",
            "rows": [
                f"{name} is taken within {ends[0]:g} and {ends[1]:g}"
                if ends[1] < np.inf
                else f"{name} is taken within bounds that are found for "
                f"{details.ranges.share:.3g} of the budget; here as if within 0 and 1"
                for name, (_, ends) in found.numbers.items()
                if ends is not None
            ],
            **({} if found.caps is None else {"caps": found.caps.caps.words(unit)}),
            "groups": [
                f"{key.name}: {len(key.levels)} declared; rows of others are left out"
                if not key.sought
                else f"{key.name}: none declared; those that enough {unit}s have are found for "
                f"{details.keys.share:.3g} of the budget and a δ of {details.keys.delta:.3g}"
                for key in found.keys
            ],
            **(
                {}
                if not sums
                else {
                    "persons": f"{told}; the {norm} of all that one {unit} adds is clipped: {far}",
                    "noise": f"{noise}, whole and exact, on each of the {told}, outside the engine"
                    if sums > 1
                    else f"{noise}, whole and exact, on that sum, outside the engine",
                }
            ),
            **self._chosen(),
            "guarantee": self.prepared.guarantees[-1].describe(),
            "engine": self.persons.engine,
            **({} if weighed is None else {"keys": weighed.explained(details.keys.most)}),
            **(
                {}
                if not sums
                else {
                    "statement": self.persons.statement(plan.metric).totals(
                        plan.radius or plan.metric.radius(1.0), plan.budget.norm
                    )
                }
            ),
        }

    def _chosen(self) -> dict[str, Any]:
        """Return how quantiles are found, from what is declared alone."""
        chooser = self.prepared.plan.chooser  # type: ignore[attr-defined]
        if chooser is None:
            return {}
        share = self.prepared.planned.details.quantile_share
        count = len(chooser.asked)
        said = f"{count} for {share:.3g} of the budget, each chosen outside "
        said += "the engine among declared points"
        texts = [self.persons.ranked(one).text for one in chooser.asked]
        return {"quantiles": [said, *dict.fromkeys(texts)]}

    def read(self) -> PreparedNumbers:
        """Read the rows, so that all that can fail has been done; return what can be drawn.

        Raises:
            ValueError: the engine cannot read them.
        """
        prepared: Any = self.prepared
        prepared.read()
        return self.prepared


def prepare_sql(
    sql: str,
    tables: Mapping[str, Any],
    promise: Table,
    *,
    public: Collection[str] = (),
    engine: Any = None,
    rng: RandomSource = None,
) -> PreparedNumbers:
    """Certify the answer of a SELECT about people, whose rows stay where they are.

    One statement takes every number within its bounds, to whole numbers, sums them by person, clips
    each person's whole vector and adds them up, in the engine that holds the rows; the noise is
    drawn outside. Whatever else a query may say is refused by the name of the construct.

    Args:
        sql: one SELECT of COUNT(*), COUNT(column), COUNT(DISTINCT person), SUM, AVG, VARIANCE,
            STDDEV and CORR, and ratios of SUM and COUNT, with JOIN, WHERE and GROUP BY.
        tables: what the query names: paths of CSV, Parquet, JSON or DuckDB files, or data frames;
            of an engine, names of its tables.
        promise: a ``Table`` with ``person``, the bounds of the columns that are summed, and the
            values of those that are grouped by as ``levels``: of one column they are found where
            they are left out and ``epsilon`` and ``delta`` are given; without a ``clip`` it is
            found where that can be done, else 10 rows.
        public: names of tables that hold no persons.
        engine: where the tables are; DuckDB in this process when None.
        rng: as for ``prepare``.

    Returns:
        The ``PreparedNumbers``, whose ``draw`` releases them.

    Raises:
        ValueError: a query that is not answered, or tables that cannot be read.

    Example:
        >>> import pandas as pd
        >>> from tacit import Table
        >>> visits = pd.DataFrame({"who": ["a", "a", "b"], "paid": [3.0, 4.0, 5.0]})
        >>> promise = Table(epsilon=1.0, delta=1e-6, person="who", bounds={"paid": (0, 10)}, clip=5)
        >>> prepared = prepare_sql("SELECT AVG(paid) FROM visits", {"visits": visits}, promise)
        >>> [one.name for one in prepared.expected]
        ['AVG(paid)']

    Source: docs/explanation/people.md, docs/how-to/sql.md.
    """
    return answer(sql, tables, promise, public=public, engine=engine, rng=rng).read()


def answer(
    sql: str,
    tables: Mapping[str, Any],
    promise: Table,
    *,
    public: Collection[str] = (),
    engine: Any = None,
    rng: RandomSource = None,
) -> Answer:
    """Return what ``prepare_sql`` prepares, before a row is read.

    Raises:
        ValueError: as ``prepare_sql``.
    """
    if engine is None:
        from tacit.statistics.engines.duck import DuckDB

        engine = DuckDB()
    root = parse(sql)
    there = _opened(tables_of(root), tables, promise, public, engine, columns_named(root))
    bounds, levels = _declared(promise, there, tables, engine)
    try:
        found = select(root, there, engine.dialect, bounds, levels)
    except RecursionError:
        raise ValueError("sql: expected a shorter SELECT, got one too deep to read") from None
    caps = caps_of(promise, grouped=bool(found.keys))
    if caps is not None:
        found = replace(found, caps=CapStatement(caps, engine.dialect))
    clip = promise.declared_clip
    try:
        return _certified(sql, found, promise, engine, rng, clip or AUTO)
    except TooFewSumsError:
        if clip is not None:
            raise
        return _certified(sql, found, promise, engine, rng, FALLBACK_CLIP)


def _opened(
    asked: Mapping[str, str],
    tables: Mapping[str, Any],
    promise: Table,
    public: Collection[str],
    engine: Any,
    wanted: tuple[str, ...],
) -> dict[str, TableThere]:
    """Return the tables of a query, by the names that it gives them."""
    if promise.person is None:
        raise ValueError("person: expected the column that says whose a row is, got none")
    for name in public:
        if name not in tables:
            raise ValueError(f"public: expected a table that was declared, got {name!r}")
    found = {}
    for alias, name in asked.items():
        if name not in tables:
            known = ", ".join(tables) or "none"
            raise ValueError(f"table: expected one that was declared ({known}), got {name!r}")
        person = None if name in public else promise.person
        listed = wanted if person is None else tuple(dict.fromkeys((*wanted, person)))
        there = engine.table(name, tables[name], person, listed)
        column = None if person is None else there.column(person)
        if person is not None and column is None:
            raise ValueError(
                f"person: expected a column {person!r} in {name}, got none; public={name} "
                f"(--public-table {name}) says that it holds no persons"
            )
        found[alias] = replace(there, person=None if column is None else column.name)
    return found


def _declared(
    promise: Table, there: Mapping[str, TableThere], tables: Mapping[str, Any], engine: Any
) -> tuple[Any, Any]:
    """Return the bounds and levels of a promise, all of columns of tables that were declared."""
    others: dict[str, TableThere] | None = None
    for argument, given in (("bounds", promise.bounds), ("levels", promise.declared_levels)):
        if given is not None and not isinstance(given, Mapping):
            raise ValueError(f"{argument}: expected them by the names of columns, got another")
        seen: set[str] = set()
        for name, held in (given or {}).items():
            _check_values(argument, name, held)
            if name.lower() in seen:
                raise ValueError(
                    f"{argument}: expected each column once, whatever its capitals, got {name!r} "
                    "twice"
                )
            seen.add(name.lower())
            if _is_of(name, there):
                continue
            if others is None:
                # of a table that the query does not read
                used = {table.name for table in there.values()}
                unread = {key: tables[key] for key in tables if key not in used}
                others = {key: engine.table(key, at, None, (name,)) for key, at in unread.items()}
            if not _is_of(name, others):
                raise ValueError(
                    f"{argument}: expected columns of the declared tables, got {name!r}"
                )
    bounds: Any = promise.bounds or {}
    unknown = (-np.inf, np.inf)
    bounds = {name: unknown if ends == AUTO else ends for name, ends in bounds.items()}
    for name, (low, high) in bounds.items():
        if (low, high) != unknown and not -np.inf < low < high < np.inf:
            raise ValueError(f"bounds: expected lowest < highest for {name!r}, got {low}, {high}")
    return bounds, promise.declared_levels or {}


def _check_values(argument: str, name: Any, held: Any) -> None:
    """Refuse what declares nothing of a column."""
    if not isinstance(name, str):
        raise ValueError(f"{argument}: expected names of columns, got {shown(name)}")
    many = len(held) if hasattr(held, "__len__") else None
    if not many:
        got = shown(held) if many is None else "none"
        raise ValueError(f"{argument}: expected values of {name!r}, got {got}")
    ends = held == AUTO if isinstance(held, str) else many == 2
    if argument == "bounds" and not ends:
        raise ValueError(
            f"bounds: expected lowest and highest of {name!r}, or {AUTO}, got {shown(held)}"
        )


def _is_of(name: str, tables: Mapping[str, TableThere]) -> bool:
    """Whether a name, with its table before a dot or not, is that of a column."""
    alias, dot, column = name.rpartition(".")
    if dot and alias in tables:
        return tables[alias].column(column) is not None
    return any(table.column(name) is not None for table in tables.values())


def _certified(
    sql: str, found: Selection, promise: Table, engine: Any, rng: RandomSource, clip: Any
) -> Answer:
    """Return the answer of a query that was read, under a clip."""
    columns, sought = found.columns, _sought(found, promise)
    first = len(found.numbers)
    unknown = tuple(
        place
        for place, (_, ends) in enumerate(found.numbers.values())
        if ends is not None and ends[1] == np.inf
    )
    categories = {
        key.name: Category(tuple(map(key_word, key.levels)), declared=not key.sought)
        for key in found.keys
    }
    pool = Pool(
        rows=np.zeros((0, len(columns))),
        columns=columns,
        categories=categories,
        bounds={
            place: NOMINAL_ENDS if place in unknown else ends
            for place, (_, ends) in enumerate(found.numbers.values())
            if ends is not None
        },
        levels={
            first + place: tuple(map(float, range(len(key.levels))))
            for place, key in enumerate(found.keys)
            if not key.sought
        },
        elsewhere=lambda added: InEngine(engine, found.rows(), added),
        sought=None if sought is None else sought.name,
        keys_elsewhere=None if sought is None else KeysInEngine.of(engine, found, rng),
        unknown=unknown,
        parts_elsewhere=parts_in_engine(engine, found) if unknown else None,
    )
    promise = replace(promise, clip=clip)
    query = _query(found, pool.as_columns(looked_at=False))
    request = StatisticRequest(query, pool, promise, QUIET, None, rng)

    def told(planned: Release[Any]) -> Release[Any]:
        return replace(planned, details=replace(planned.details, sql=sql))

    def asked(request: StatisticRequest, pool: Pool, keys: Keys | None) -> SumQuery:
        del request
        return _query(found, pool.as_columns(looked_at=False), keys)

    prepared: Any
    if sought is None and not unknown:
        prepared = prepare(request)
        prepared = replace(prepared, planned=told(prepared.planned))
    else:
        prepared = prepare_found(request, Asking(asked, told, named=True))
    said = "declared" if clip != AUTO else "found"
    return Answer(found, request, prepared, prepared.plan.persons, said)


def _sought(found: Selection, promise: Table) -> Key | None:
    """Return the column whose values will be found; None for none.

    Raises:
        ValueError: there are several, or the promise has no δ, without which none is found.
    """
    sought = [key for key in found.keys if key.sought]
    if not sought:
        return None
    construct = f"GROUP BY {', '.join(key.name for key in sought)} without values"
    if len(sought) > 1:
        raise refused(
            construct, "those of one column are found; declare the others' (--keys, levels=)"
        )
    if promise.epsilon is None or promise.delta is None:
        raise refused(
            construct,
            "declare them without looking at the table (--keys, levels=), or give epsilon with "
            "delta, by which they are found from it",
        )
    return sought[0]


def _query(found: Selection, columns: Columns, keys: Keys | None = None) -> SumQuery:
    """Return the query with the names that the statement gives its numbers.

    How many ``keys`` were found stands before them; of none there is no other number.
    """
    if keys is not None:
        assert found.sought is not None, "keys are found of a column"
        told = KeyCount(found.sought.name, len(keys))
        rest = _query(found, columns) if keys else None
        whole = bind_query([told, *(() if rest is None else rest.asked)], columns)
        assert isinstance(whole, SumQuery)
        named = (*whole.names[:1], *(() if rest is None else rest.names))
        return replace(whole, names=named)
    query = bind_query(list(found.statistics()), columns)
    assert isinstance(query, SumQuery)
    each = len(query.names) // len(found.asked)
    names = []
    for place, one in enumerate(found.asked):
        own = one.statistic.bind(columns)
        (base,) = own.names()
        group = query.names[place * each : (place + 1) * each]
        names += [f"{one.name}{name.removeprefix(base)}" for name in group]
    words = ", ".join(one.name for one in found.asked)
    by = f" by {', '.join(key.name for key in found.keys)}" if found.keys else ""
    return replace(
        query, names=tuple(names), description=f"{words}{by} of {' and '.join(found.tables)}"
    )
