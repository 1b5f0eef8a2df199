import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from tacit.covariance import Dense, Diagonal, Factored, Isotropic, LowRank
from tacit.design import (
    confident_information,
    covariance_radius,
    efficient_information,
    gaussian_information,
    log_det_information,
)

METHODS = ("exact", "linear", "diagonal")


def rotated(spectrum, seed=0):
    spectrum = np.asarray(spectrum, dtype=float)
    axes = np.linalg.qr(np.random.default_rng(seed).normal(size=(spectrum.size,) * 2))[0]
    matrix = (axes * spectrum) @ axes.T
    return (matrix + matrix.T) / 2


def precise_information(outputs, covariance, digits=60):
    """½ logdet(I + S Σ⁻¹) of the stored numbers, in extended precision."""
    with mpmath.workdps(digits):
        size = covariance.dim
        if isinstance(covariance, Factored):
            factor = mpmath.matrix(covariance.rows.T.tolist())
            noise = factor * factor.T
        else:
            noise = mpmath.matrix(covariance.to_dense().tolist())
        signal = mpmath.matrix((np.diag(outputs) if np.ndim(outputs) == 1 else outputs).tolist())
        ratio = mpmath.det(noise + signal) / mpmath.det(noise)
        assert noise.rows == size
        return mpmath.log(ratio) / 2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mi_budget", [1e-6, 1e-2, 0.5, 5.0, 50.0])
@pytest.mark.parametrize("condition", [1.0, 1e4, 1e8, 1e12])
def test_the_budget_holds_in_extended_precision(condition, mi_budget, method):
    outputs = rotated(np.geomspace(3.0, 3.0 / condition, 5), seed=7)
    design = gaussian_information(outputs, mi_budget, method=method)
    exact = precise_information(outputs, design.covariance)
    assert exact <= design.information <= mi_budget
    assert design.rank == 5
    if method == "exact":
        # The stored S knows its smallest eigenvalue to d 2⁻⁵² κ relative only.
        assert exact >= mi_budget * (1 - 1e-6) - 1e-14 * condition


@pytest.mark.parametrize("mi_budget", [1e-6, 0.5, 50.0])
@pytest.mark.parametrize("condition", [1.0, 1e8, 1e12])
def test_the_exact_design_is_optimal_to_its_gap(condition, mi_budget):
    """KKT in eigen-coordinates, extended precision: l (l + r) = μ r/2 for one μ."""
    spectrum = np.geomspace(2.0, 2.0 / condition, 5)
    design = gaussian_information(spectrum, mi_budget)
    noise = design.covariance.diagonal()
    multipliers = 2 * noise * (noise + spectrum) / spectrum
    np.testing.assert_allclose(multipliers, multipliers[0], rtol=1e-9)
    assert design.gap <= 1e-9


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-5.0, 5.0), min_size=1, max_size=6),
    st.floats(-4.0, 2.5),
)
def test_no_spectrum_is_cheaper(logarithms, log_budget):
    """Random feasible competitors in the eigenbasis never beat cost × (1 − gap)."""
    spectrum, budget = np.exp(logarithms), math.exp(log_budget)
    design = gaussian_information(spectrum, budget)
    rng = np.random.default_rng(0)
    for spread in (0.01, 0.3, 2.0):
        shape = design.covariance.diagonal() * np.exp(spread * rng.normal(size=spectrum.size))
        low, high = 1e-9, 1e9
        for _ in range(200):
            middle = math.sqrt(low * high)
            above = 0.5 * np.log1p(spectrum / (middle * shape)).sum() > budget
            low, high = (middle, high) if above else (low, middle)
        assert high * shape.sum() >= design.cost * (1 - design.gap) * (1 - 1e-9)


