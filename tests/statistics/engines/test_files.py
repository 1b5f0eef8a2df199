"""A Parquet file of persons is summed where it is, to the integers of memory."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tacit import Effort, Table
from tacit.cli.statistic.commands import read_pool
from tacit.cli.tables import PoolFlags
from tacit.statistics import prepare
from tacit.statistics.engines.files import pool_in_file

from .awkward import LEVELS, ODD, table

QUIET = Effort(trials=0)
# Query, and how many levels are declared of words and of numbers.
QUERIES = (
    ("count", None, None), ("mean", None, None), ("sum by group+count by group", LEVELS, None),
    ("mean by group+count", LEVELS[:2], None), ("std by kind", None, (0, 2)),
    ("correlation", None, None), ("histogram:a:-1,0,1+count by kind", None, (2, 0, 1)),
    ("two-way:group,kind", LEVELS, (0, 1, 2)), ("cumulative:a:-1,0,1", None, None),
    ("least-squares", None, None), ("mean by size", None, None),
)  # fmt: skip


def frame(number):
    """Rows with awkward numbers, names and texts, nothing in some of them."""
    names, groups, numbers = table(number, rows=80)
    rng = np.random.default_rng([79, number])
    groups = [f" {one}\u2003" if rng.random() < 0.2 else one for one in groups]
    groups = [None if rng.random() < 0.05 else "" if rng.random() < 0.05 else one for one in groups]
    found = pd.DataFrame({"who": names, "group": groups, "a": numbers[:, 0], "b": numbers[:, 1]})
    found["kind"] = pd.array(rng.integers(0, 4, len(found)), dtype="Int64")
    found.loc[rng.random(len(found)) < 0.05, "kind"] = pd.NA
    found["size"] = rng.choice([*ODD, 1.0, 2.0], len(found))
    return found


def asked(number):
    query, words, kinds = QUERIES[number % len(QUERIES)]
    levels = {"group": words, "kind": kinds, "size": (1.0, 2.0) if "size" in query else None}
    read = {name: held for name, held in levels.items() if held is not None and name in query}
    columns = [name for name in ("a", "b", *read) if name in read or "a" not in read]
    if query == "count":
        columns = None
    elif ":" in query:
        columns = [name for name in ("a", *read) if name in query or name in read]
    whole = columns is not None and ":" not in query
    bounds = {"a": (-2.0, 1.5), "b": (0.0, 3.0)} if whole else None
    pure = number % 4 == 3
    promise = Table(
        epsilon=0.7, delta=None if pure else 1e-6, person="who", clip=(1.0, 2.5, 40.0)[number % 3],
        bounds=bounds, levels=read or None,
    )  # fmt: skip
    return query, columns, promise


@pytest.mark.parametrize("number", range(3 * len(QUERIES)))
def test_a_file_is_summed_to_the_integers_of_memory(number, tmp_path):
    path, (query, columns, promise) = tmp_path / "t.parquet", asked(number)
    frame(number).to_parquet(path)
    there = pool_in_file(str(path), columns, query, promise)
    assert there is not None
    flags = PoolFlags(columns=None if columns is None else ",".join(columns))
    here = read_pool(str(path), query, None, flags, promise)[0]
    both = [prepare(query, pool, promise, QUIET) for pool in (here, there)]
    assert both[0].planned.details.promise == both[1].planned.details.promise
    ours, theirs = (prepared.plan for prepared in both)
    assert ours.added.query.names == theirs.added.query.names
    assert ours.errors.tolist() == theirs.errors.tolist()
    radius, norm = ours.radius, ours.budget.norm
    assert theirs.radius == radius
    assert theirs.persons.total(theirs.metric, radius, norm).tolist() == (
        ours.persons.total(ours.metric, radius, norm).tolist()
    )
    assert theirs.persons.whole(theirs.metric).tolist() == (
        ours.persons.whole(ours.metric).tolist()
    )


@pytest.mark.parametrize(
    ("query", "columns", "given"),
    [
        ("mean", ["group"], {"bounds": {"group": (0.0, 1.0)}}),
        ("count by kind", None, {"levels": {"kind": ["zero", "one"]}}),
        ("mean by kind", ["a", "missing"], {"bounds": {"a": (0.0, 1.0)}}),
        ("count", None, {"bounds": {"a": (0.0, 1.0)}}),
    ],
)
def test_what_only_a_reader_understands_is_read(query, columns, given, tmp_path):
    path = tmp_path / "t.parquet"
    frame(0).to_parquet(path)
    promise = Table(epsilon=1.0, delta=1e-6, person="who", clip=2, **given)
    assert pool_in_file(str(path), columns, query, promise) is None


@pytest.mark.parametrize("number", range(4))
def test_persons_weigh_at_quantiles_of_a_file_what_they_do_in_memory(number, tmp_path):
    path = tmp_path / "t.parquet"
    frame(number).to_parquet(path)
    levels = [None, {"group": LEVELS}, {"kind": (0, 1)}, {"size": (1.0, 2.0)}][number]
    key = next(iter(levels or ()), "")
    query, columns = (f"quantiles:0.2,0.9 by {key}", ["a", key]) if key else ("median", ["a"])
    promise = Table(mu=1.0, person="who", bounds={"a": (-2.0, 1.5)}, levels=levels)
    there = pool_in_file(str(path), columns, query, promise)
    here = read_pool(str(path), query, None, PoolFlags(columns=",".join(columns)), promise)[0]
    ours, theirs = (prepare(query, pool, promise, QUIET).plan.chooser for pool in (here, there))
    assert len(ours.asked) == len(theirs.asked)
    weighed = 0
    for one, other in zip(ours.asked, theirs.asked, strict=True):
        both: list[dict[int, int]] = [{}, {}]
        for held, chooser, each in zip(both, (ours, theirs), (one, other), strict=True):
            places, weights = chooser.weighed.weights(each)
            for place, weight in zip(places.tolist(), weights.tolist(), strict=True):
                held[place] = held.get(place, 0) + weight
        assert both[0] == both[1]
        weighed += len(both[0])
    assert weighed > 5


def test_found_keys_and_bounds_are_those_of_the_file(tmp_path):
    rng, path = np.random.default_rng(5), tmp_path / "t.parquet"
    rows = pd.DataFrame(
        {"who": rng.integers(0, 900, 5000), "city": rng.choice(["Bern", "Oslo", "few"], 5000,
        p=[0.6, 0.399, 0.001]), "x": rng.uniform(3.0, 50.0, 5000)}
    )  # fmt: skip
    rows.to_parquet(path)
    promise = Table(epsilon=5.0, delta=1e-6, person="who", clip=12, bounds={"x": "auto"})
    there = pool_in_file(str(path), ["x"], "mean by city", promise)
    release = prepare("mean by city", there, promise, QUIET).draw()
    assert release.names == ("keys[city]", "mean[x]|city=Bern", "mean[x]|city=Oslo")
    assert release.values[1:] == pytest.approx([26.5, 26.5], abs=4.0)
    assert dict(release.details.promise.bounds) == {"x": (2.0, 64.0)}
    assert release.details.engine.startswith("DuckDB")


def test_bytes_that_are_no_text_refuse_the_column_that_has_them(tmp_path):
    path = tmp_path / "t.parquet"
    pyarrow = pytest.importorskip("pyarrow")
    # texts with bytes that are none, as other writers leave them
    held = pyarrow.array([b"Bern", b"\xff\xfe"] * 20, pyarrow.binary())
    cells = {"who": np.arange(40) % 9, "bad": held.cast(pyarrow.string(), safe=False)}
    pyarrow.parquet.write_table(pyarrow.table({**cells, "x": np.arange(40.0)}), path)
    promise = Table(epsilon=1.0, delta=1e-6, person="who", bounds={"x": (0, 9)}, clip=4)
    for query in ("mean", "median"):
        assert prepare(query, pool_in_file(str(path), ["x"], query, promise), promise, QUIET)
    promise = replace(promise, bounds=None)
    with pytest.raises(ValueError, match=r"^table: expected texts in UTF-8 in bad, got other"):
        prepare("count by bad", pool_in_file(str(path), None, "count by bad", promise), promise)


def test_the_command_reads_no_row_of_a_file_into_memory(tmp_path, tacit):
    rows, path = frame(3), tmp_path / "t.parquet"
    rows.to_parquet(path)
    out, ledger = tmp_path / "out.json", tmp_path / "ledger.db"
    asked = [
        "statistic", str(path), "--query", "mean by kind", "--columns", "a", "--person", "who",
        "--protect", "table", "--epsilon", "1", "--delta", "1e-6", "--bounds", "a=0:1",
        "--levels", "kind=0,1,2", "--clip", "5", "--json", str(out), "--ledger", str(ledger),
    ]  # fmt: skip
    told = tacit(*asked)
    assert "engine       DuckDB" in told.out
    written = json.loads(out.read_text())["provenance"]
    # the ledger knows the rows by what they are, whatever file they are in
    rows.to_csv(tmp_path / "t.csv", index=False)
    named = PoolFlags().fingerprints(str(tmp_path / "t.csv")).rows
    assert written["secret"] == named
    assert written["data_rows"] is None
