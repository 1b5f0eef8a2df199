"""Divergences: values, shapes, singular cases and bad input; the bounds are in soundness/."""

import math

import numpy as np
import pytest

from tacit.covariance import Dense, Diagonal, Isotropic, LowRank
from tacit.divergences import (
    check_named_kind,
    kl_gaussians,
    renyi_gaussians,
    shift_distance,
    shift_divergence,
)

KINDS = ["kl", "tv", "hellinger", "chi2", ("renyi", 2.0), ("hockey-stick", 1.0)]
SUPREMA = [math.inf, 1.0, 1.0, math.inf, math.inf, 1.0]
ARRAYS = np.array([0.0, 0.25, 1.0, 7.0, math.inf])


@pytest.mark.parametrize(("kind", "supremum"), list(zip(KINDS, SUPREMA, strict=True)))
def test_ends_of_the_range(kind, supremum):
    assert shift_divergence(kind, 0.0) == 0.0
    assert shift_divergence(kind, math.inf) == supremum
    assert shift_distance(kind, 0.0) == 0.0
    assert shift_distance(kind, supremum) == math.inf
    assert shift_distance(kind, math.inf) == math.inf


@pytest.mark.parametrize("kind", [*KINDS, lambda t: (t - 1) ** 2])
def test_arrays_give_the_scalars(kind):
    values = shift_divergence(kind, ARRAYS.reshape(5, 1))
    assert values.shape == (5, 1)
    assert values[:, 0].tolist() == [shift_divergence(kind, float(d)) for d in ARRAYS]
    budgets = np.array([0.0, 0.1, 0.8, 1.0, math.inf])
    distances = shift_distance(kind, budgets)
    assert distances.tolist() == [shift_distance(kind, float(v)) for v in budgets]
    assert isinstance(shift_divergence(kind, 1), float)
    assert isinstance(shift_distance(kind, 1), float)


@pytest.mark.parametrize("kind", KINDS)
def test_divergence_grows_with_distance(kind):
    values = shift_divergence(kind, np.linspace(0, 12, 400))
    assert (np.diff(values) >= 0).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("distance", [1e-9, 0.3, 2.0])
def test_inverse_returns_the_distance(kind, distance):
    value = shift_divergence(kind, distance)
    found = shift_distance(kind, value)
    assert shift_divergence(kind, found) <= value
    if value > 1e-300:  # below, many distances share one float
        assert found == pytest.approx(distance, rel=1e-8)


def test_hockey_stick_at_zero_is_total_variation():
    assert shift_divergence(("hockey-stick", 0), 1.3) == pytest.approx(
        shift_divergence("tv", 1.3), rel=1e-13
    )


@pytest.mark.parametrize("kind", ["wasserstein", ("renyi",), ("power", 2.0), 3, None, ["kl"]])
def test_unknown_kinds_are_named(kind):
    with pytest.raises(ValueError, match="kind: expected 'kl'"):
        shift_divergence(kind, 1.0)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (("renyi", 1.0), "which is 'kl'"),
        (("renyi", 0.0), "order: expected a finite number > 0"),
        (("renyi", math.nan), "order: expected a number, got NaN"),
        (("renyi", math.inf), "order: expected a finite number"),
        (("hockey-stick", -0.1), "epsilon: expected a finite number >= 0"),
        (("hockey-stick", "1"), "epsilon: expected a number"),
    ],
)
def test_bad_parameters_are_named(kind, message):
    with pytest.raises(ValueError, match=message):
        check_named_kind("kind", kind)


@pytest.mark.parametrize("bad", [-1.0, math.nan, [0.1, -2.0], "far", [1.0, math.nan]])
def test_bad_distances_and_values_are_named(bad):
    with pytest.raises(ValueError, match="distance: expected numbers >= 0"):
        shift_divergence("kl", bad)
    with pytest.raises(ValueError, match="value: expected numbers >= 0"):
        shift_distance("kl", bad)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda t: t, r"f: expected f\(1\) = 0"),
        (lambda t: -((t - 1) ** 2), "f: expected a convex function"),
        (lambda t: math.sin(6 * (t - 1)), "f: expected a convex function"),
        (lambda t: math.nan, "f: expected a number at t"),
    ],
)
def test_functions_that_define_no_divergence(function, message):
    with pytest.raises(ValueError, match=message):
        shift_divergence(function, 1.0)