def test_against_brute_force_over_all_covariances():
    """Σ = L Lᵀ free, constraint by penalty-free scaling: nothing is cheaper than the design."""
    outputs, cost, budget = rotated([4.0, 1.0, 0.2], seed=1), rotated([5.0, 1.0, 0.5], seed=2), 0.8

    def price(entries):
        lower = np.zeros((3, 3))
        lower[np.tril_indices(3)] = entries
        shape = lower @ lower.T + 1e-9 * np.eye(3)
        ratios = np.linalg.eigvals(np.linalg.solve(shape, outputs)).real
        low, high = 1e-9, 1e9
        for _ in range(120):
            middle = math.sqrt(low * high)
            above = 0.5 * np.log1p(ratios / middle).sum() > budget
            low, high = (middle, high) if above else (low, middle)
        return high * np.sum(cost * shape)

    best = min(
        minimize(
            price,
            np.random.default_rng(seed).normal(size=6),
            method="Nelder-Mead",
            options={"maxiter": 4000, "fatol": 1e-9, "xatol": 1e-9},
        ).fun
        for seed in range(3)
    )
    design = gaussian_information(outputs, budget, cost=cost)
    assert design.cost <= best * (1 + 1e-9)
    assert design.cost >= best * (1 - 1e-4)
    assert design.cost == pytest.approx(np.sum(cost * design.covariance.to_dense()), rel=1e-12)


@pytest.mark.parametrize(
    ("spectrum", "mi_budget", "ratio"),
    [
        (np.ones(10), 0.5, math.expm1(0.1) / 0.1),
        (np.ones(10), 5.0, math.expm1(1.0) / 1.0),
        (np.ones(10), 20.0, math.expm1(4.0) / 4.0),
    ],
)
def test_linear_over_exact_on_a_flat_spectrum(spectrum, mi_budget, ratio):
    """l = 1/(e^{2β/d} − 1) against d/(2β)."""
    linear = gaussian_information(spectrum, mi_budget, method="linear")
    exact = gaussian_information(spectrum, mi_budget)
    assert linear.cost / exact.cost == pytest.approx(ratio, rel=1e-9)
    assert linear.gap == pytest.approx(1 - 1 / ratio, rel=1e-6)


@pytest.mark.parametrize(("mi_budget", "ratio"), [(0.5, 1.36), (5.0, 9.2)])
def test_linear_over_exact_on_a_spike(mi_budget, ratio):
    spectrum = np.r_[1.0, np.full(9, 1e-3)]
    linear = gaussian_information(spectrum, mi_budget, method="linear")
    assert linear.cost / gaussian_information(spectrum, mi_budget).cost == pytest.approx(
        ratio, rel=5e-3
    )


def test_closed_forms_of_the_published_methods():
    outputs, beta, prices = rotated([4.0, 1.0, 0.25], seed=3), 0.3, np.array([1.0, 4.0, 9.0])
    linear = gaussian_information(outputs, beta, method="linear")
    assert linear.cost == pytest.approx((2 + 1 + 0.5) ** 2 / (2 * beta), rel=1e-12)
    diagonal = gaussian_information(outputs, beta, method="diagonal", cost=prices)
    sigma = np.diagonal(outputs)
    expected = np.sqrt(sigma / prices) * np.sqrt(prices * sigma).sum() / (2 * beta)
    np.testing.assert_allclose(diagonal.covariance.diagonal(), expected, rtol=1e-12)
    assert diagonal.cost == pytest.approx(prices @ expected, rel=1e-12)


def test_methods_are_ordered_by_cost():
    outputs = rotated([4.0, 1.0, 0.01], seed=4)
    exact, linear, diagonal = (gaussian_information(outputs, 1.0, method=m).cost for m in METHODS)
    assert exact < linear < diagonal


def test_forms_of_the_same_input_agree():
    variances = np.array([3.0, 2.0, 0.5])
    vector = gaussian_information(variances, 0.4)
    for same in (np.diag(variances), Diagonal(variances), Dense(np.diag(variances))):
        other = gaussian_information(same, 0.4)
        np.testing.assert_allclose(
            other.covariance.to_dense(), vector.covariance.to_dense(), rtol=1e-9, atol=1e-9
        )
    scalar = gaussian_information(variances, 0.4, cost=2.0)
    np.testing.assert_allclose(scalar.covariance.diagonal(), vector.covariance.diagonal())
    assert scalar.cost == pytest.approx(2 * vector.cost)
    flat = gaussian_information(Isotropic(2.0, 3), 0.4)
    np.testing.assert_allclose(flat.covariance.diagonal(), 2.0 / math.expm1(0.8 / 3))


