"""More references than dimensions: the working set, rows in blocks, and what all of them cost."""

import subprocess
import sys

import numpy as np
import pytest

from tacit.design import worst_case


def family(name, m, d, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((m, d))
    if name == "heavy-tails":
        rows *= rng.standard_t(1.5, (m, 1))
    elif name == "near-duplicates":
        base = rng.standard_normal((m // 10, d))
        rows = np.tile(base, (10, 1)) + 1e-9 * rows
    elif name == "graded-columns":
        rows *= np.logspace(0, -4, d)
    elif name == "graded-rows":
        rows *= 10.0 ** rng.uniform(-6, 0, (m, 1))
    return rows


FAMILIES = ["random", "heavy-tails", "near-duplicates", "graded-columns", "graded-rows"]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(("m", "d"), [(20_000, 5), (5_000, 20)])
def test_all_rows_are_within_budget_at_the_gap_asked_for(name, m, d):
    rows = family(name, m, d)
    design = worst_case(rows, 1.0)
    assert 0 <= design.gap <= 1e-6
    # Independent of the code under test: solve in the dense covariance, rows as they came.
    scales = np.sqrt(design.covariance.diagonal())
    whitened = np.linalg.solve(
        np.linalg.cholesky(design.covariance.to_dense() / np.outer(scales, scales)),
        (rows / scales).T,
    )
    assert (whitened**2).sum(axis=0).max() <= 1 + 1e-7
    assert (whitened**2).sum(axis=0).max() >= 1 - 1e-5
    # The dual value of the multipliers returned is a lower bound that no design goes below.
    trace = np.linalg.svd(np.sqrt(design.multipliers)[:, None] * rows, compute_uv=False).sum()
    assert trace**2 / design.multipliers.sum() >= design.cost * (1 - 2e-6)


def test_a_file_a_callable_and_a_reiterable_give_the_noise_of_the_array(tmp_path):
    rows, budgets = family("heavy-tails", 30_000, 6), np.linspace(0.5, 2.0, 30_000)
    np.save(tmp_path / "rows.npy", rows)
    known = worst_case(rows, budgets)

    class Files:
        def __iter__(self):
            return iter(np.array_split(rows, 7))

    for source in (
        np.load(tmp_path / "rows.npy", mmap_mode="r"),
        lambda: iter(np.array_split(rows, 7)),
        Files(),
    ):
        design = worst_case(source, budgets)
        assert design.cost == pytest.approx(known.cost, rel=2e-6)
        assert design.gap <= 1e-6
        assert (design.covariance.mahalanobis(rows) <= budgets * (1 + 1e-7)).all()
        assert design.constraint_factor is None
        assert design.multipliers.size == design.working_set.size
        used = rows[design.working_set]
        trace = np.linalg.svd(np.sqrt(design.multipliers)[:, None] * used, compute_uv=False).sum()
        dual = 2 * trace - (design.multipliers * budgets[design.working_set]).sum()
        assert dual == pytest.approx(design.cost, rel=3e-6)


MEMORY = """
import resource, sys
import numpy as np
from tacit.design import worst_case

blocks, before = int(sys.argv[1]), 0

def read():
    for seed in range(blocks):
        yield np.random.default_rng(seed).standard_normal((100_000, 4))

design = worst_case(read, 1.0)
print(design.gap, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.thorough
def test_memory_does_not_grow_with_rows_that_are_read_in_blocks():
    peaks = []
    for blocks in (2, 20):
        run = subprocess.run(
            [sys.executable, "-c", MEMORY, str(blocks)], capture_output=True, text=True, check=True
        )
        gap, peak = run.stdout.split()
        assert float(gap) <= 1e-6
        peaks.append(int(peak))
    # Eighteen more blocks of 3 MB each would be 56 MB; kilobytes here.
    assert peaks[1] - peaks[0] < 20_000


def test_rows_of_a_histogram_cover_the_sum_that_never_changes():
    rng = np.random.default_rng(0)
    left, entered = rng.integers(0, 12, 5_000), rng.integers(0, 12, 5_000)
    rows = np.eye(13)[left] - np.eye(13)[entered]
    design = worst_case(rows, 0.5)
    assert design.gap <= 1e-6
    # A cell that no row touches gets no noise at all.
    assert design.covariance.diagonal()[12] == 0.0
    assert not design.sample(5, rng=0)[:, 12].any()
    # All cells alike: m = 12 vertices of a simplex, each edge a difference.
    assert design.cost == pytest.approx(worst_case(np.unique(rows, axis=0), 0.5).cost, rel=1e-6)
    assert np.ptp(design.covariance.diagonal()[:12]) <= 0.02 * design.covariance.diagonal().max()


@pytest.mark.parametrize("rank", [1, 4])
def test_many_rows_under_a_cost_that_ignores_directions(rank):
    rng = np.random.default_rng(rank)
    rows, root = rng.standard_normal((5_000, 6)), rng.standard_normal((6, rank))
    fisher = root @ root.T
    design = worst_case(rows, 1.0, cost=fisher)
    assert design.gap <= 1e-6
    assert (design.covariance.mahalanobis(rows) <= 1 + 1e-7).all()
    assert design.covariance.weighted_trace(fisher) == pytest.approx(design.cost, rel=1e-6)
    free = worst_case(rows, 1.0, cost=np.eye(6)[0])
    assert free.cost == pytest.approx((rows[:, 0] ** 2).max(), rel=1e-6)


@pytest.mark.parametrize(
    ("differences", "budgets", "options", "message"),
    [
        (iter([np.eye(3)]), 1.0, {}, "differences: expected rows that can be read several times"),
        (lambda: iter([]), 1.0, {}, "differences: expected at least one row, got none"),
        (
            lambda: iter([np.eye(3), np.eye(4)]),
            1.0,
            {},
            "differences: expected blocks of 3 columns, got 4 from row 3 on",
        ),
        (lambda: iter([np.full((2, 2), np.nan)]), 1.0, {}, "differences: expected finite numbers"),
        (lambda: iter([np.eye(3)]), [1.0, 1.0], {}, "budgets: expected 3 entries or more, got 2"),
        (lambda: iter([np.eye(3)]), np.ones(4), {}, "budgets: expected 3 entries, got 4"),
        (lambda: iter([np.eye(3)]), 0.0, {}, "budgets: expected numbers > 0"),
        (lambda: iter([np.eye(3)]), 1.0, {"gram": np.eye(3)}, "gram: expected None where"),
        (lambda: iter([np.eye(3)]), 1.0, {"warm_start": [1.0]}, "warm_start: expected None where"),
        (np.full((3, 2), 1e200), 1e-250, {}, "differences: expected lengths between"),
        (np.full((2, 3), 1e-200), 1e250, {}, "differences: expected lengths between"),
        (
            np.array([[1e150, 0.0], [0.0, 1e-150], [1.0, 1e-150]]),
            1.0,
            {},
            "differences: expected columns within",
        ),
    ],
)
def test_bad_rows_get_a_sentence(differences, budgets, options, message):
    with pytest.raises(ValueError, match=message):
        worst_case(differences, budgets, **options)


def test_a_callable_that_changes_its_rows_is_refused():
    calls = []

    def shrinking():
        calls.append(1)
        return iter([np.ones((4 if len(calls) < 4 else 3, 2)) * [1.0, 2.0]])

    with pytest.raises(ValueError, match="expected the same 4 rows whenever they are read, got 3"):
        worst_case(shrinking, 1.0)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (lambda: None, "a callable that returns an iterator of blocks, got NoneType"),
        (lambda n: n, "a callable without arguments"),
    ],
)
def test_a_callable_of_another_kind_is_refused(source, message):
    with pytest.raises(ValueError, match=f"differences: expected {message}"):
        worst_case(source, 1.0)
