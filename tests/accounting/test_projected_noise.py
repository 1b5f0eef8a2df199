import math

import numpy as np
import pytest
from scipy.special import gammaln, ndtr
from scipy.stats import chi2, norm

from tacit.accounting import gaussian, projected_plus_noise, vector_projection
from tacit.accounting.mechanisms.column import ColumnCurve, Directions, ceiling_share, extremes
from tacit.accounting.mechanisms.projected_noise import _revealed_length
from tacit.accounting.numerics.lengths import projected_length
from tacit.accounting.numerics.special import chi_square_nodes

NODES, WEIGHTS = np.polynomial.legendre.leggauss(400)


def gaussian_delta(epsilon, square):
    mu = np.sqrt(square)
    return ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)


def chi_square_grid(degrees):
    """Gauss-Legendre nodes in ln x over the law, with its masses."""
    half = degrees / 2
    low, high = (
        math.log(degrees) - 30 / half - 8 / math.sqrt(half),
        math.log(degrees + 90 + 14 * math.sqrt(degrees)),
    )
    u = low + (high - low) * (NODES + 1) / 2
    logs = half * u - np.exp(u) / 2 - half * math.log(2) - gammaln(half)
    return np.exp(u), (high - low) / 2 * WEIGHTS * np.exp(logs)


@pytest.mark.thorough
@pytest.mark.parametrize(("dim", "rank"), [(2, 1), (3, 20), (40, 8), (400, 16)])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0])
def test_one_changed_column_is_the_double_integral(dim, rank, epsilon):
    # ‖Mu‖² = A(A + C)/r², A ~ χ²_r and C ~ χ²_{d−1}
    a, mass_a = chi_square_grid(rank)
    c, mass_c = chi_square_grid(dim - 1)
    square = 0.49 * a[:, None] * (a[:, None] + c) / rank**2
    truth = mass_a @ gaussian_delta(epsilon, square) @ mass_c
    found = projected_plus_noise(
        dim=dim, rank=rank, sensitivity=0.35, noise_std=0.5, difference_rank=1
    ).delta(epsilon)
    assert truth * (1 - 1e-11) <= found <= truth * (1 + 3e-9)


def projections(count, dim, rank, rng):
    return rng.standard_normal((count, dim, rank)) / math.sqrt(rank)


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_matrices_from_the_mechanism(columns, epsilon):
    # M is drawn; given M the release is Gaussian noise on MΔV
    dim, rank, std, count = 10, 4, 2.0, 6000
    rng = np.random.default_rng(4)
    change = np.linalg.qr(rng.standard_normal((dim, columns)))[0] / math.sqrt(columns)
    z = projections(count, dim, rank, rng)
    moved = np.einsum("ndr,ner,ek->ndk", z, z, change)
    distances = np.sqrt((moved**2).sum(axis=(1, 2)))
    values = gaussian_delta(epsilon, (distances / std) ** 2)
    mean, error = values.mean(), values.std() / math.sqrt(count)
    assert mean - 5 * error <= projected_plus_noise(
        dim=dim, rank=rank, sensitivity=1.0, noise_std=std
    ).delta(epsilon)
    if columns == 1:
        exact = projected_plus_noise(
            dim=dim, rank=rank, sensitivity=1.0, noise_std=std, difference_rank=1
        ).delta(epsilon)
        wrong = projected_plus_noise(
            dim=dim, rank=rank, sensitivity=1.0, noise_std=0.9 * std, difference_rank=1
        ).delta(epsilon)
        assert abs(mean - exact) < 5 * error
        assert abs(mean - wrong) > 5 * error


def column_releases(count, vector, rank, std, rng):
    z = projections(count, vector.size, rank, rng)
    inner = np.einsum("ndr,d->nr", z, vector)
    release = np.einsum("ndr,nr->nd", z, inner) + std * rng.standard_normal((count, vector.size))
    return release, (inner**2).sum(axis=1)