def test_a_change_of_units_changes_nothing():
    """Outputs in other units under the cost in those units: the same design, rescaled."""
    outputs, units = rotated([4.0, 1.0, 0.2], seed=5), np.array([1e-9, 1.0, 1e9])
    plain = gaussian_information(outputs, 0.7)
    scaled = gaussian_information(outputs * np.outer(units, units), 0.7, cost=units**-2.0)
    np.testing.assert_allclose(
        scaled.covariance.to_dense() / np.outer(units, units),
        plain.covariance.to_dense(),
        rtol=1e-7,
        atol=1e-7,
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e-250, 1e-100, 1e100, 1e250])
def test_outputs_of_any_size(scale, method):
    outputs = rotated([4.0, 1.0, 0.2], seed=8)
    plain = gaussian_information(outputs, 0.7, method=method)
    scaled = gaussian_information(outputs * scale, 0.7, method=method)
    assert scaled.cost / scale == pytest.approx(plain.cost, rel=1e-9)
    assert scaled.information <= 0.7


@pytest.mark.parametrize("method", METHODS)
def test_a_singular_output_covariance_leaves_no_direction_bare(method):
    outputs = rotated([4.0, 1.0, 0.0, 0.0], seed=6)
    design = gaussian_information(outputs, 0.5, method=method)
    assert design.rank == 4
    assert np.isfinite(design.covariance.mahalanobis(np.eye(4))).all()
    assert precise_information(outputs, design.covariance) <= design.information <= 0.5
    if method == "exact":
        assert design.notes
        assert design.gap < 1e-6


def test_a_constant_coordinate_is_covered():
    design = gaussian_information([1.0, 0.0], 0.5)
    assert design.covariance.diagonal()[1] > 0
    assert design.cost == pytest.approx(gaussian_information([1.0], 0.5).cost, rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([1.0], 0.0), {}, "mi_budget"),
        (([1.0], -1.0), {}, "mi_budget"),
        (([1.0], math.nan), {}, "mi_budget"),
        (([1.0], 1e-200), {}, "mi_budget: expected at least 1e-120 nats"),
        (([1.0], math.inf), {}, "mi_budget"),
        (([0.0, 0.0], 1.0), {}, "never moves"),
        (([-1.0], 1.0), {}, "variances >= 0"),
        (([[1.0, 2.0], [2.0, 1.0]], 1.0), {}, "positive semidefinite"),
        (([[1.0, 2.0], [0.0, 1.0]], 1.0), {}, "symmetric"),
        (([[1.0, 2.0, 3.0]], 1.0), {}, "square"),
        (([1.0, math.nan], 1.0), {}, "finite"),
        (([1.0, 1.0], 1.0), {"cost": [1.0, 0.0]}, "noise there is free"),
        (([1.0, 1.0], 1.0), {"cost": [[1.0, 1.0], [1.0, 1.0]]}, "noise there is free"),
        (([1.0, 1.0], 1.0), {"cost": [1.0]}, "cost: expected 2 entries"),
        (([1.0, 1.0], 1.0), {"cost": -1.0}, "cost"),
        (([1.0, 1.0], 1.0), {"method": "best"}, "method: expected one of"),
    ],
)
def test_bad_input(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        gaussian_information(*arguments, **options)


def test_information_of_a_bare_direction_is_infinite():
    thin = LowRank([[1.0, 0.0]], [[1.0]])
    assert log_det_information(np.eye(2), thin) == math.inf
    assert log_det_information([1.0, 1.0], Diagonal([1.0, 0.0])) == math.inf
    assert log_det_information([1.0, 0.0], Diagonal([1.0, 0.0])) < math.inf
    assert log_det_information(np.zeros((2, 2)), thin) == 0.0
    with pytest.raises(ValueError, match="expected dimension 2"):
        log_det_information(np.eye(3), thin)


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(0, 10**6), st.floats(0.0, 6.0), st.floats(0.0, 8.0))
def test_information_is_rounded_up(size, seed, log_noise, log_signal):
    noise = rotated(np.geomspace(1.0, 10.0**-log_noise, size), seed)
    signal = rotated(np.geomspace(1.0, 10.0**-log_signal, size), seed + 1)
    certified = log_det_information(signal, Dense(noise))
    exact = precise_information(signal, Dense(noise))
    assert exact <= certified
    if log_noise < 4:
        assert certified <= float(exact) * (1 + 1e-4)


