"""Released randomness: words to normals, their law, and the exact discrete Gaussian."""

import math
import os

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from tacit._ground import random as _randomness
from tacit._ground.random import fair_choices, normals_from_words, released_normal, standard_normal
from tacit.design.grid import discrete_gaussian, discrete_laplace, random_bits

TOP = 2**63
ALL = 2**64 - 1


def normal_of(high, low):
    return float(normals_from_words(np.array([high], np.uint64), np.array([low], np.uint64))[0])


@pytest.mark.parametrize("word", [0, 1, 5, 2**11, 2**40 + 3, 2**62, TOP - 2, TOP - 1])
@pytest.mark.parametrize("low", [0, 1, 2**33, ALL])
def test_normals_are_finite_and_symmetric(word, low):
    value = normal_of(word, low)
    assert 0.0 <= value <= 13.2
    assert normal_of(word + TOP, low) == -value


def test_the_extremes_of_both_tails():
    assert normal_of(0, 0) == pytest.approx(stats.norm.isf(2.0**-129), rel=1e-12)
    assert normal_of(TOP, 0) == -normal_of(0, 0)
    assert normal_of(TOP - 1, ALL) == 0.0


def test_normals_fall_as_the_tail_grows():
    source = np.random.default_rng(0)
    high = np.sort(source.integers(0, TOP, 200_000, dtype=np.uint64) >> np.uint64(7))
    high[:1000] = np.arange(1000)
    high[-1000:] = TOP - 1 - np.arange(1000)[::-1].astype(np.uint64)
    high.sort()
    low = source.integers(0, ALL, high.size, dtype=np.uint64)
    assert (np.diff(normals_from_words(high, low)) <= 0.0).all()
    assert normal_of(7, ALL) >= normal_of(8, 0)


@pytest.mark.parametrize("shift", [0, 10, 30, 60, 62, 63])
def test_normals_agree_with_forty_digits(shift):
    """Φ⁻¹ solved in high precision, from the bulk to the last word."""
    source = np.random.default_rng(shift)
    for _ in range(10):
        high = int(source.integers(0, TOP, dtype=np.uint64)) >> shift
        low = int(source.integers(0, ALL, dtype=np.uint64))
        with mpmath.workdps(60):
            tail = (mpmath.mpf(high * 2**64 + low) + 0.5) / mpmath.mpf(2) ** 128
            start = normal_of(high, low)
            exact = mpmath.findroot(
                lambda z, t=tail: mpmath.erfc(z / mpmath.sqrt(2)) / 2 - t, start
            )
            assert abs(exact - start) < 2e-15 * (1 + abs(exact))


@pytest.mark.parametrize("deviation", [6.6, 7.5, 8.2])
def test_a_cell_far_out_is_reached_by_many_words(deviation):
    """With one word a cell of 2⁻²⁰ beyond 6.6 σ had one seed at most."""
    low, high = (stats.norm.sf(deviation + offset) * 2.0**128 for offset in (2.0**-20, 0.0))
    assert high - low > 2.0**40
    words = [int(low + (high - low) * share) for share in (0.1, 0.3, 0.5, 0.7, 0.9)]
    values = [normal_of(word >> 64, word & ALL) for word in words]
    assert len(set(values)) == len(values)
    assert max(values) - min(values) < 2.0**-20


@pytest.mark.parametrize("beyond", [4.0, 5.0, 6.0])
def test_tails_have_their_share(beyond):
    """Words whose tail is below 2⁻ᵗ, uniformly: the share beyond a quantile is known."""
    zeros = math.floor(-math.log2(stats.norm.sf(beyond))) - 2
    source = np.random.default_rng(5)
    count = 100_000
    high = source.integers(0, 2**64, count, dtype=np.uint64)
    sign = high & np.uint64(TOP)
    high = sign | ((high & np.uint64(TOP - 1)) >> np.uint64(zeros))
    values = normals_from_words(high, source.integers(0, 2**64, count, dtype=np.uint64))
    share = stats.norm.sf(beyond) / 2.0 ** -(zeros + 1)
    error = math.sqrt(share * (1 - share) / count * 2)
    for side in (values[sign == 0], -values[sign != 0]):
        assert abs((side > beyond).mean() - share) < 5 * error


def test_normals_have_their_law_and_a_wrong_scale_fails():
    values = released_normal((200_000,), 3)
    assert stats.kstest(values, "norm").pvalue > 1e-3
    assert stats.kstest(1.02 * values, "norm").pvalue < 1e-3
    assert stats.kstest(values + 0.02, "norm").pvalue < 1e-3


