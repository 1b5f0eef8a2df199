"""Divergences of a shift are never below the truth, and distances never above it."""

import math

import dp_accounting
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from tacit.divergences import shift_distance, shift_divergence
from tacit.guarantees import ApproximateDP, Indistinguishability

from . import oracles
from .registry import certifies

KINDS = [
    "kl",
    "tv",
    "hellinger",
    "chi2",
    ("renyi", 0.5),
    ("renyi", 3.0),
    ("hockey-stick", 0.0),
    ("hockey-stick", 0.7),
    ("hockey-stick", 6.0),
]
FUNCTIONS = {
    "kl": lambda t: t * math.log(t),
    "tv": lambda t: abs(t - 1) / 2,
    "hellinger": lambda t: 1 - math.sqrt(t),
    "chi2": lambda t: (t - 1) ** 2,
    ("hockey-stick", 0.7): lambda t: max(t - math.exp(0.7), 0.0),
}


def label(kind):
    return kind if isinstance(kind, str) else f"{kind[0]}-{kind[1]:g}"


def closed_form(kind, distance):
    """The textbook formula with 60 digits and more."""
    with mp.workdps(460):
        d = mpf(distance)
        if kind == "kl":
            return d * d / 2
        if kind == "tv":
            return mp.erf(d / mp.sqrt(8))
        if kind == "hellinger":
            return -mp.expm1(-d * d / 8)
        if kind == "chi2":
            return mp.expm1(d * d)
        if kind[0] == "renyi":
            return mpf(kind[1]) * d * d / 2
        return oracles.hockey_stick(kind[1], distance)


@pytest.mark.parametrize(
    "distance",
    [1e-2, 1.0, 8.0, *(pytest.param(one, marks=pytest.mark.thorough) for one in (0.5, 3.0))],
)
@pytest.mark.parametrize("kind", KINDS, ids=label)
def test_closed_forms_are_tight_upper_bounds_of_the_integral(kind, distance):
    true = oracles.shift_divergence(kind, distance)
    certified = shift_divergence(kind, distance)
    slack = mpf(10) ** -25  # of the oracle, whose law has total mass 1
    assert certified >= true - slack
    assert certified <= true * (1 + mpf(10) ** -11) + slack


@pytest.mark.parametrize("distance", [1e-3, 0.5, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("kind", FUNCTIONS, ids=label)
def test_quadrature_is_a_tight_upper_bound(kind, distance):
    true = closed_form(kind, distance)
    certified = shift_divergence(FUNCTIONS[kind], distance)
    assert certified >= true
    assert certified <= true * (1 + mpf(10) ** -8) + mpf(10) ** -14


@given(
    kind=st.sampled_from(KINDS),
    exponent=st.floats(-12, 3),
)
def test_closed_forms_hold_from_tiny_to_huge_distances(kind, exponent):
    distance = 10.0**exponent
    true = closed_form(kind, distance)
    certified = shift_divergence(kind, distance)
    assert certified >= min(true, mpf(2) ** 1024) or certified == 1.0
    if certified < 1e300:
        assert certified <= true * (1 + mpf(10) ** -10) + mpf(10) ** -320


@given(epsilon=st.floats(0, 2000), offset=st.floats(-8, 8), exponent=st.floats(-3, 2))
def test_hockey_stick_holds_around_its_transition(epsilon, offset, exponent):
    # ε = d²/2 + d·offset is where the divergence falls from 1 to 0
    distance = 10.0**exponent
    near = max(distance**2 / 2 + distance * offset, 0.0)
    for eps in (epsilon, near):
        true = oracles.hockey_stick(eps, distance)
        certified = shift_divergence(("hockey-stick", eps), distance)
        assert certified >= true or certified == 1.0
        assert certified <= true * (1 + mpf(10) ** -9) + mpf(10) ** -300


@given(kind=st.sampled_from(KINDS), exponent=st.floats(-30, 3))
def test_distances_never_exceed_the_budget(kind, exponent):
    budget = 10.0**exponent
    distance = shift_distance(kind, budget)
    if math.isinf(distance):
        assert budget >= 1
        return
    assert closed_form(kind, distance) <= budget
    assert closed_form(kind, distance * (1 + 1e-9)) >= budget * (1 - 1e-6)


@pytest.mark.parametrize("kind", FUNCTIONS, ids=label)
@pytest.mark.parametrize("budget", [0.003, 0.4])
def test_distances_of_a_callable_never_exceed_the_budget(kind, budget):
    distance = shift_distance(FUNCTIONS[kind], budget)
    assert closed_form(kind, distance) <= budget
    assert closed_form(kind, distance * (1 + 1e-6)) >= budget


@certifies(Indistinguishability)
@pytest.mark.parametrize("kind", ["kl", "tv", "chi2", ("renyi", 2.0), ("hockey-stick", 0.5)])
def test_indistinguishability_of_shifted_gaussians(kind):
    """Three references on the plane: the bound beside the integral along each difference."""
    rng = np.random.default_rng(5)
    covariance = [[2.0, 0.5], [0.5, 1.0]]
    inverse = mp.matrix(covariance) ** -1
    differences = rng.integers(-3, 4, size=(3, 2)) + 0.5
    distances = []
    for z in differences:
        column = mp.matrix(z.tolist())
        distances.append(mp.sqrt((column.T * inverse * column)[0]))
    guarantee = Indistinguishability(
        references=("a", "b", "c"),
        divergence=kind,
        bounds=tuple(shift_divergence(kind, math.nextafter(float(d), 9.0)) for d in distances),
        evidence="theorem",
        assumptions=("the noise is Gaussian with the covariance certified",),
        source="dsi, Lemma 3.1",
    )
    for bound, distance in zip(guarantee.bounds, distances, strict=True):
        assert bound >= oracles.shift_divergence(kind, distance) - mpf(10) ** -25


@certifies(ApproximateDP)
@pytest.mark.parametrize("noise_std", [0.3, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_gaussian_mechanism_agrees_with_dp_accounting(noise_std, delta):
    epsilon = dp_accounting.get_epsilon_gaussian(noise_std, delta)
    certified = shift_divergence(("hockey-stick", epsilon), 1 / noise_std)
    # their ε is the root of their δ(ε) up to its own tolerance
    assert certified == pytest.approx(delta, rel=1e-6)
    target = ApproximateDP(
        epsilon=epsilon * (1 + 1e-9),
        delta=delta,
        adjacency="sensitivity 1",
        evidence="numerical",
        assumptions=(),
        source="Balle and Wang (2018), Theorem 8",
    )
    distance = shift_distance(("hockey-stick", target.epsilon), target.delta)
    assert distance == pytest.approx(1 / noise_std, rel=1e-6)
    assert oracles.hockey_stick(target.epsilon, distance) <= target.delta