def log_density_given_length(release, vector, length, rank, std):
    """Given t = vᵀMv the release is N(tv, σ² vvᵀ + (t/r + σ²)(I − vvᵀ))."""
    along = release @ vector
    across = (release**2).sum(axis=1) - along**2
    spread = length / rank + std**2
    return (
        norm.logpdf(along, length, std)
        - across / (2 * spread)
        - (vector.size - 1) / 2 * np.log(2 * math.pi * spread)
    )


def log_density(release, vector, rank, std):
    """The same with t ~ χ²_r/r integrated out."""
    lengths = chi2.ppf((np.arange(300) + 0.5) / 300, rank) / rank
    logs = [log_density_given_length(release, vector, t, rank, std) for t in lengths]
    return np.logaddexp.reduce(logs)


def two_columns(dim, alignment):
    first = np.eye(dim)[0]
    return first, alignment * first + math.sqrt(1 - alignment**2) * np.eye(dim)[1]


@pytest.mark.parametrize(
    ("dim", "rank", "alignment", "std"), [(6, 3, 0.9, 0.3), (30, 8, 0.97, 0.15)]
)
@pytest.mark.parametrize("epsilon", [0.1, 0.8])
def test_a_column_with_its_length_told_from_the_mechanism(dim, rank, alignment, std, epsilon):
    rng = np.random.default_rng(9)
    pair, count = two_columns(dim, alignment), 60_000
    inside = []
    for vector in pair:
        release, length = column_releases(count, vector, rank, std, rng)
        ours, theirs = (log_density_given_length(release, v, length, rank, std) for v in pair)
        inside.append(ours - theirs > epsilon)
    p, q = (float(event.mean()) for event in inside)
    error = math.sqrt((p * (1 - p) + math.exp(2 * epsilon) * q * (1 - q)) / count)
    measured, at = p - math.exp(epsilon) * q, np.array([epsilon])
    exact = _revealed_length(rank, math.acos(alignment), std)(at)[0]
    wrong = _revealed_length(rank, math.acos(alignment), 0.85 * std)(at)[0]
    assert abs(measured - exact) < 5 * error
    assert abs(measured - wrong) > 5 * error


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("dim", "rank", "alignment", "std"), [(6, 3, 0.9, 0.3), (40, 8, 0.97, 0.02)]
)
@pytest.mark.parametrize("epsilon", [0.1, 0.8])
def test_no_test_of_the_released_column_beats_the_bound(dim, rank, alignment, std, epsilon):
    rng = np.random.default_rng(10)
    pair, count = two_columns(dim, alignment), 10_000
    inside = []
    for vector in pair:
        release, _ = column_releases(count, vector, rank, std, rng)
        ours, theirs = (log_density(release, v, rank, std) for v in pair)
        inside.append(ours - theirs > epsilon)
    p, q = (float(event.mean()) for event in inside)
    error = math.sqrt((p * (1 - p) + math.exp(2 * epsilon) * q * (1 - q)) / count)
    difference = math.sqrt(2 - 2 * alignment)
    bound = projected_plus_noise(
        dim=dim, rank=rank, sensitivity=difference, noise_std=std, alignment=alignment
    ).delta(epsilon)
    weak = projected_plus_noise(
        dim=dim, rank=rank, sensitivity=difference, noise_std=25 * std, alignment=alignment
    ).delta(epsilon)
    assert p - math.exp(epsilon) * q - 5 * error <= bound
    assert p - math.exp(epsilon) * q - 5 * error > weak


@pytest.mark.thorough
def test_a_column_is_no_worse_than_its_projection_or_its_matrix():
    difference = math.sqrt(2 - 2 * 0.99)
    epsilons = [0.0, 0.2, 1.0, 3.0]
    for std in (1e-3, 0.1, 1.0, 30.0):
        column = projected_plus_noise(
            dim=60, rank=12, sensitivity=difference, noise_std=std, alignment=0.99
        ).delta(epsilons)
        assert (column <= vector_projection(dim=60, rank=12, alignment=0.99).delta(epsilons)).all()
        matrix = projected_plus_noise(
            dim=60, rank=12, sensitivity=difference, noise_std=std, difference_rank=1
        )
        assert (column <= matrix.delta(epsilons)).all()


