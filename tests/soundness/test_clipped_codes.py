"""Codes clipped to a ball and released with noise: bounds beside mpmath and exact attackers."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf

from tacit.guarantees import InformationBound, MaximalLeakage
from tacit.information import clipped_information, gaussian_leakage

from .registry import certifies


def exact_nats(size, radius, noise_std):
    with mp.workdps(400):
        ratio = mpf(radius) / mpf(noise_std)
        return mpf(size) / 2 * mp.log1p(ratio**2 / size)


@certifies(InformationBound)
@pytest.mark.parametrize("size", [1, 2, 16, 768, 10**6])
@pytest.mark.parametrize(
    ("radius", "noise_std"),
    [
        (1.0, 1.0),
        (0.3, 0.7),
        (1e-8, 3.0),
        (1e6, 1e-3),
        (1e-100, 1e90),
        (1e-320, 1e10),
        (1e300, 1e-300),
        (1e150, 1.0),
    ],
)
def test_the_information_is_the_formula_and_never_below(size, radius, noise_std):
    found = clipped_information(size, radius=radius, noise_std=noise_std).nats
    exact = exact_nats(size, radius, noise_std)
    assert mpf(found) >= exact
    assert found <= float(exact) * (1 + 1e-13) + 1e-300


def information_of_line(points, weights, noise_std):
    """h(Y) − h(noise) on the line, by the trapezoidal rule."""
    step = noise_std / 20
    grid = np.arange(points.min() - 9 * noise_std, points.max() + 9 * noise_std, step)
    scaled = (grid[:, None] - points) / noise_std
    density = np.exp(-0.5 * scaled**2) @ weights / (noise_std * math.sqrt(2 * math.pi))
    kept = density[density > 0]
    entropy = -float((kept * np.log(kept)).sum()) * step
    return entropy - 0.5 * math.log(2 * math.pi * math.e * noise_std**2)


@certifies(InformationBound)
@pytest.mark.parametrize("seed", range(12))
def test_secrets_on_the_line_tell_no_more(seed):
    source = np.random.default_rng(seed)
    radius, noise_std = float(source.uniform(0.1, 8.0)), float(source.uniform(0.2, 2.0))
    points = np.clip(source.standard_t(2, size=30) * radius, -radius, radius)
    weights = source.dirichlet(np.full(30, 0.5))
    truth = information_of_line(points, weights, noise_std)
    found = clipped_information(1, radius=radius, noise_std=noise_std)
    assert truth <= found.nats + 1e-9


@certifies(InformationBound)
@pytest.mark.parametrize("size", [1, 4, 64])
def test_corners_of_a_cube_come_close_where_noise_is_large(size):
    """q = ±R/√k in every coordinate: k independent lines, whose information adds up."""
    corner = 1.0 / math.sqrt(size)
    noise_std = 5.0 * corner
    line = information_of_line(np.array([-corner, corner]), np.full(2, 0.5), noise_std)
    found = clipped_information(size, radius=1.0, noise_std=noise_std).nats
    assert 0.95 * found <= size * line <= found + 1e-9


def exact_factor(size, radius, noise_std):
    """C_eff by quadrature of shells in logarithms, around the peak of (R + t)^{k−1} e^{−t²/2}."""
    with mp.workdps(40):
        reach = mpf(radius) / mpf(noise_std)
        peak = (-reach + mp.sqrt(reach**2 + 4 * (size - 1))) / 2
        top = (size - 1) * mp.log(reach + peak) - peak**2 / 2

        def shell(t):
            return mp.exp((size - 1) * mp.log(reach + t) - t**2 / 2 - top)

        places = sorted({mpf(0), *(p for p in (peak + step for step in range(-16, 17)) if p > 0)})
        outside = mp.quad(shell, places)
        log_ball = mpf(size) / 2 * mp.log(mp.pi) - mp.loggamma(1 + mpf(size) / 2)
        scale = -mpf(size) / 2 * mp.log(2 * mp.pi)
        inside = log_ball + size * mp.log(reach) + scale
        around = log_ball + mp.log(size) + scale + top + mp.log(outside)
        return inside + mp.log1p(mp.exp(around - inside))


@certifies(MaximalLeakage)
@pytest.mark.parametrize("size", [1, 2, 16, 128, 768])
@pytest.mark.parametrize("ratio", [0.05, 1.0, 12.0, 300.0])
def test_the_factor_is_the_integral_in_any_dimension(size, ratio):
    found = gaussian_leakage(size, radius=ratio * 0.5, noise_std=0.5).nats
    exact = exact_factor(size, ratio, 1.0)
    assert mpf(found) >= exact * (1 - mpf(10) ** -25)
    assert found == pytest.approx(float(exact), rel=1e-9)


def named_right(bank, noise_std, queries, source):
    """Share of equally likely members that the nearest one, the exact posterior's best, names."""
    truth = source.integers(len(bank), size=queries)
    seen = bank[truth] + noise_std * source.standard_normal((queries, bank.shape[1]))
    scores = seen @ bank.T - 0.5 * (bank**2).sum(axis=1)
    return float((scores.argmax(axis=1) == truth).mean())


