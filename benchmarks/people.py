"""Exact whole noise, medians, keys and a statistic of people, in processor seconds beside peers.

``make bench`` runs it; ``python -m benchmarks.people --rows 100000`` on a smaller table. Draws are
of one thread, OpenDP's of its own sampler. Persons are by Zipf's law, in 100 groups; pandas sums by
person and group, clips nothing and adds no noise.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import opendp.prelude as dp
import pandas as pd

from tacit import Effort, Table, prepare, privatize
from tacit.design.grid import discrete_gaussian, discrete_laplace, random_bits
from tacit.releases.strength import gaussian_mu
from tacit.statistics.people.keys import KeySearch, find_keys

DRAWS, SCALE = 60_000, 1_000
PERSONS, GROUPS, CLIP = 100_000, 100, 20.0


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def rates() -> None:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    asked = parser.parse_args()
    rates()
    quantiles()
    keys()
    table(asked.rows)


if __name__ == "__main__":
    main()
