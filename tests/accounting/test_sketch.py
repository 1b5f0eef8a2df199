import math

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.stats import chi2, multivariate_normal

from tacit.accounting import sketch, sketch_from_ratio, sketch_within
from tacit.accounting.numerics.contour import CentredLoss, Contours, log_integrals
from tacit.divergences import renyi_gaussians

from . import quadrature
from .quadrature import assert_tight


@pytest.fixture(autouse=True)
def digits():
    with mp.workdps(40):
        yield


@pytest.mark.parametrize("ratio", [1e-9, 0.01, 0.5, 0.99, 1.01, 1.5, 1 + 1e-9, 40.0])
@pytest.mark.parametrize(("size", "rank"), [(1, 1), (1, 2), (3, 5), (8, 64)])
@pytest.mark.parametrize("share", [0.0, 0.3, 2.0, 6.0])
def test_equal_eigenvalues_are_chi_square_tails(ratio, size, rank, share):
    count = size * rank
    epsilon = share * abs(math.log(ratio)) * math.sqrt(count) / 2
    profile = sketch_from_ratio([ratio] * size, rank)
    above = quadrature.equal_sketch(epsilon, mpf(ratio), count)
    assert_tight(profile.forward(np.array([epsilon]))[0], above)
    # the reverse direction by its own law
    below = quadrature.equal_sketch(epsilon, 1 / mpf(ratio), count)
    assert_tight(profile.backward(np.array([epsilon]))[0], below)
    assert profile.delta(epsilon) >= float(max(above, below))


@pytest.mark.thorough
@pytest.mark.parametrize(("high", "low"), [(1.3, 0.7), (1.01, 0.99), (1.9, 0.1)])
@pytest.mark.parametrize(("many_high", "many_low"), [(1, 1), (2, 5), (24, 8)])
@pytest.mark.parametrize("epsilon", [0.0, 0.05, 1.5])
def test_two_ends_are_the_quadrature(high, low, many_high, many_low, epsilon):
    profile = sketch_from_ratio([high] * many_high + [low] * many_low, 1)
    args = (high, many_high, low, many_low)
    with mp.workdps(25):
        truth = quadrature.two_ended_sketch(epsilon, *(mpf(x) for x in args))
    assert_tight(profile.forward(np.array([epsilon]))[0], truth)


@pytest.mark.parametrize("epsilon", [100.0, 700.0])
def test_far_losses_do_not_overflow(epsilon):
    ratio, count = 400.0, 6
    profile = sketch_from_ratio([ratio] * 3, 2)
    truth = quadrature.equal_sketch(epsilon, mpf(ratio), count)
    assert_tight(profile.forward(np.array([epsilon]))[0], truth)


def test_small_delta_keeps_its_digits():
    profile = sketch(rank=8, dim=8, gamma=0.01)
    epsilon = profile.epsilon(1e-12)
    assert_tight(profile.delta(epsilon), quadrature.equal_sketch(epsilon, mpf("1.01"), 64), 1e-8)


@pytest.mark.parametrize("gamma", [1e-9, 0.01, 0.3, 0.9])
@pytest.mark.parametrize("epsilon", [0.0, 0.2, 2.0])
def test_the_worst_is_at_a_vertex(gamma, epsilon):
    rng = np.random.default_rng(8)
    worst = sketch(rank=3, dim=3, gamma=gamma).delta(epsilon)
    for _ in range(12):
        inner = sketch_from_ratio(1 + gamma * rng.uniform(-1, 1, 3), 3)
        assert inner.forward(np.array([epsilon]))[0] <= worst * (1 + 1e-9) + 1e-34
    ends = [
        sketch_from_ratio([1 + gamma] * m + [1 - gamma] * (3 - m), 3).forward(np.array([epsilon]))[
            0
        ]
        for m in range(4)
    ]
    assert worst == pytest.approx(max(ends), rel=1e-6, abs=1e-34)


@pytest.mark.parametrize(("rank", "dim", "gamma"), [(4, 12, 0.05), (2, 5, 0.95), (16, 3, 1e-4)])
def test_no_split_that_matters_is_passed_over(rank, dim, gamma):
    epsilons = np.array([0.0, 1e-3, 0.1, 1.0, 6.0, 40.0])
    each = [
        sketch_from_ratio([1 + gamma] * m + [1 - gamma] * (dim - m), rank).forward(epsilons)
        for m in range(dim + 1)
    ]
    worst = np.max(each, axis=0)
    np.testing.assert_allclose(
        sketch(rank=rank, dim=dim, gamma=gamma).forward(epsilons), worst, rtol=1e-9
    )


