"""Codes reported at random: every report's law enumerated, beside what is certified of it."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp, mpf

pytest.importorskip("torch")

from tacit.guarantees import ApproximateDP, InformationBound, MaximalLeakage, SuccessBound
from tacit.hidden_states.codebooks.response import RandomizedCodes

from . import oracles
from .registry import certifies

SEEDS = range(24)


def drawn_instance(seed):
    """A mechanism over 2 … 6 codes, and 2 … 6 candidates with their codes."""
    source = np.random.default_rng(seed)
    size = int(source.integers(2, 7))
    near = int(source.integers(1, size))
    rows = [
        source.permutation([c, *source.permutation(np.delete(np.arange(size), c))[: near - 1]])
        for c in range(size)
    ]
    epsilon = float(np.exp(source.uniform(np.log(0.01), np.log(40.0))))
    codes = source.integers(size, size=int(source.integers(2, 7)))
    return source, RandomizedCodes(epsilon, np.array(rows)), codes


def law_as_drawn(mechanism):
    """P(y | c) in fractions: a share of 2⁻⁵³ steps decides, then all codes of a kind are alike."""
    share, near, size = Fraction(mechanism.inside), mechanism.near, mechanism.size
    law = [[(1 - share) / (size - near)] * size for _ in range(size)]
    for code, row in enumerate(mechanism.neighbours.tolist()):
        for each in row:
            law[code][each] = share / near
    return law


def law_as_defined(mechanism):
    """e^ε/Z for the codes listed and 1/Z for others, at 60 digits."""
    with mp.workdps(oracles.DIGITS):
        weight = mp.exp(mpf(mechanism.epsilon))
        total = mechanism.near * weight + mechanism.size - mechanism.near
        return [
            [(weight if each in row else 1) / total for each in range(mechanism.size)]
            for row in mechanism.neighbours.tolist()
        ]


@certifies(ApproximateDP)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_report_is_more_telling_than_epsilon(seed):
    _, mechanism, _ = drawn_instance(seed)
    law = law_as_drawn(mechanism)
    assert all(sum(row) == 1 for row in law)
    for releases in (1, 2):
        outcomes = list(itertools.product(range(mechanism.size), repeat=releases))
        ratio = max(
            mp.convert(
                math.prod(law[c][y] for y in outcome) / math.prod(law[d][y] for y in outcome)
            )
            for outcome in outcomes
            for c, d in itertools.permutations(range(mechanism.size), 2)
        )
        found = mechanism.guarantee(releases)
        assert found.delta == 0.0
        with mp.workdps(oracles.DIGITS):
            true = mp.log(ratio)
            assert found.epsilon >= true
            # the steps of 2⁻⁵³ are all that keeps the bound from being attained
            assert mechanism.epsilon > 30 or found.epsilon <= true * (1 + mpf(10) ** -2)


@certifies(ApproximateDP, SuccessBound)
@pytest.mark.parametrize("seed", SEEDS)
def test_telling_two_prompts_apart_by_several_reports(seed):
    source, mechanism, _ = drawn_instance(seed)
    law = law_as_drawn(mechanism)
    prior = Fraction(int(source.integers(1, 1024)), 1024)
    for releases in (1, 3):
        bound = mechanism.guarantee(releases).success(float(prior)).success
        for c, d in itertools.permutations(range(min(mechanism.size, 4)), 2):
            best = sum(
                max(
                    prior * math.prod(law[c][y] for y in outcome),
                    (1 - prior) * math.prod(law[d][y] for y in outcome),
                )
                for outcome in itertools.product(range(mechanism.size), repeat=releases)
            )
            assert Fraction(bound) >= best


@certifies(SuccessBound, InformationBound)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_report_never_tells_more_than_certified(seed):
    source, mechanism, codes = drawn_instance(seed)
    count = len(codes)
    given = None
    masses = [Fraction(1, count)] * count
    if seed % 2:
        # integers that add up to a power of two: the prior has no rounding
        given = source.multinomial(1024 - count, source.dirichlet(np.ones(count))) + 1.0
        masses = [Fraction(int(weight), 1024) for weight in given]
    found = mechanism.certify(codes, weights=given)
    for law in (law_as_drawn(mechanism), law_as_defined(mechanism)):
        channel = np.array([law[code] for code in codes], dtype=object)
        nats, success = oracles.channel_information(masses, channel)
        assert found.success.success >= success
        assert found.information.nats >= nats
        # attained by the Bayes attacker, so that any smaller number would be false
        assert found.success.success <= success * (1 + mpf(10) ** -9) + mpf(10) ** -12


@certifies(MaximalLeakage)
@pytest.mark.parametrize("seed", SEEDS)
def test_reports_multiply_no_chance_by_more_than_certified(seed):
    source, mechanism, _ = drawn_instance(seed)
    law = law_as_drawn(mechanism)
    for releases in (1, 2):
        found = mechanism.leakage(releases)
        outcomes = list(itertools.product(range(mechanism.size), repeat=releases))
        chances = [[math.prod(row[y] for y in outcome) for outcome in outcomes] for row in law]
        # side information: some codes are ruled out, and the others have any prior
        shares = source.dirichlet(np.ones(mechanism.size))
        shares[source.random(mechanism.size) < 0.3] = 0.0
        shares[int(source.integers(mechanism.size))] = 0.5
        prior = [Fraction(float(share)) for share in shares]
        joint = [
            [share * chance for chance in row] for share, row in zip(prior, chances, strict=True)
        ]
        seen = sum(max(column) for column in zip(*joint, strict=True))
        assert seen <= Fraction(found.factor) * max(prior)
        exact = sum(max(column) for column in zip(*chances, strict=True))
        assert exact <= Fraction(found.factor)
        # two reports of a code leak at most what one report does twice
        assert releases == 2 or Fraction(found.factor) <= exact * (1 + Fraction(1, 10**12))
    assert mechanism.certify([0, 1]).leakage == mechanism.leakage()


@certifies(ApproximateDP)
@pytest.mark.parametrize("size", [2, 5, 300, 4000])
def test_an_epsilon_below_the_steps_of_the_draw_is_refused(size):
    each = np.arange(size)[:, None]
    for epsilon in (1e-300, 1e-17):
        with pytest.raises(ValueError, match=r"steps of 2\^-53"):
            RandomizedCodes(epsilon, each)
    for epsilon in (1e-15 * size, 1e-12 * size):
        mechanism = RandomizedCodes(epsilon, each)
        near = Fraction(mechanism.inside)
        far = (1 - near) / (size - 1)
        with mp.workdps(oracles.DIGITS):
            assert abs(mp.log(mp.convert(near / far))) <= mechanism.guarantee().epsilon
