"""A Parquet file whose rows stay in it: what a statistic of its persons reads is summed there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sqlglot import exp

from tacit._ground.checks import RandomSource
from tacit.releases.promises import AUTO, Table
from tacit.statistics.caps import caps_of
from tacit.statistics.engines.caps import CapStatement
from tacit.statistics.engines.contributors import InEngine
from tacit.statistics.engines.dialects import Dialect
from tacit.statistics.engines.duck import PARQUET, DuckDB
from tacit.statistics.engines.expressions import ExpressionReader
from tacit.statistics.engines.keys import KeysInEngine, parts_in_engine
from tacit.statistics.engines.reading import read_key
from tacit.statistics.engines.schema import (
    DECIMAL,
    FLOAT,
    TEXT,
    WHOLE,
    TableThere,
    TypedColumn,
)
from tacit.statistics.engines.selection import Key, Selection
from tacit.statistics.opening import sought_key
from tacit.statistics.pools import EACH_KEY, NOMINAL_ENDS, Pool, key_word
from tacit.statistics.queries.chosen import chosen_of
from tacit.statistics.queries.language import bind_query, columns_read, keys_read
from tacit.statistics.queries.statistic import SumQuery
from tacit.statistics.tables.table import Category, check_levels, order_levels

ALIAS = "t"
# What a text has around it that is no part of it, as ``str.strip`` takes it away.
SPACES = "".join(chr(one) for one in range(0x3001) if chr(one).isspace())


def pool_in_file(
    path: str, columns: Sequence[str] | None, query: str, promise: Table, rng: RandomSource = None
) -> Pool | None:
    """Return the pool of a Parquet file, no row of which is held in memory; None where one must be.

    Sums are computed where the rows are, as of a SELECT, and are the same integers as in memory.
    What is no number, and words for a column of numbers, are read by ``read_table``.

    Args:
        path: the file.
        columns: names of those to use; None for all that the query reads.
        query: as ``prepare`` takes it, a text that names no column to explain.
        promise: with ``person``.
        rng: of the choice of a person's keys.
    """
    if not _is_parquet(path) or promise.person is None:
        return None
    engine = DuckDB()
    there = engine.table(ALIAS, path, promise.person, ())
    person, names = there.columns.get(promise.person), columns
    names = columns_read(query) if names is None else names
    keys, sought = keys_read(query), sought_key(query, promise, None, {})
    wanted = (*(there.columns if names is None else names), *keys)
    names = tuple(dict.fromkeys(one for one in wanted if one != promise.person))
    if person is None or person.kind not in (WHOLE, TEXT):
        return None
    keys = tuple(dict.fromkeys((*keys, *(promise.declared_levels or ()))))
    if not _readable(there, names, keys, promise):
        return None
    found = _selection(engine.dialect, there, person, names, keys, sought, promise)
    caps = caps_of(promise, grouped=bool(keys))
    if caps is not None:
        found = replace(found, caps=CapStatement(caps, engine.dialect))
    pool = _pool(engine, found, sought, rng)
    # what cannot be asked is refused in the words that it is refused in anyway
    bound: Any = bind_query(query, pool.as_columns(looked_at=False))
    if not isinstance(bound, SumQuery):
        return None
    grouped = {pool.columns.index(name) for name in keys}
    computed = {one.column for one in chosen_of(bound.function)}
    if grouped & computed.union(*(one.factors for one in bound.terms)):
        return None
    return pool


def _is_parquet(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(PARQUET)) == PARQUET
    except OSError:
        return False


def _readable(there: TableThere, names: Sequence[str], keys: Sequence[str], promise: Table) -> bool:
    """Return whether all columns are of types that are read there as they are in memory."""
    declared: Any = promise.declared_levels or {}
    bounds: Any = promise.bounds or {}
    if not all(isinstance(one, Mapping) for one in (declared, bounds)):
        return False
    if not set(declared).union(bounds) <= set(names) <= set(there.columns):
        return False
    if not all(ends == AUTO or ends[0] < ends[1] for ends in bounds.values()):
        # refused in the words of every table
        return False
    for name in names:
        kind, levels = there.columns[name].kind, declared.get(name)
        words = levels is not None and all(isinstance(one, str) for one in levels)
        if name in keys and kind == TEXT and (levels is None or words):
            continue
        if kind not in (WHOLE, FLOAT, DECIMAL) or words:
            return False
    return True


def _selection(
    dialect: Dialect,
    there: TableThere,
    person: TypedColumn,
    names: Sequence[str],
    grouped: Sequence[str],
    sought: str | None,
    promise: Table,
) -> Selection:
    """Return the rows that hold something in every column that is read, as in memory."""
    bounds: Any = promise.bounds or {}
    reader = ExpressionReader(dialect, {ALIAS: there}, {})
    keys, numbers, conditions = [], {}, []
    for name in names:
        if name not in grouped:
            ends = bounds.get(name)
            ends = (-np.inf, np.inf) if ends == AUTO else None if ends is None else tuple(ends)
            cell = reader.cell(ALIAS, there.columns[name])
            numbers[name] = (cell, ends)
            # what is no number is nothing, as where a file is read
            conditions.append(f"{cell} IS NOT NULL")
            continue
        key = _key(reader, there.columns[name], promise)
        keys.append(key)
        # words that nobody declared are nothing; numbers are numbers, of a group or of none
        words = there.columns[name].kind == TEXT and name != sought
        met = f"IN ({', '.join(key.literals)})" if words else "IS NOT NULL"
        conditions.append(f"{key.text} {met}")
    persons = reader.exact(ALIAS, person)
    return Selection(
        asked=(),
        keys=tuple(keys),
        numbers=numbers,
        persons=_plain(persons, dialect) if person.kind == TEXT else persons,
        origin=f"{there.relation} AS {ALIAS}",
        condition=" AND ".join(conditions),
        tables=(there.name,),
        unit=person.name,
    )


def _key(reader: ExpressionReader, column: TypedColumn, promise: Table) -> Key:
    """Return a column that rows are grouped by."""
    levels: Any = promise.declared_levels or {}
    given = levels.get(column.name)
    if column.kind != TEXT:
        numbers = {} if given is None else {column.name: sorted(set(given))}
        return read_key(exp.column(column.name, quoted=True), reader, numbers)
    dialect = reader.dialect
    text = _plain(reader.exact(ALIAS, column), dialect)
    if given is None:
        return Key(column.name, text, (dialect.quoted(EACH_KEY),), (), sought=True)
    words = order_levels(check_levels(column.name, given, "levels"))
    return Key(column.name, text, tuple(map(dialect.quoted, words)), words)


def _plain(text: str, dialect: Dialect) -> str:
    """Return a text of DuckDB in the one spelling that ``plain_text`` gives; NULL for none."""
    spaces = dialect.quoted(SPACES)
    unix = f"REPLACE(TRIM({text}, {spaces}), CHR(13) || CHR(10), CHR(10))"
    lines = f"REPLACE({unix}, CHR(13), CHR(10))"
    return f"(NULLIF(NFC_NORMALIZE({lines}), ''){dialect.bytewise})"


def _pool(engine: DuckDB, found: Selection, sought: str | None, rng: RandomSource) -> Pool:
    first, rows = len(found.numbers), found.rows()
    # numbers are their own codes
    own: dict[int, dict[float, str]] = {
        first + at: dict(zip(map(float, key.levels), key.literals, strict=True))
        for at, key in enumerate(found.keys)
        if key.levels and not isinstance(key.levels[0], str)
    }
    rows = replace(rows, keys={**rows.keys, **own})
    ends = [pair for _, pair in found.numbers.values()]
    unknown = tuple(at for at, pair in enumerate(ends) if pair is not None and pair[1] == np.inf)
    return Pool(
        rows=np.zeros((0, len(found.columns))),
        columns=found.columns,
        categories={
            key.name: Category(tuple(map(key_word, key.levels)), declared=not key.sought)
            for at, key in enumerate(found.keys)
            if first + at not in own
        },
        bounds={
            at: NOMINAL_ENDS if at in unknown else pair
            for at, pair in enumerate(ends)
            if pair is not None
        },
        levels={
            first + at: tuple(own.get(first + at, map(float, range(len(key.levels)))))
            for at, key in enumerate(found.keys)
            if not key.sought
        },
        elsewhere=lambda added: InEngine(engine, rows, added),
        sought=sought,
        keys_elsewhere=None if sought is None else KeysInEngine.of(engine, found, rng),
        unknown=unknown,
        parts_elsewhere=parts_in_engine(engine, found) if unknown else None,
    )