def test_blocks_differ_and_seeds_repeat(monkeypatch):
    monkeypatch.setattr(_randomness, "WORDS_TOGETHER", 7)
    first, second = released_normal((5, 4), 1), released_normal((5, 4), 1)
    assert first.shape == (5, 4)
    assert np.array_equal(first, second)
    assert len(set(first.ravel())) == 20
    assert not np.array_equal(released_normal((20,)), released_normal((20,)))
    assert released_normal((0, 3)).shape == (0, 3)


def test_the_second_word_is_drawn_where_it_matters_alone(monkeypatch):
    """The same numbers as with all second words, which are drawn for few."""
    source, asked = np.random.default_rng(8), []
    high, low = source.integers(0, 2**64, (2, 50_000), dtype=np.uint64)
    high[:100] >>= np.uint64(20)

    def drawn(count):
        asked.append(count)
        upper = high & np.uint64(TOP - 1)
        return high if len(asked) == 1 else low[upper < _randomness.ENOUGH]

    monkeypatch.setattr(_randomness, "random_words", drawn)
    assert np.array_equal(released_normal((50_000,)), normals_from_words(high, low))
    assert 100 <= asked[1] < 300
    # all 127 bits in one sum
    tail = (high & np.uint64(TOP - 1)).astype(float) + (low.astype(float) + 0.5) * 2.0**-64
    signs = np.where(high < TOP, -1.0, 1.0)
    assert np.array_equal(normals_from_words(high, low), signs * ndtri(tail * 2.0**-64))


def test_without_a_seed_every_bit_is_the_operating_systems(monkeypatch):
    """A system that returns zero bytes gives the largest normal: nothing else is mixed in."""
    monkeypatch.setattr(os, "urandom", bytes)
    assert set(standard_normal((4,))) == {normal_of(0, 0)}


@pytest.mark.parametrize("variance", [1, 2, 7, 100])
def test_discrete_gaussian_has_its_law(variance):
    bits = random_bits(variance)
    count = 20_000
    drawn = np.array([discrete_gaussian(variance, bits) for _ in range(count)])
    reach = math.ceil(4 * math.sqrt(variance))
    support = np.arange(-reach, reach + 1)
    observed = np.array([(drawn == k).sum() for k in support])

    def fit(assumed):
        weights = np.exp(-0.5 * np.arange(-200, 201) ** 2 / assumed)
        expected = count * np.exp(-0.5 * support**2 / assumed) / weights.sum()
        likely = expected > 10
        statistic = ((observed - expected)[likely] ** 2 / expected[likely]).sum()
        return stats.chi2.sf(statistic, likely.sum())

    assert fit(variance) > 1e-3
    assert fit(1.1 * variance) < 1e-3


@pytest.mark.parametrize("scale", [1, 2, 7])
def test_discrete_laplace_has_its_law(scale):
    bits = random_bits(scale)
    count = 20_000
    drawn = np.array([discrete_laplace(scale, bits) for _ in range(count)])
    assert drawn.var() <= 2 * scale**2 * 1.1
    support = np.arange(-4 * scale, 4 * scale + 1)
    observed = np.array([(drawn == k).sum() for k in support])

    def fit(assumed):
        # Σ e^{−|k|/b} = 1/tanh(1/2b)
        expected = count * np.exp(-np.abs(support) / assumed) * np.tanh(0.5 / assumed)
        statistic = ((observed - expected) ** 2 / expected).sum()
        return stats.chi2.sf(statistic, support.size)

    assert fit(scale) > 1e-3
    assert fit(1.1 * scale) < 1e-3


def test_a_discrete_gaussian_of_a_fine_step_is_a_gaussian():
    bits = random_bits(4)
    values = np.array([discrete_gaussian(4**30, bits) for _ in range(5_000)]) * 2.0**-30
    assert stats.kstest(values, "norm").pvalue > 1e-3
    assert stats.kstest(1.2 * values, "norm").pvalue < 1e-3
    assert random_bits(None).getrandbits(8) < 256


def test_fair_choices_are_uniform_and_in_range():
    for sides in (2, 3, 7):
        drawn = fair_choices(70_000, sides)
        counts = np.bincount(drawn, minlength=sides)
        assert counts.size == sides
        share = 1 / sides
        assert np.abs(counts - 70_000 * share).max() < 5 * np.sqrt(70_000 * share * (1 - share))