@certifies(MaximalLeakage)
@pytest.mark.parametrize("size", [1, 2, 4, 16])
@pytest.mark.parametrize("place", ["sphere", "ball", "encoder"])
@pytest.mark.parametrize("noise_std", [0.15, 0.5, 2.0])
def test_the_exact_attacker_of_a_bank_names_no_more_than_the_factor(size, place, noise_std):
    source = np.random.default_rng([size, len(place), int(100 * noise_std)])
    members, queries = 400, 4000
    bank = source.standard_normal((members, size))
    lengths = np.linalg.norm(bank, axis=1, keepdims=True)
    if place == "encoder":  # clipped, so that many lie inside
        bank = bank / np.maximum(1.0, lengths)
    else:
        shrink = 1.0 if place == "sphere" else source.random((members, 1)) ** (1 / size)
        bank = bank / lengths * shrink
    rate = named_right(bank, noise_std, queries, source)
    factor = gaussian_leakage(size, radius=1.0, noise_std=noise_std).factor
    error = math.sqrt(max(rate, 1 / members) * (1 - min(rate, 0.9)) / queries)
    assert rate <= factor / members + 4 * error


@certifies(MaximalLeakage)
def test_a_bank_that_fills_the_interval_reaches_the_factor():
    """P(right) = ∫ max_i p(y | i) dy / N, which tends to factor/N: the bound is the least one."""
    members, queries, noise_std = 300, 400_000, 0.2
    source = np.random.default_rng(3)
    truth = source.integers(members, size=queries)
    step = 2.0 / (members - 1)
    seen = -1.0 + step * truth + noise_std * source.standard_normal(queries)
    guess = np.clip(np.rint((seen + 1.0) / step), 0, members - 1)
    rate = float((guess == truth).mean())
    bound = gaussian_leakage(1, radius=1.0, noise_std=noise_std).factor / members
    error = math.sqrt(bound * (1 - bound) / queries)
    assert rate <= bound + 4 * error
    assert rate >= 0.99 * bound - 4 * error


def test_the_sentence_names_the_clipping_and_bad_numbers_are_refused():
    found = clipped_information(16, radius=4.0, noise_std=1.0, secret="the prompt")
    assert "5.546 nats about the prompt" in found.describe()
    assert any("clipped to length 4" in line for line in found.assumptions)
    assert clipped_information(3, radius=0.0, noise_std=1.0).nats == 0.0
    for name, given in (
        ("dimension", (0, 1.0, 1.0)),
        ("dimension", (2.5, 1.0, 1.0)),
        ("radius", (2, -1.0, 1.0)),
        ("radius", (2, math.nan, 1.0)),
        ("noise_std", (2, 1.0, 0.0)),
        ("noise_std", (2, 1.0, math.inf)),
    ):
        size, radius, noise_std = given
        with pytest.raises(ValueError, match=name):
            clipped_information(size, radius=radius, noise_std=noise_std)