def test_limits_of_the_noise():
    difference = math.sqrt(2 - 2 * 0.9)
    quiet = projected_plus_noise(
        dim=20, rank=5, sensitivity=difference, noise_std=1e-9, alignment=0.9
    )
    assert quiet.delta(0.5) == pytest.approx(
        vector_projection(dim=20, rank=5, alignment=0.9).delta(0.5), rel=1e-9
    )
    # for a large rank M is nearly I
    loud = projected_plus_noise(
        dim=2, rank=10**6, sensitivity=0.5, noise_std=1.0, difference_rank=1
    )
    assert loud.delta(0.5) == pytest.approx(gaussian(0.5, 1.0).delta(0.5), rel=1e-4)
    assert projected_plus_noise(dim=20, rank=5, sensitivity=0.0, noise_std=1.0).delta(0.0) == 0.0
    assert (
        projected_plus_noise(dim=20, rank=5, sensitivity=2.0, noise_std=0.1, alignment=-1.0).delta(
            0.0
        )
        <= 1.0
    )


def test_the_published_length_of_the_revealed_part_is_too_short():
    # lora-privacy, Lemma 14 bounds ‖M∥u‖ for u in S, dim S = s < r, with p = s Gaussian columns
    dim, rank, chance = 100, 400, 1e-3
    tail = math.sqrt(2 * math.log(2 / chance))
    claimed = (math.sqrt(dim) + 1 + tail) * (1 + tail) / rank
    z = projections(300, dim, rank, np.random.default_rng(2))
    row = z[:, 0]  # UᵀZ with U = e₁, whose span is H
    kept = z @ (row / np.linalg.norm(row, axis=1, keepdims=True))[:, :, None]
    lengths = np.linalg.norm(kept[:, :, 0], axis=1) * np.linalg.norm(row, axis=1)
    assert (lengths > claimed).mean() > 0.99


@pytest.mark.parametrize("degrees", [1, 2, 7, 300, 10**6])
def test_chi_square_nodes(degrees):
    step = min(1 / (4.4 * math.sqrt(degrees / 2)), 0.1)
    points, weights = (np.exp(logs) for logs in chi_square_nodes(degrees, step, 55.0))
    assert weights.sum() == pytest.approx(1.0, rel=1e-8)
    assert weights @ points == pytest.approx(degrees, rel=1e-8)
    assert weights @ points**2 == pytest.approx(degrees * (degrees + 2), rel=1e-8)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: projected_plus_noise(dim=1, rank=2, sensitivity=1.0, noise_std=1.0), "dim"),
        (lambda: projected_plus_noise(dim=5, rank=0, sensitivity=1.0, noise_std=1.0), "rank"),
        (
            lambda: projected_plus_noise(dim=5, rank=2, sensitivity=-1.0, noise_std=1.0),
            "sensitivity",
        ),
        (lambda: projected_plus_noise(dim=5, rank=2, sensitivity=1.0, noise_std=0.0), "noise_std"),
        (
            lambda: projected_plus_noise(
                dim=5, rank=2, sensitivity=1.0, noise_std=1.0, alignment=1.0
            ),
            "alignment",
        ),
        (
            lambda: projected_plus_noise(
                dim=5, rank=2, sensitivity=1.0, noise_std=1.0, difference_rank=6
            ),
            "difference_rank",
        ),
    ],
)
def test_bad_input_names_the_argument(call, name):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        call()