def test_a_function_that_looks_convex_but_jitters_does_not_converge():
    def jittered(t):
        return (t - 1) ** 2 + (10 * math.sin(1e9 * t) if t > 200 else 0.0)

    with pytest.raises(ValueError, match="quadrature converges"):
        shift_divergence(jittered, 3.0)


@pytest.mark.parametrize(
    ("function", "distance"),
    [
        (math.exp, 0.01),  # E exp(lognormal) is infinite at every distance
        (lambda t: t**5, 30.0),  # e^9000
        (lambda t: t**3, 16.0),  # beyond what t³ can be evaluated at
        (lambda t: -math.log(t), 100.0),
    ],
)
def test_growth_beyond_the_floats_is_infinite(function, distance):
    assert shift_divergence(lambda t: function(t) - function(1.0), distance) == math.inf


def test_heavy_functions_within_the_floats():
    # E T^α = exp(α(α−1)d²/2)
    for power, distance in [(5.0, 3.0), (12.0, 1.5), (1.5, 12.0)]:
        exact = math.expm1(power * (power - 1) * distance**2 / 2)
        value = shift_divergence(lambda t, a=power: t**a - 1, distance)
        assert exact <= value * (1 + 1e-13)
        assert value == pytest.approx(exact, rel=1e-7)


def test_functions_of_numpy_and_bounded_functions():
    def jensen_shannon(t):
        return t * np.log(2 * t / (1 + t)) / 2 + np.log(2 / (1 + t)) / 2

    # two equally likely points at ±½ in unit noise: I = .11142148
    assert shift_divergence(jensen_shannon, 1.0) == pytest.approx(0.11142148, abs=1e-8)
    assert shift_divergence(jensen_shannon, math.inf) == pytest.approx(math.log(2), rel=1e-8)
    assert shift_distance(jensen_shannon, 0.7) == math.inf


def test_kl_of_different_variances():
    # ½ (4 − 1 − ln 4)
    assert kl_gaussians([0.0], [[4.0]], [0.0], [[1.0]]) == pytest.approx((3 - math.log(4)) / 2)
    assert kl_gaussians([0.0], [[1.0]], [0.0], [[1.0]]) == 0.0
    assert renyi_gaussians([0.0], [[1.0]], [0.0], [[1.0]], 3.0) == 0.0


def test_renyi_tends_to_kl():
    first = ([0.3, 0.1], [[1.0, 0.2], [0.2, 0.5]])
    second = ([0.0, 0.0], [[1.1, 0.0], [0.0, 0.6]])
    kl = kl_gaussians(*first, *second)
    for order in (1 - 1e-7, 1 + 1e-7):
        assert renyi_gaussians(*first, *second, order) == pytest.approx(kl, rel=1e-6)


def test_close_covariances_do_not_cancel():
    # ½ (e − ln(1 + e)) = e²/4 − e³/6 + …
    e = 1e-9
    variance = 1 + e
    value = kl_gaussians([0.0], [[variance]], [0.0], [[1.0]])
    assert value == pytest.approx((variance - 1) ** 2 / 4, rel=1e-8)
    assert renyi_gaussians([0.0], [[variance]], [0.0], [[1.0]], 2.0) == pytest.approx(
        (variance - 1) ** 2 / 2, rel=1e-8
    )


def test_order_at_which_the_mixture_stops_being_positive():
    # (1 − α)·2 + α > 0 up to α = 2
    assert math.isfinite(renyi_gaussians([0.0], [[2.0]], [0.0], [[1.0]], 1.999))
    assert renyi_gaussians([0.0], [[2.0]], [0.0], [[1.0]], 2.0) == math.inf
    assert math.isfinite(renyi_gaussians([0.0], [[1.0]], [0.0], [[2.0]], 50.0))


def test_graded_variances_are_kept():
    small = [[1.0, 0.0], [0.0, 1e-24]]
    smaller = [[1.0, 0.0], [0.0, 1e-26]]
    assert kl_gaussians([0.0, 0.0], small, [0.0, 0.0], smaller) == pytest.approx(
        (99 - math.log(100)) / 2
    )
    assert kl_gaussians([0.0, 1e-12], small, [0.0, 0.0], small) == pytest.approx(0.5)
    tilted = [[1.0, 5e-13], [5e-13, 1e-24]]
    assert kl_gaussians([0.0, 1e-12], tilted, [0.0, 0.0], tilted) == pytest.approx(
        1 / 2 / (1 - 0.25), rel=1e-9
    )