def test_chernoff_bounds_every_split():
    """The bound by which splits are passed over, against the integral of each."""
    dim, rank, gamma = 6, 8, 0.3
    upper = np.arange(1.0, dim)
    for epsilon in (0.0, 0.5, 5.0, 50.0):
        rows = np.full(upper.shape, epsilon)
        paths = Contours.through(
            np.array([gamma, -gamma]), rank * np.stack([upper, dim - upper]), rows
        )
        excess = paths.log_bound() - paths.log_integrals()
        assert (excess >= 0).all()
        assert (excess < 6).all()


GAMMAS = (1e-12, 1e-9, 1e-6, 1e-5, 1e-3, 0.3, 0.99, 1 - 1e-3, 1 - 1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize(("rank", "dim"), [(1, 1), (8, 1), (1, 30), (8, 8), (2, 300), (3000, 2)])
def test_every_gamma_has_an_epsilon(rank, dim, gamma):
    profile = sketch(rank=rank, dim=dim, gamma=gamma)
    advantage = profile.advantage()
    assert 0 < advantage <= 1
    for delta in (advantage / 2, 1e-9 * advantage, 1e-100):
        epsilon = profile.epsilon(delta)
        assert 0 < epsilon < math.inf
        assert profile.delta(epsilon) <= delta < profile.delta(epsilon * (1 - 1e-9))
    # whatever a search may ask for
    assert np.isfinite(profile.delta(2.0 ** np.arange(-1000.0, 1000.0, 50.0))).all()
    assert profile.epsilon(0.0) == math.inf


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("rank", [1, 2, 7, 400])
@pytest.mark.parametrize("delta", [0.01, 1e-9, 1e-30])
def test_every_gamma_in_one_dimension_is_exact(rank, gamma, delta):
    profile = sketch(rank=rank, dim=1, gamma=gamma)
    epsilon = profile.epsilon(delta * profile.advantage())
    with mp.workdps(150):  # the two tails agree in most of their digits
        g = mpf(gamma)
        truth = max(quadrature.equal_sketch(epsilon, ratio, rank) for ratio in (1 + g, 1 - g))
        assert_tight(profile.delta(epsilon), truth, 2e-9)


@pytest.mark.parametrize("gamma", [1e-6, 0.5])
@pytest.mark.parametrize("share", [1e-2])
def test_every_gamma_in_two_dimensions_is_the_worst_of_three(gamma, share):
    profile = sketch(rank=2, dim=2, gamma=gamma)
    epsilon = profile.epsilon(share * profile.advantage())
    g = mpf(gamma)
    with mp.workdps(40):
        mixed = quadrature.two_ended_sketch(epsilon, 1 + g, 2, 1 - g, 2)
        equal = [quadrature.equal_sketch(epsilon, ratio, 4) for ratio in (1 + g, 1 - g)]
        assert_tight(profile.delta(epsilon), max(mixed, *equal), 2e-9)


def test_small_gammas_are_those_of_a_normal_loss():
    """For small γ and many coordinates the loss is nearly N(s²/2, s²), s² = γ² N/2."""
    for gamma in (1e-12, 1e-9, 1e-6):
        spread = gamma * math.sqrt(200_000 / 2)
        normal = spread / math.sqrt(2 * math.pi)
        assert sketch(rank=2000, dim=100, gamma=gamma).advantage() == pytest.approx(
            normal, rel=1e-3
        )


@pytest.mark.thorough
@pytest.mark.parametrize("both_orders", [True, False])
@pytest.mark.parametrize("gamma", [1e-12, 1e-7, 1e-4])
def test_sketches_of_every_gamma_compose(gamma, both_orders):
    single = sketch(rank=8, dim=8, gamma=gamma, both_orders=both_orders)
    composed = single * 100
    # one sketch of 800 columns where all have one covariance; here each may have its own
    together = sketch(rank=800, dim=8, gamma=gamma, both_orders=both_orders)
    for share in (0.3, 1e-3, 1e-6):
        delta = share * together.advantage()
        exact = together.epsilon(delta)
        assert exact <= composed.epsilon(delta) <= exact * 1.1


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rank", "dim", "gamma"),
    [(1, 700, 0.5), (64, 128, 0.1), (3, 300, 1e-6), (2, 260, 0.9), (7, 90, 1 - 1e-6)],
)
def test_the_interpolated_splits_are_the_worst_of_all(rank, dim, gamma):
    profile = sketch(rank=rank, dim=dim, gamma=gamma)
    epsilons = np.array([0.0, *(profile.epsilon(d) for d in (0.9, 0.1, 1e-3, 1e-9, 1e-30))])
    upper = np.arange(dim + 1.0)
    for epsilon in epsilons:
        counts = rank * np.stack([upper, dim - upper])[:, 1:-1]
        excess = np.array([gamma, -gamma])
        inner = log_integrals(excess, counts, np.full(dim - 1, epsilon))
        ends = [CentredLoss(np.array([x]), np.array([float(rank * dim)])) for x in excess]
        logs = [end.log_positive(np.array([epsilon]))[0] for end in ends]
        worst = math.exp(max(inner.max(), *logs))
        assert worst <= profile.forward(np.array([epsilon]))[0] <= worst * (1 + 2e-9) + 1e-299


