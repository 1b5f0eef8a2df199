"""Exact whole noise, medians, keys and a statistic of people, in processor seconds beside peers.

``make bench`` runs it; ``python -m benchmarks.people --rows 100000`` on a smaller table. Draws are
of one thread, OpenDP's of its own sampler. Persons are by Zipf's law, in 100 groups; pandas sums by
person and group, clips nothing and adds no noise. ``--engine 10000000`` asks DuckDB for counts and
means by group of a Parquet file of so many rows and 99,800 persons, beside pandas, and OpenDP's
count and sum of one column; each in a process of its own that did so
of 1,000 rows before, by processor seconds and peak memory.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tacit import Effort, Table, prepare, privatize
from tacit.design.grid import discrete_gaussian, discrete_laplace, random_bits
from tacit.guarantees.adjacency import Adjacency
from tacit.releases.strength import gaussian_mu
from tacit.statistics.engines.workflow import answer
from tacit.statistics.people.keys import KeySearch, find_among, find_keys
from tacit.statistics.people.ranges import SHARE, RangeSearch, weigh_parts

DRAWS, SCALE = 60_000, 1_000
PERSONS, GROUPS, CLIP = 100_000, 100, 20.0


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def rates() -> None:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    bits, zeros = random_bits(None), [0] * DRAWS
    integers = dp.vector_domain(dp.atom_domain(T=int))
    gaussian = dp.m.make_gaussian(integers, dp.l2_distance(T=float), scale=float(SCALE))
    laplace = dp.m.make_laplace(integers, dp.l1_distance(T=int), scale=float(SCALE))
    for law, ours, theirs in (
        ("Gaussian", lambda: [discrete_gaussian(SCALE**2, bits) for _ in zeros], gaussian),
        ("Laplace", lambda: [discrete_laplace(SCALE, bits) for _ in zeros], laplace),
    ):
        mine, other = DRAWS / seconds(ours), DRAWS / seconds(lambda draw=theirs: draw(zeros))
        ratio = mine / other
        print(f"discrete {law}: {mine:,.0f} a second, OpenDP {other:,.0f}, ratio {ratio:.2f}")


def table(rows: int) -> None:
    import pandas as pd

    source = np.random.default_rng(0)
    who, group = source.zipf(1.3, rows) % PERSONS, source.integers(0, GROUPS, rows)
    frame = pd.DataFrame({"who": who, "group": group, "number": source.normal(50.0, 10.0, rows)})
    promise = Table(
        epsilon=1.0, delta=1e-6, person="who", clip=CLIP,
        bounds={"number": (0.0, 100.0)}, levels={"group": list(range(GROUPS))},
    )  # fmt: skip
    effort = Effort(trials=0)
    ours = seconds(lambda: privatize("mean by group", frame, promise, effort))
    theirs = seconds(lambda: frame.groupby(["who", "group"])["number"].agg(["sum", "count"]))
    print(f"mean by group of {rows:,} rows: {ours:.1f} s, pandas {theirs:.2f} s")


def quantiles() -> None:
    """Ranks of released medians of persons, of all of ε = 1, of which the value takes 80%."""
    source = np.random.default_rng(1)
    for persons in (1_000, 10_000):
        numbers = source.lognormal(3.0, 0.5, persons)
        rows = np.column_stack([numbers, np.arange(persons)])
        promise = Table(epsilon=1.0, person="who", bounds={"number": (0.0, 1_000.0)})
        plan = prepare("median", rows, promise, Effort(trials=0), columns=["number", "who"]).plan
        found = [abs((numbers <= plan.draw(None)[0][0]).mean() - 0.5) for _ in range(200)]
        ranks = np.quantile(found, [0.5, 0.95])
        print(f"median of {persons:,} persons, rank off by {ranks[0]:.4f}, 95% {ranks[1]:.4f}")


def keys() -> None:
    """Keys that are found where all of (1, 10⁻⁶) is spent on them."""
    import pandas as pd

    source = np.random.default_rng(0)
    chances = 1.0 / np.arange(1, 10**6 + 1) ** 1.1
    rows = source.geometric(1 / 10.2, PERSONS)
    drawn = source.random(rows.sum()) * chances.sum()
    pairs = np.stack(
        [np.repeat(np.arange(PERSONS), rows), np.searchsorted(chances.cumsum(), drawn)]
    )
    count = np.unique(pairs, axis=1).shape[1]
    mu = gaussian_mu(epsilon=1.0, delta=5e-7)
    for most in (20, 100, 200):
        search = KeySearch.of(mu, 5e-7, 1.0, most=most)
        took, found = time.process_time(), find_keys(*pairs, search, None)
        spent = time.process_time() - took
        print(f"{count:,} pairs, {most} keys a person: {len(found):,} found, {spent:.1f} s")
    # the same by the statements of the engine
    frame = pd.DataFrame({"who": pairs[0], "key": pairs[1]})
    promise = Table(epsilon=1.0, delta=1e-6, person="who", clip=1.0)
    asked = answer("SELECT key, COUNT(*) FROM t GROUP BY key", {"t": frame}, promise)
    search, took = KeySearch.of(mu, 5e-7, 1.0, most=20), time.process_time()
    keys_found = find_among(asked.request.pool.keys_elsewhere, search, random_bits(None))
    spent = time.process_time() - took
    print(f"in DuckDB, 20 keys a person: {len(keys_found):,} found, {spent:.1f} s")


def ranges() -> None:
    """How often bounds are found of persons with one number each, by the search alone."""
    source = np.random.default_rng(2)
    for epsilon, pure in ((0.1, True), (0.1, False)):
        level = epsilon if pure else gaussian_mu(epsilon=epsilon, delta=1e-6)
        # all of it is spent on the search
        level /= SHARE if pure else math.sqrt(SHARE)
        search = RangeSearch.of(["x"], level, pure=pure, adjacency=Adjacency.ADD_REMOVE)
        for persons in (200, 1_000, 5_000):
            told = 0
            for _ in range(40):
                numbers = source.lognormal(10.5, 0.6, persons)
                with contextlib.suppress(ValueError):
                    search.find([weigh_parts(numbers, np.arange(persons), pure=pure)], "", None)
                    told += 1
            law = "Laplace" if pure else "Gaussian"
            print(f"bounds by {law} noise at ε = .1, {persons:,} persons: {told / 40:.0%} found")


def made(rows: int, folder: str) -> str:
    """A Parquet file of persons (48 rows at the median), groups and numbers."""
    import pandas as pd

    source, path = np.random.default_rng(0), f"{folder}/big.parquet"
    sizes = np.exp(source.normal(math.log(48.0), 1.2, 99_800))
    who = source.choice(99_800, rows, p=sizes / sizes.sum())
    # a person visits a few groups
    group = (who + source.zipf(1.8, rows)) % GROUPS
    frame = pd.DataFrame({"who": who, "city": group, "x": source.normal(50.0, 10.0, rows)})
    frame.to_parquet(path)
    frame.head(1000).to_parquet(f"{folder}/small.parquet")
    return path


def in_engine(path: str) -> None:
    from tacit.statistics import prepare_sql

    promise = Table(
        epsilon=1.0, delta=1e-6, person="who", clip=CLIP,
        bounds={"x": (0.0, 100.0)}, levels={"city": list(range(GROUPS))},
    )  # fmt: skip
    sql = "SELECT city, COUNT(*), AVG(x) FROM t GROUP BY city"
    prepare_sql(sql, {"t": path}, promise).draw()


def in_pandas(path: str) -> None:
    import pandas as pd

    pd.read_parquet(path).groupby(["who", "city"])["x"].agg(["sum", "count"])


def in_opendp(path: str) -> None:
    import opendp.prelude as dp
    import pandas as pd

    dp.enable_features("contrib")
    column = pd.read_parquet(path, columns=["x"])["x"].to_numpy().tolist()
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()
    sums = space >> dp.t.then_clamp((0.0, 100.0)) >> dp.t.then_sum()
    counts = space >> dp.t.then_count()
    (sums >> dp.m.then_laplace(1000.0))(column)
    (counts >> dp.m.then_laplace(10.0))(column)


WORK = {"engine": in_engine, "pandas": in_pandas, "opendp": in_opendp}


def apart(path: str) -> None:
    """What each takes in a process of its own: processor seconds and peak memory."""
    for name in WORK:
        told = subprocess.run(
            [sys.executable, "-m", "benchmarks.people", "--work", name, path],
            capture_output=True, text=True, check=True,
        ).stdout.split()  # fmt: skip
        print(f"{name}: {float(told[0]):.2f} s, {float(told[1]):.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--engine", type=int, default=0)
    parser.add_argument("--work", nargs=2, default=None)
    asked = parser.parse_args()
    if asked.work is not None:
        name, path = asked.work
        # what each imports is not counted
        WORK[name](str(Path(path).with_name("small.parquet")))
        took = seconds(lambda: WORK[name](path))
        # ru_maxrss would be that of the process that began this one, where that is larger
        status = Path("/proc/self/status").read_text("utf-8").splitlines()
        peak = next(int(one.split()[1]) for one in status if one.startswith("VmHWM"))
        print(took, peak / 1024.0)
        return
    if asked.engine:
        with tempfile.TemporaryDirectory() as folder:
            apart(made(asked.engine, folder))
        return
    rates()
    quantiles()
    keys()
    ranges()
    table(asked.rows)


if __name__ == "__main__":
    main()