@pytest.mark.thorough
@pytest.mark.parametrize(("dim", "rank"), [(3, 20), (60, 2), (100, 50), (2000, 16), (2, 10**5)])
def test_the_law_of_the_projected_length(dim, rank):
    # ‖Mu‖² = A(A + C)/r² with A ~ χ²_r and C ~ χ²_{d−1}
    law = projected_length(dim, rank, 1.0)
    mass, moment = (float(value[0]) for value in law.tail(np.zeros(1)))
    assert 1 - 1e-13 <= mass <= 1 + 1e-9
    assert 1 - 1e-12 <= moment / ((dim + rank + 1) / rank) <= 1 + 1e-9
    rng = np.random.default_rng(12)
    a, c = rng.chisquare(rank, 40_000), rng.chisquare(dim - 1, 40_000)
    squares = a * (a + c) / rank**2
    for share in (0.1, 0.5, 0.99):
        level = float(np.quantile(squares, share))
        error = math.sqrt(share * (1 - share) / squares.size)
        assert abs(float(law.tail(np.array([level]))[0][0]) - (1 - share)) < 5 * error
    wrong = projected_length(dim, rank, math.exp(0.2 * float(np.std(np.log(squares)))))
    level = float(np.quantile(squares, 0.5))
    assert abs(float(wrong.tail(np.array([level]))[0][0]) - 0.5) > 5 * error


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("dim", "rank", "alignment", "std"),
    [(2, 1, 0.9, 0.3), (3, 3, -0.9, 0.3), (6, 3, 0.9, 0.3), (10, 1, 0.0, 1.0), (40, 8, 0.999, 0.2)],
)
def test_a_column_has_the_curve_of_its_exact_loss(dim, rank, alignment, std):
    rng = np.random.default_rng(12)
    pair, count = two_columns(dim, alignment), 10_000
    release, _ = column_releases(count, pair[0], rank, std, rng)
    ours, theirs = (log_density(release, v, rank, std) for v in pair)
    profile = projected_plus_noise(
        dim=dim,
        rank=rank,
        sensitivity=math.sqrt(2 - 2 * alignment),
        noise_std=std,
        alignment=alignment,
    )
    for epsilon in np.quantile(ours - theirs, [0.7, 0.95]).clip(0.0):
        inside = np.maximum(-np.expm1(epsilon - (ours - theirs)), 0.0)
        error = inside.std() / math.sqrt(count)
        found = profile.delta(epsilon)
        assert inside.mean() - 5 * error <= found <= 1.02 * inside.mean() + 5 * error


@pytest.mark.parametrize(("dim", "rank", "noise"), [(2, 1, 0.3), (100, 1, 0.5), (400, 16, 0.5)])
def test_the_nodes_of_a_column_have_all_the_mass(dim, rank, noise):
    masses = ColumnCurve(dim, rank, 0.1, noise).masses
    assert masses.sum() == pytest.approx(1.0, abs=1e-7)


def plane_density(along, across, rank, std):
    """p(y) in two dimensions, t = x² by the midpoint rule over x, whose law has no pole at zero."""
    most = math.sqrt(chi2.isf(1e-14, rank) / rank)
    x = most * (np.arange(500) + 0.5) / 500
    masses = chi2.pdf(rank * x**2, rank) * rank * 2 * x * most / 500
    total = np.zeros(along.shape)
    for length, mass in zip(x**2, masses, strict=True):
        spread = math.sqrt(length / rank + std**2)
        logs = -np.square((along - length) / std) / 2 - np.square(across / spread) / 2
        total += mass * np.exp(logs) / (2 * math.pi * std * spread)
    return total


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rank", "alignment", "std"), [(4, 0.9, 0.3), (5, 0.99, 0.1), (3, 0.0, 1.0), (7, 0.9999, 0.5)]
)
def test_a_column_in_a_plane_is_the_double_integral(rank, alignment, std):
    half = math.acos(alignment) / 2
    x = np.linspace(-8 * std, chi2.isf(1e-9, rank) / rank + 8 * std, 260)
    y = np.linspace(-x[-1], x[-1], 260)
    first, second = x[:, None], y[None]
    laws = [
        plane_density(
            first * math.cos(turn) + second * math.sin(turn),
            first * math.sin(turn) - second * math.cos(turn),
            rank,
            std,
        )
        for turn in (half, -half)
    ]
    area = (x[1] - x[0]) * (y[1] - y[0])
    curve = ColumnCurve(2, rank, 2 * half, std)
    for epsilon in (0.0, 0.1, 1.0):
        truth = area * np.maximum(laws[0] - math.exp(epsilon) * laws[1], 0.0).sum()
        if truth > 1e-6:
            found = curve(np.array([epsilon]))[0]
            assert truth * (1 - 3e-3) <= found <= 1.01 * truth


