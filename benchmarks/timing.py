"""Whether the time of a release tells which of two neighbouring tables it is of.

Two tables that differ in one row, of extremes instead of the middle, are released in turn, in an
order by coins. Told are the chance that a run of one takes longer than a run of the other (½: no
difference), and the correlation of ranks between the time and how far the noise moved the last
number (0: the released value does not set the time), each with its 95% interval where there is
none: ½ ± 1.96 √((2n + 1)/12n²) and ± 1.96/√(2n − 1) for n runs of each.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from rich.console import Console
from rich.table import Table as Shown
from scipy.stats import rankdata

from tacit import Effort, Table, privatize

ROWS = 2_000
WARM = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000, help="of each of the two tables")
    runs = parser.parse_args().runs
    # which table comes next may follow no pattern of the machine
    coins = np.random.default_rng(0)
    first = coins.uniform(0.4, 0.6, (ROWS, 3))
    second = first.copy()
    first[0], second[0] = 0.5, (1.0, 0.0, 1.0)
    people = np.array([f"p{row // 4}" for row in range(ROWS)])
    table = Shown("release", "a run, ms", "longer", "without a difference", "rank correlation", "±")
    for name, released in {
        "mean of three columns": lambda rows: _released("mean", rows),
        "mean, 500 persons": lambda rows: _released(
            "mean", _of(people, rows), person="who", clip=4
        ),
    }.items():
        table.add_row(name, *_told(released, (first, second), runs, coins))
    Console(width=120).print(table)


def _of(people: npt.NDArray[Any], rows: npt.NDArray[Any]) -> pd.DataFrame:
    return pd.DataFrame({"who": people, **dict(zip("abc", rows.T, strict=True))})


def _released(query: str, rows: Any, **of: Any) -> float:
    bounds: Any = dict.fromkeys("abc", (0.0, 1.0)) if of else [(0.0, 1.0)] * 3
    release = privatize(
        query, rows, Table(epsilon=1.0, delta=1e-6, bounds=bounds, **of), Effort(trials=0)
    )
    return float(np.ravel(release.values)[-1])


def _told(
    released: Callable[[npt.NDArray[Any]], float],
    tables: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    runs: int,
    coins: np.random.Generator,
) -> tuple[str, ...]:
    order = coins.permutation(np.repeat([0, 1], runs))
    for which in range(WARM):
        released(tables[which % 2])
    seconds, values = np.empty(2 * runs), np.empty(2 * runs)
    for place, which in enumerate(order):
        begin = time.perf_counter()
        values[place] = released(tables[which])
        seconds[place] = time.perf_counter() - begin
    ranks = rankdata(seconds)
    # the Mann-Whitney statistic over n²
    longer = (ranks[order == 1].sum() - runs * (runs + 1) / 2.0) / runs**2
    beside = 1.96 * math.sqrt((2 * runs + 1) / (12.0 * runs**2))
    moved = rankdata(np.abs(values - np.median(values)))
    correlation = float(np.corrcoef(ranks, moved)[0, 1])
    return (
        f"{1e3 * float(np.median(seconds)):.2f}", f"{longer:.3f}", f"0.5 ± {beside:.3f}",
        f"{correlation:+.3f}", f"{1.96 / math.sqrt(2 * runs - 1):.3f}",
    )  # fmt: skip


if __name__ == "__main__":
    main()