@pytest.mark.parametrize("order", [1, 0.5, 3.0])
def test_singular_covariances(order):
    def divergence(mean0, cov0, mean1, cov1):
        if order == 1:
            return kl_gaussians(mean0, cov0, mean1, cov1)
        return renyi_gaussians(mean0, cov0, mean1, cov1, order)

    line = np.outer([1.0, 2.0, -1.0], [1.0, 2.0, -1.0])
    other = np.outer([1.0, 2.0, -1.1], [1.0, 2.0, -1.1])
    zero, along, across = np.zeros(3), np.array([0.5, 1.0, -0.5]), np.array([0.5, 1.0, 0.5])
    assert divergence(along, line, zero, line) == pytest.approx(order * 0.25 / 2)
    assert divergence(zero, line, zero, line) == 0.0
    assert divergence(across, line, zero, line) == math.inf
    assert divergence(zero, line, zero, other) == math.inf
    assert divergence(zero, line, zero, line + 1e-6 * np.eye(3)) == math.inf
    assert divergence(zero, line + 1e-6 * np.eye(3), zero, line) == math.inf
    ratio = {1: 1 - math.log(2), 0.5: math.log(9 / 8), 3.0: math.inf}[order] / 2
    assert divergence(zero, 2 * line, zero, line) == pytest.approx(ratio)
    degenerate = np.diag([1.0, 0.0, 2.0])
    assert divergence([1.0, 0.0, 0.0], degenerate, zero, degenerate) == pytest.approx(order / 2)
    assert divergence([0.0, 1e-300, 0.0], degenerate, zero, degenerate) == math.inf
    assert divergence(zero, np.eye(3), zero, degenerate) == math.inf
    assert divergence(zero, degenerate, zero, np.eye(3)) == math.inf
    nothing = np.zeros((3, 3))
    assert divergence(zero, nothing, zero, nothing) == 0.0
    assert divergence(along, nothing, zero, nothing) == math.inf


def test_covariance_objects_are_their_matrices():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((3, 2)))[0].T
    pairs = [
        (Isotropic(2.0, 3), Isotropic(1.5, 3)),
        (Diagonal([1.0, 2.0, 3.0]), Dense(np.eye(3) + 0.2)),
        (LowRank(basis, np.diag([1.0, 2.0]), floor=0.1), Isotropic(1.5, 3)),
    ]
    mean = np.array([0.1, 0.2, 0.3])
    for first, second in pairs:
        matrices = kl_gaussians(mean, first.to_dense(), np.zeros(3), second.to_dense())
        assert kl_gaussians(mean, first, np.zeros(3), second) == matrices


def test_a_shift_is_the_shift_divergence():
    covariance = np.array([[2.0, 0.7], [0.7, 1.0]])
    z = np.array([0.3, -0.8])
    distance = math.sqrt(float(z @ np.linalg.solve(covariance, z)))
    zero = np.zeros(2)
    assert kl_gaussians(z, covariance, zero, covariance) == pytest.approx(
        shift_divergence("kl", distance)
    )
    assert renyi_gaussians(z, covariance, zero, covariance, 4.0) == pytest.approx(
        shift_divergence(("renyi", 4.0), distance)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0], np.eye(1), [0.0, 0.0], np.eye(1)), "mean1: expected 1 entries"),
        (([0.0], np.eye(2), [0.0], np.eye(1)), r"cov0: expected shape \(1, 1\)"),
        (([0.0], np.eye(1), [0.0], [[-1.0]]), "cov1: expected a positive semidefinite"),
        (([0.0, 0.0], [[1.0, 2.0], [0.0, 1.0]], [0.0, 0.0], np.eye(2)), "cov0: expected a symm"),
        (([math.nan], np.eye(1), [0.0], np.eye(1)), "mean0: expected finite"),
        (([0.0], [[math.inf]], [0.0], np.eye(1)), "cov0: expected finite"),
        (([0.0], [1.0], [0.0], np.eye(1)), "cov0: expected a 2-dimensional"),
    ],
)
def test_bad_gaussians_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        kl_gaussians(*arguments)
    with pytest.raises(ValueError, match=message):
        renyi_gaussians(*arguments, 2.0)


@pytest.mark.parametrize("order", [0.0, -1.0, 1.0, math.nan, math.inf])
def test_bad_orders_are_named(order):
    with pytest.raises(ValueError, match="order: expected"):
        renyi_gaussians([0.0], [[1.0]], [0.0], [[1.0]], order)