def bounded_samples(rng, count):
    """A skewed, discrete source in the unit ball, with its exact covariance."""
    points = np.array([[0.9, 0.0], [-0.2, 0.3], [-0.1, -0.7], [0.0, 0.1]])
    weights = np.array([0.1, 0.5, 0.15, 0.25])
    mean = weights @ points
    covariance = (points - mean).T @ ((points - mean) * weights[:, None])
    return points[rng.choice(4, size=count, p=weights)], covariance


@pytest.mark.parametrize("method", ["exact", "published"])
@pytest.mark.parametrize("count", [30, 400])
def test_confidence_in_repetition(count, method):
    """The stated information is above the exact one at least as often as promised."""
    rng, level, repetitions = np.random.default_rng(0), 0.8, 150
    wrong = 0
    for _ in range(repetitions):
        samples, covariance = bounded_samples(rng, count)
        design = confident_information(samples, 0.3, confidence=level, radius=0.9, method=method)
        assert design.information <= 0.3
        assert design.confidence == level
        wrong += log_det_information(covariance, design.covariance) > design.information * (
            1 + 1e-9
        )
    assert wrong <= (1 - level) * repetitions


def test_without_its_slack_the_confidence_would_fail():
    """The same statement from the sample covariance alone is wrong far more often."""
    rng, wrong = np.random.default_rng(1), 0
    for _ in range(150):
        samples, covariance = bounded_samples(rng, 30)
        design = gaussian_information(np.cov(samples, rowvar=False), 0.3)
        wrong += log_det_information(covariance, design.covariance) > 0.3
    assert wrong > 0.3 * 150


@pytest.mark.parametrize("count", [40, 1000])
def test_the_radius_holds_on_a_rare_large_output(count):
    """‖y‖ = 1 once in fifty: the covariance is missed most by the samples that matter most."""
    rng, level, missed = np.random.default_rng(2), 0.9, 0
    covariance = 0.02 * 0.98
    for _ in range(200):
        samples = (rng.random((count, 1)) < 0.02).astype(float)
        estimate = np.atleast_2d(np.cov(samples, rowvar=False))
        slack = covariance_radius(estimate, count, confidence=level, radius=1.0)
        missed += covariance > estimate[0, 0] + slack
    assert missed <= (1 - level) * 200


def test_the_radius_shrinks_with_samples_and_is_never_vacuous():
    estimate = np.diag([0.2, 0.1])
    slacks = [
        covariance_radius(estimate, m, confidence=0.95, radius=1.0) for m in (4, 100, 10_000, 10**6)
    ]
    assert slacks == sorted(slacks, reverse=True)
    assert slacks[0] == pytest.approx(1.0)
    assert slacks[-1] < 3e-3


def test_the_radius_in_many_dimensions_is_the_dimension_free_one():
    estimate = np.zeros((300, 300))
    estimate[0, 0] = 0.9
    expected = math.sqrt(2 / 500) + 2 * math.sqrt(math.log(2 / 0.05) / 500)
    assert covariance_radius(estimate, 1000, confidence=0.95, radius=1.0) == pytest.approx(expected)


def test_confident_design_approaches_the_exact_one():
    rng = np.random.default_rng(3)
    samples, covariance = bounded_samples(rng, 200_000)
    design = confident_information(samples, 0.5, confidence=0.99, radius=0.9)
    assert 1.0 < design.cost / gaussian_information(covariance, 0.5).cost < 1.3
    assert any("independent draws" in note for note in design.notes)


def test_published_algorithm_takes_both_branches():
    rng = np.random.default_rng(4)
    clear = rng.uniform(-1, 1, size=(100_000, 2)) * [1.0, 0.1]
    close = rng.uniform(-1, 1, size=(1000, 2))
    shaped = confident_information(clear, 0.5, confidence=0.9, radius=1.1, method="published")
    round_ = confident_information(close, 0.5, confidence=0.9, radius=1.5, method="published")
    assert np.diff(shaped.covariance.diagonal())[0] != 0
    assert np.ptp(round_.covariance.diagonal()) == 0


