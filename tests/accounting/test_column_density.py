"""The density of a projected column against a fine sum in the logarithm of its length."""

import math

import numpy as np
import pytest

from tacit.accounting.mechanisms import column
from tacit.accounting.mechanisms.column_density import ColumnDensity


def summed(density: ColumnDensity, along: float, across: float) -> tuple[float, int]:
    """ln p(y) by 400,001 nodes in ln t from the law itself, and how many peaks it has."""
    rank, dim, square = density.rank, density.dim, density.noise**2
    logs = np.linspace(-80.0, 8.0, 400_001)
    lengths = np.exp(logs)
    variance = square + lengths / rank
    exponents = (
        rank / 2 * (math.log(rank / 2) + logs)
        - rank / 2 * lengths
        - math.lgamma(rank / 2)
        - (along - lengths) ** 2 / (2 * square)
        - across**2 / (2 * variance)
        - (dim - 1) / 2 * np.log(variance)
        - dim / 2 * math.log(2 * math.pi)
        - math.log(density.noise)
    )
    top = exponents.max()
    total = np.exp(exponents - top).sum() * (logs[1] - logs[0])
    rises = np.diff(exponents) > 0
    return float(top + math.log(total)), int(np.sum(rises[:-1] & ~rises[1:]))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dim", [10, 20, 45])
@pytest.mark.parametrize("noise", [0.05, 0.2, 0.5])
def test_both_peaks_are_integrated(rank: int, dim: int, noise: float) -> None:
    # between the two peaks: so far out that no noise and a long column are as likely
    rng = np.random.default_rng(rank * dim)
    along = noise * rng.uniform(4, 8, 12) + rng.uniform(0, 1, 12)
    across = noise * math.sqrt(dim) * rng.uniform(0.2, 1.2, 12)
    density = ColumnDensity(dim, rank, noise)
    value, slope = density.log_density(np.hypot(along, across), np.arctan2(along, across))
    step = 1e-5
    ends = [
        density.log_density(np.hypot(along, across), np.arctan2(along, across) + sign * step)[0]
        for sign in (-1, 1)
    ]
    expected = [
        summed(density, *pair) for pair in zip(along.tolist(), across.tolist(), strict=True)
    ]
    np.testing.assert_allclose(value, [each[0] for each in expected], atol=2e-5)
    np.testing.assert_allclose(slope, (ends[1] - ends[0]) / (2 * step), rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize(("dim", "rank", "noise"), [(40, 1, 1.0), (100, 4, 0.3), (1000, 8, 0.3)])
def test_the_valley_is_where_the_law_of_the_length_has_its_least(
    dim: int, rank: int, noise: float
) -> None:
    rng = np.random.default_rng(0)
    along, across = np.exp(rng.uniform(-3, 6, 600)), np.exp(rng.uniform(-4, 9, 600))
    found = ColumnDensity(dim, rank, noise)._valley(along, across)
    # ln p(y | t) p(ln t) on a grid of ln t, but for what does not depend on t
    logs = np.linspace(-12.0, 12.0, 2401)
    lengths = np.exp(logs)
    variance = noise**2 + lengths / rank
    given = (
        rank / 2 * (logs - lengths)
        - (along[:, None] - lengths) ** 2 / (2 * noise**2)
        - across[:, None] ** 2 / (2 * variance)
        - (dim - 1) / 2 * np.log(variance)
    )
    rises = np.diff(given) > 0
    least = ~rises[:, :-1] & rises[:, 1:]
    assert least.any()
    np.testing.assert_array_equal(np.isfinite(found), least.any(axis=1))
    row, place = np.nonzero(least)
    np.testing.assert_allclose(found[row], logs[place + 1], atol=0.02)


def test_where_y_is_likely_all_digits_hold() -> None:
    rng = np.random.default_rng(5)
    for rank, dim, noise in ((1, 2, 0.1), (1, 20, 0.5), (3, 10, 2.0), (5, 45, 0.02)):
        length = rng.chisquare(rank, 10) / rank
        along = length + noise * rng.normal(size=10)
        across = np.sqrt((noise**2 + length / rank) * rng.chisquare(dim - 1, 10))
        density = ColumnDensity(dim, rank, noise)
        value, _ = density.log_density(np.hypot(along, across), np.arctan2(along, across))
        pairs = zip(along.tolist(), across.tolist(), strict=True)
        expected = [summed(density, *pair)[0] for pair in pairs]
        np.testing.assert_allclose(value, expected, atol=1e-9)


@pytest.mark.parametrize(
    ("dim", "rank", "noise", "angle"), [(3, 1, 0.1, 1.5), (6, 2, 0.5, 0.7), (30, 5, 0.1, 1.5)]
)
def test_the_slack_of_a_cell_covers_its_parabola(
    dim: int, rank: int, noise: float, angle: float
) -> None:
    rng = np.random.default_rng(1)
    curve = column.ColumnCurve(dim, rank, angle, noise)
    cells = curve._cells
    centre = curve.masses.sum(axis=1).argmax()
    radius = np.exp(curve._density.radii[0][centre])
    here = curve._angles[centre, rng.integers(20, 44, 4)]

    def loss(points: np.ndarray) -> np.ndarray:
        turned = np.arcsin(column._turn(here, angle, points))
        own, _ = curve._density.log_density(radius, here)
        return own.reshape(-1, 1, 1) - curve._density.log_density(radius, turned)[0]

    first, last = np.arcsin(cells.points[:, [0]]), np.arcsin(cells.points[:, [2]])
    inside = first + (last - first) * (1 + column.GAUSS) / 2
    weights = np.cos(inside) ** (dim - 3) * column.GAUSS_WEIGHTS
    weights /= weights.sum(axis=1, keepdims=True)
    true, three = loss(np.sin(inside)), loss(cells.points)
    floor, ceiling = column.extremes(three, np.zeros(three.shape[:2]))
    kept = cells.masses > 1e-14
    assert np.all((true >= floor[..., None])[:, kept])
    assert np.all((true <= ceiling[..., None])[:, kept])
    share = column.ceiling_share(three, floor, ceiling, cells)
    mean = np.sum(weights * -np.expm1(floor[..., None] - true), axis=2)
    assert np.all((share * -np.expm1(floor - ceiling) >= mean - 1e-13)[:, kept])


def test_two_peaks_are_met() -> None:
    density = ColumnDensity(45, 3, 0.05)
    pairs = [(0.963, 0.224), (1.06, 0.191)]
    assert [summed(density, *pair)[1] for pair in pairs] == [2, 2]
    for along, across in pairs:
        radius, angle = (
            np.array([math.hypot(along, across)]),
            np.array([[math.atan2(along, across)]]),
        )
        line, _ = density.log_lines(radius, angle + np.linspace(-0.3, 0.3, 41))
        assert line[0, 20] == pytest.approx(summed(density, along, across)[0], abs=1e-6)