def test_equal_ends_alone_are_unsound():
    ends = [
        sketch_from_ratio([ratio] * 128, 64).forward(np.array([60.0]))[0] for ratio in (1.1, 0.9)
    ]
    assert sketch(rank=64, dim=128, gamma=0.1).delta(60.0) > 1.005 * max(ends)


@pytest.mark.parametrize(
    ("rank", "dim", "gamma", "epsilon"),
    [(8, 8, 0.01, 0.2221), (16, 64, 0.05, 5.298), (4, 4, 0.3, 5.232)],
)
def test_reference_values(rank, dim, gamma, epsilon):
    assert sketch(rank=rank, dim=dim, gamma=gamma).epsilon(1e-5) == pytest.approx(epsilon, abs=5e-4)


@pytest.mark.parametrize(
    ("rank", "dim", "gamma", "epsilon"),
    [(8, 8, 0.01, 0.2553), (16, 64, 0.05, 5.769), (4, 4, 0.3, 6.083)],
)
def test_reference_values_of_the_best_order(rank, dim, gamma, epsilon):
    orders = np.geomspace(1.001, 1 + 1 / gamma, 6000)[:-1]
    divergence = sketch(rank=rank, dim=dim, gamma=gamma).renyi(orders)
    converted = (
        divergence + np.log1p(-1 / orders) - (math.log(1e-5) + np.log(orders)) / (orders - 1)
    )
    assert converted.min() == pytest.approx(epsilon, abs=5e-4)


def test_one_order_reaches_further_in_reverse():
    both, one = (
        sketch(rank=4, dim=4, gamma=0.3),
        sketch(rank=4, dim=4, gamma=0.3, both_orders=False),
    )
    assert one.epsilon(1e-5) > 1.2 * both.epsilon(1e-5)
    truth = quadrature.equal_sketch(2.0, 1 / (1 - mpf(0.3)), 16)
    assert one.backward(np.array([2.0]))[0] >= float(truth)
    forward = one.forward(np.array([2.0]))[0]
    assert forward == pytest.approx(both.forward(np.array([2.0]))[0], rel=1e-12)


@pytest.mark.parametrize("both_orders", [True, False])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_the_two_directions_are_dual(both_orders, epsilon):
    profile = sketch(rank=3, dim=4, gamma=0.2, both_orders=both_orders)
    ahead = profile.forward(np.array([-epsilon]))[0]
    back = profile.backward(np.array([epsilon]))[0]
    assert ahead == pytest.approx(1 - math.exp(-epsilon) * (1 - back), rel=1e-9)


@pytest.mark.parametrize("ratio", [1.119, 1 / 1.119])
def test_an_interval_that_ends_at_one_is_as_its_other_end(ratio):
    # no eigenvalue on the other side: all at this end are the worst there is
    within = sketch_within(rank=23, dim=4, lowest=min(ratio, 1.0), highest=max(ratio, 1.0))
    known = sketch_from_ratio([ratio] * 4, rank=23)
    for delta in (1e-2, 1e-4, 1e-6):
        assert within.epsilon(delta) == pytest.approx(known.epsilon(delta), rel=1e-9)
        assert within.epsilon(delta) >= known.epsilon(delta) * (1 - 1e-12)


def test_corners_of_gamma():
    assert sketch(rank=5, dim=6, gamma=0.0).delta(0.0) <= 1e-34
    assert sketch(rank=5, dim=6, gamma=0.0).renyi([2.0])[0] == 0.0
    near = sketch(rank=2, dim=2, gamma=1e-12).advantage()
    # γ √(N/(4π)) to first order for small γ, a normal loss, times 1.0… at N = 4
    assert 0.5e-12 < near < 1e-12
    assert sketch(rank=2, dim=2, gamma=1 - 1e-9).advantage() > 0.99
    assert sketch(rank=64, dim=128, gamma=1 - 1e-9).delta(0.0) <= 1.0


def test_the_advantage_of_a_stable_sketch_is_small():
    assert sketch(rank=8, dim=8, gamma=0.01).advantage() < 0.05