def test_a_moved_centre():
    samples, _ = bounded_samples(np.random.default_rng(5), 500)
    here = confident_information(samples, 0.5, confidence=0.9, radius=1.0)
    there = confident_information(samples + 7, 0.5, confidence=0.9, radius=1.0, centre=[7.0, 7.0])
    assert there.cost == pytest.approx(here.cost, rel=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": np.zeros((3, 2))}, "at least 4 rows"),
        ({"samples": np.eye(4)[:, :2] * 5}, "row 0 at distance 5"),
        ({"confidence": 1.0}, "confidence"),
        ({"confidence": 0.0}, "confidence"),
        ({"radius": 0.0}, "radius"),
        ({"split": 1.0}, "split"),
        ({"centre": [0.0]}, "centre"),
        ({"method": "linear"}, "method"),
        ({"method": "published", "cost": 2.0}, "cost"),
    ],
)
def test_bad_confident_input(change, message):
    arguments = {"samples": np.eye(4)[:, :2], "confidence": 0.9, "radius": 1.0, **change}
    with pytest.raises(ValueError, match=message):
        confident_information(arguments.pop("samples"), 0.5, **arguments)


def test_streaming_finds_the_noise_of_theorem_6():
    rng = np.random.default_rng(6)
    deviations, beta = np.array([3.0, 1.0, 0.1]), 0.25
    design = efficient_information(
        lambda: rng.normal(size=(256, 3)) * deviations, beta, tolerance=0.02
    )
    expected = deviations * deviations.sum() / (2 * beta)
    np.testing.assert_allclose(design.covariance.diagonal(), expected, rtol=0.1)
    assert design.information is None
    assert 16 <= design.iterations < 100_000


def test_streaming_moments_equal_those_of_all_outputs_at_once():
    outputs = np.random.default_rng(7).normal(size=(1000, 4)) + 1e6
    one = efficient_information(iter(outputs), 0.5, tolerance=1e-9, maximum_samples=1000)
    blocks = efficient_information(
        iter(np.split(outputs, [1, 7, 400])), 0.5, tolerance=1e-9, maximum_samples=1000
    )
    expected = gaussian_information(outputs.var(axis=0), 0.5, method="diagonal")
    for design in (one, blocks):
        np.testing.assert_allclose(
            design.covariance.diagonal(), expected.covariance.diagonal(), rtol=1e-8
        )
        assert design.iterations == 1000
        assert "had not settled" in design.notes[-1]


def test_streaming_in_a_basis():
    rng = np.random.default_rng(8)
    axes = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    outputs = (rng.normal(size=(5000, 3)) * [2.0, 1.0, 0.5]) @ axes.T
    design = efficient_information(
        iter(outputs), 0.5, basis=axes, tolerance=1e-9, maximum_samples=5000
    )
    variances = (outputs @ axes).var(axis=0)
    noise = np.sqrt(variances) * np.sqrt(variances).sum()
    np.testing.assert_allclose(
        design.covariance.to_dense(), (axes * noise) @ axes.T, rtol=1e-9, atol=1e-9
    )


def test_streaming_stops_at_its_limit_and_takes_a_generator():
    design = efficient_information(
        lambda rng: rng.normal(size=(100, 2)), 0.5, tolerance=1e-6, maximum_samples=250, rng=3
    )
    assert design.iterations == 250


@pytest.mark.parametrize(
    ("sampler", "options", "message"),
    [
        (iter([[1.0, 2.0]]), {}, "at least two outputs"),
        (iter([[1.0]] * 40), {}, "never moves"),
        (iter([[1.0], [1.0, 2.0]]), {}, "outputs of length 1"),
        (iter([[1.0], [math.nan]]), {}, "finite"),
        (3, {}, "a callable or an iterator"),
        (iter([[1.0]]), {"basis": np.eye(2)}, r"basis: expected shape \(1, 1\)"),
        (iter([[1.0]]), {"basis": [[2.0]]}, "orthogonal"),
        (iter([[1.0]]), {"basis": [[1.0, 0.0]]}, "square"),
        (iter([[1.0]]), {"tolerance": 0.0}, "tolerance"),
        (iter([[1.0]]), {"maximum_samples": 1}, "maximum_samples"),
    ],
)
def test_bad_streams(sampler, options, message):
    with pytest.raises(ValueError, match=message):
        efficient_information(sampler, 0.5, **options)