def test_a_cell_is_replaced_by_its_ends_with_no_less_mass_at_the_upper():
    rng = np.random.default_rng(0)
    places = np.linspace(-1, 1, 2001)
    for _ in range(3000):
        width, bend = 10 ** rng.uniform(-3, 1.5), rng.normal() * rng.uniform()
        loss = width * (places * rng.choice([-1, 1]) + bend * places**2)
        weights = np.exp(places * rng.uniform(-1.5, 1.5))
        weights /= weights.sum()
        three = loss[[0, 1000, 2000]]
        floor, ceiling = extremes(three, np.zeros(()))
        assert floor - 1e-12 <= loss.min()
        assert loss.max() <= ceiling + 1e-12
        cell = Directions(
            np.zeros((1, 3)), np.ones(1), weights @ places, weights @ np.square(places)
        )
        exact = weights @ -np.expm1(-(loss - floor)) / -math.expm1(-(ceiling - floor))
        assert exact <= ceiling_share(three, floor, ceiling, cell) <= exact + 0.01 + 0.5 * width


@pytest.mark.thorough
@pytest.mark.parametrize(("dim", "rank"), [(2, 1), (3, 300), (10**5, 16)])
@pytest.mark.parametrize("alignment", [0.5, 1 - 1e-9])
def test_columns_far_out(dim, rank, alignment):
    difference = math.sqrt(2 - 2 * alignment)
    epsilons = np.array([0.0, 1e-3, 0.5, 5.0, 50.0])
    before = np.ones(epsilons.shape)
    for std in (1e-12, 0.1, 1e9):
        values = projected_plus_noise(
            dim=dim, rank=rank, sensitivity=difference, noise_std=std, alignment=alignment
        ).delta(epsilons)
        assert ((values >= 0) & (values <= 1)).all()
        assert (np.diff(values) <= 1e-6 * values[:-1]).all()
        assert (values <= before * 1.03 + 1e-6).all()
        before = values


@pytest.mark.thorough
def test_closer_columns_are_no_easier_to_tell_apart():
    epsilons = np.array([0.0, 0.2, 1.0, 8.0])
    for dim, rank, std in ((100, 1, 0.05), (20, 2, 0.02)):
        far = np.ones(epsilons.shape)
        for alignment in (-0.9, 0.0, 0.9, 0.999):
            near = ColumnCurve(dim, rank, math.acos(alignment), std)(epsilons)
            assert (near <= 1.02 * far + 1e-6).all()
            far = near


def test_a_far_tail_in_a_plane_is_not_below_the_true_one():
    """True δ on 2880 directions times 700 radii, turned by twelve."""
    angle = math.radians(1.5)
    profile = projected_plus_noise(
        dim=2,
        rank=8,
        sensitivity=2 * math.sin(angle / 2),
        noise_std=0.05,
        alignment=math.cos(angle),
    )
    for epsilon, least in ((2.043637, 6.66e-13), (2.983182, 1.864e-16)):
        assert profile.delta(epsilon) >= least
    assert profile.delta(np.linspace(1.0, 3.0, 41)).tolist() == sorted(
        profile.delta(np.linspace(1.0, 3.0, 41)), reverse=True
    )