@pytest.mark.parametrize("eigenvalues", [[0.8, 1.0, 1.4], [1.05], [0.3, 0.3, 2.0]])
@pytest.mark.parametrize("order", [1.5, 2.0, 3.0])
def test_renyi_is_that_of_the_gaussians(eigenvalues, order):
    size = len(eigenvalues)
    ratio, plain, zero = np.diag(eigenvalues), np.eye(size), np.zeros(size)
    expected = 7 * max(
        renyi_gaussians(zero, ratio, zero, plain, order),
        renyi_gaussians(zero, plain, zero, ratio, order),
    )
    assert sketch_from_ratio(eigenvalues, 7).renyi([order])[0] == pytest.approx(expected, rel=1e-9)


def distance_in_errors(profile, epsilon, first, second, rank, rng, count=60_000):
    """Sketches H Aᵀ are drawn; the set is where their Gaussian densities differ by e^ε."""
    size = first.shape[0]
    inside = []
    for factor in (first, second):
        sketches = factor @ rng.standard_normal((count, factor.shape[1], rank)) / math.sqrt(rank)
        columns = sketches.transpose(0, 2, 1)
        logs = [
            multivariate_normal.logpdf(columns, np.zeros(size), f @ f.T / rank).reshape(count, -1)
            for f in (first, second)
        ]
        inside.append((logs[0] - logs[1]).sum(axis=1) > epsilon)
    p, q = (float(event.mean()) for event in inside)
    error = math.sqrt((p * (1 - p) + math.exp(2 * epsilon) * q * (1 - q)) / count)
    return (p - math.exp(epsilon) * q - profile.forward(np.array([epsilon]))[0]) / error


@pytest.mark.parametrize("epsilon", [0.05, 0.5])
def test_from_the_mechanism(epsilon):
    rng = np.random.default_rng(21)
    rank, wide = 4, 9
    first = rng.standard_normal((3, wide))
    second = first + 0.25 * rng.standard_normal((3, wide))
    half = np.linalg.inv(np.linalg.cholesky(second @ second.T))
    eigenvalues = np.linalg.eigvalsh(half @ first @ first.T @ half.T)
    exact = sketch_from_ratio(eigenvalues, rank)
    assert abs(distance_in_errors(exact, epsilon, first, second, rank, rng)) < 5
    wrong = sketch_from_ratio(eigenvalues * 1.2, rank)
    assert abs(distance_in_errors(wrong, epsilon, first, second, rank, rng)) > 5


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: sketch(rank=0, dim=3, gamma=0.1), "rank"),
        (lambda: sketch(rank=3, dim=0, gamma=0.1), "dim"),
        (lambda: sketch(rank=3, dim=3, gamma=1.0), "gamma"),
        (lambda: sketch(rank=3, dim=3, gamma=-0.1), "gamma"),
        (lambda: sketch_from_ratio([1.0, 0.0], 3), "eigenvalues"),
        (lambda: sketch_from_ratio([], 3), "eigenvalues"),
        (lambda: sketch_from_ratio([1.0], 0), "rank"),
    ],
)
def test_bad_input_names_the_argument(call, name):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        call()


@pytest.mark.parametrize("both_orders", [True, False])
def test_a_sketch_of_many_columns_falls_in_epsilon(both_orders):
    profile = sketch(rank=5000, dim=5000, gamma=0.001, both_orders=both_orders)
    deltas = [profile.delta(epsilon) for epsilon in (0.0, 0.01, 0.0149, 0.1, 0.5, 1.0)]
    assert deltas == sorted(deltas, reverse=True)
    assert deltas[0] < 0.93


def _of_ratio(ratio, columns, gamma):
    """H_γ of columns of N(0, l) against as many of N(0, 1): the event is a tail of S = Σ x²."""
    # ln P/Q = −(r/2) ln l − (S/2)(1/l − 1)
    end = (-columns * math.log(ratio) - 2 * np.log(gamma)) / (1 / ratio - 1)
    tail = chi2.cdf if ratio < 1 else chi2.sf
    return tail(end / ratio, columns) - gamma * tail(end, columns)


@pytest.mark.parametrize("ratio", [0.5, 2.0])
def test_a_sample_of_a_sketch_holds_whichever_covariance_the_record_has(ratio):
    # the record's covariance is half the other's, or twice it: both are as the interval says
    profile = sketch_within(rank=12, dim=1, lowest=0.5, highest=1.0)
    sampled, rate = profile.poisson_subsample(0.1), 0.1
    for epsilon in (0.01, 0.3, 1.0):
        true = rate * _of_ratio(ratio, 12, 1 + math.expm1(epsilon) / rate)
        assert sampled.delta(epsilon) >= true
    # one of the two orders is met
    worst = max(_of_ratio(one, 12, 1 + math.expm1(1.0) / rate) for one in (0.5, 2.0))
    assert sampled.delta(1.0) == pytest.approx(rate * worst, rel=1e-6)
