"""How little noise any pairing of Iris could do with: branch and bound over partners.

The least noise that covers some pairs is a lower bound for every pairing that has them, so that
partners of the rows that lie alone are tried one by one, and dropped where the pairs so far need
as much as the target already. A target that no branch stays below is refuted for all pairings.
"""

from __future__ import annotations

import sys

import numpy as np
from rich.console import Console
from sklearn.datasets import load_iris

from tacit import Effort, Rows, prepare
from tacit.design import worst_case
from tacit.releases.strength import gaussian_mu
from tacit_lab.studies.pac.state import write
from tacit_lab.studies.places import RESULTS

SUCCESS = 0.55
# Of rows that lie alone, those whose partners are counted before one is branched on.
TRIED = 6
# Shares of the noise of our own pairing that are refuted.
SHARES = {"Iris, cm": 0.93, "Iris": 0.98}


def main() -> int:
    """Refute what can be, print it and write the JSON."""
    iris = np.asarray(load_iris().data)
    pools = {"Iris, cm": iris, "Iris": (iris - iris.mean(axis=0)) / iris.std(axis=0)}
    console, results = Console(), {}
    mu, drawn = gaussian_mu(success=SUCCESS), len(iris) // 2
    for name, rows in pools.items():
        prepared = prepare("mean", rows, Rows(success=SUCCESS), Effort(trials=0), cost="squared")
        ours = float(np.sqrt(np.square([entry.error for entry in prepared.expected]).sum()))
        least = SHARES[name] * ours
        if not out_of_reach(rows, least * mu * drawn):
            raise ArithmeticError(f"{name}: noise of {least:.4g} is not refuted")
        widths = 0.5 * (rows.max(axis=0) - rows.min(axis=0))
        private = float(widths.sum()) / (mu * drawn)
        results[name] = {"ours": ours, "no pairing below": least, "differential privacy": private}
        console.print(f"{name}: {ours:.4g}, no pairing below {least:.4g}", highlight=False)
        console.print(
            f"differential privacy {private:.4g}: {private / ours:.2f} times ours, at most "
            f"{private / least:.2f} times that of any pairing",
            highlight=False,
        )
    write(RESULTS / "statistics-by-pairs-optimum.json", results)
    return 0


def out_of_reach(rows: np.ndarray, target: float) -> bool:
    """Return whether no pairing has √tr Σ below the target, for swaps at distance 1."""
    lengths = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    np.fill_diagonal(lengths, np.inf)
    return _refuted(rows, lengths, target, [], frozenset(range(len(rows))))


def _refuted(
    rows: np.ndarray,
    lengths: np.ndarray,
    target: float,
    pairs: list[tuple[int, int]],
    free: frozenset[int],
) -> bool:
    places = np.array(sorted(free))
    if not places.size:
        return False
    apart = _metric(rows, pairs)[np.ix_(places, places)]
    np.fill_diagonal(apart, np.inf)
    fewest: tuple[int, list[int]] | None = None
    for place in np.argsort(-apart.min(axis=1))[:TRIED].tolist():
        row = int(places[place])
        near = [int(one) for one in places if lengths[row, one] < target]
        near = [one for one in near if _least(rows, [*pairs, (row, one)]) < target]
        if fewest is None or len(near) < len(fewest[1]):
            fewest = row, near
        if not near:
            return True
    assert fewest is not None
    row, near = fewest
    # an open end is found sooner where the nearest partner comes first
    near.sort(key=lambda one: apart[np.searchsorted(places, row), np.searchsorted(places, one)])
    return all(
        _refuted(rows, lengths, target, [*pairs, (row, one)], free - {row, one}) for one in near
    )


def _metric(rows: np.ndarray, pairs: list[tuple[int, int]]) -> np.ndarray:
    """Return squared distances between rows in the noise that covers some pairs."""
    size = rows.shape[1]
    covariance = np.eye(size)
    if pairs:
        found = worst_case(_swaps(rows, pairs), 1.0).covariance.to_dense()
        covariance = found + 1e-6 * np.trace(found) * np.eye(size)
    white = rows @ np.linalg.cholesky(np.linalg.inv(covariance))
    return np.square(white[:, None] - white[None]).sum(axis=2)


def _least(rows: np.ndarray, pairs: list[tuple[int, int]]) -> float:
    """Return a lower bound on √tr Σ of noise that covers some pairs."""
    design = worst_case(_swaps(rows, pairs), 1.0)
    return float(np.sqrt(design.cost * (1.0 - design.gap)))


def _swaps(rows: np.ndarray, pairs: list[tuple[int, int]]) -> np.ndarray:
    first, second = np.array(pairs).T
    return rows[first] - rows[second]


if __name__ == "__main__":
    sys.exit(main())
