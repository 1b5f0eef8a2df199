"""Bounds from guessing coins, against the worst mechanism there is and in repetition."""

import math
from itertools import product

import mpmath
import numpy as np
import pytest
from scipy import optimize, sparse, special, stats

from tacit.attacks import CoinGuesses, OneRunAudit, audit_one_run, coins
from tacit.attacks.audit.bounds import (
    gaussian_epsilon,
    is_impossible,
    lower_epsilon,
    lower_mu,
    p_value,
)

from .registry import bounds

EACH = bounds(CoinGuesses, "epsilon_low", "mu_low")
WHOLE = bounds(OneRunAudit, "epsilon_low", "mu_low", "gaussian_epsilon_low")
RUNS = 1000


def worst_chance(coins_thrown, guesses, right, promises):
    """The largest P[W >= v] of any mechanism that keeps every (ε, δ), by linear programming.

    The variables are P(t | s) for every setting s of the coins and every way t of guessing r of
    them, and max(P(t | s) − e^ε P(t | s'), 0) for settings s, s' that differ in one coin.
    """
    settings = list(product((-1, 1), repeat=coins_thrown))
    ways = [t for t in product((-1, 0, 1), repeat=coins_thrown) if np.abs(t).sum() == guesses]
    pairs = [
        (a, b)
        for a, b in product(range(len(settings)), repeat=2)
        if np.abs(np.subtract(settings[a], settings[b])).sum() == 2
    ]
    width, blocks = len(ways), [(pair, promise) for pair in pairs for promise in promises]
    laws = len(settings) * width
    gain = np.zeros(laws + len(blocks) * width)
    for i, (s, t) in enumerate(product(settings, ways)):
        gain[i] = (np.multiply(s, t).clip(0).sum() >= right) / len(settings)
    excess = sparse.lil_array((len(blocks) * (width + 1), gain.size))
    limit = np.zeros(len(blocks) * (width + 1))
    for i, ((a, b), (epsilon, delta)) in enumerate(blocks):
        for t in range(width):
            row, slack = i * (width + 1) + t, laws + i * width + t
            excess[row, a * width + t] = 1.0
            excess[row, b * width + t] = -math.exp(epsilon)
            excess[row, slack] = -1.0
            excess[(i + 1) * (width + 1) - 1, slack] = 1.0
        limit[(i + 1) * (width + 1) - 1] = delta
    total = sparse.kron(sparse.eye_array(len(settings)), np.ones((1, width)))
    total = sparse.hstack([total, sparse.csr_array((len(settings), gain.size - laws))])
    found = optimize.linprog(
        -gain, A_ub=excess.tocsr(), b_ub=limit, A_eq=total, b_eq=np.ones(len(settings))
    )
    assert found.status == 0
    return -found.fun


def inverse_of(promises):
    """f̄⁻¹ of the trade-off that several (ε, δ) allow, the largest of theirs."""

    def inverse(reach):
        lines = [0.0]
        for epsilon, delta in promises:
            lines.append(math.exp(-epsilon) * (reach - delta))
            lines.append(1.0 - delta - math.exp(epsilon) * (1.0 - reach))
        return max(lines)

    return inverse


SIGNS = list(product((-1, 1), repeat=2))
COUNTS = [(1, 1, 1), (2, 2, 2), (2, 2, 1), (2, 1, 1), (3, 3, 3), (3, 3, 2), (3, 2, 2), (3, 2, 1)]


@EACH
@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.5])
@pytest.mark.parametrize("counts", COUNTS)
def test_no_private_mechanism_beats_the_p_value(counts, epsilon):
    for delta in (0.0, 0.01, 0.2):
        worst = worst_chance(*counts, [(epsilon, delta)])
        bound = p_value(*counts, epsilon, delta)
        assert worst <= bound + 1e-9
        assert not is_impossible(*counts, worst * (1 - 1e-6), inverse_of([(epsilon, delta)]))
        assert lower_epsilon(*counts, delta, worst * (1 - 1e-6)) <= epsilon * (1 + 1e-6)
        if delta == 0.0:
            assert bound == pytest.approx(worst, rel=1e-6)


@EACH
@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("counts", COUNTS)
def test_no_mechanism_with_a_trade_off_is_called_impossible(counts, mu):
    """A Gaussian's trade-off is the limit of the (ε, δ) it implies; five of them allow more."""
    promises = [
        (epsilon, float(special.ndtr(a) - math.exp(epsilon) * special.ndtr(b)))
        for epsilon in (0.0, 0.3 * mu, mu, 2.0 * mu, 4.0 * mu)
        for a, b in [(mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu)]
    ]
    worst = worst_chance(*counts, promises)
    assert worst > 0.5 ** counts[1]
    assert not is_impossible(*counts, worst * (1 - 1e-6), inverse_of(promises))
    if counts == (1, 1, 1):
        assert is_impossible(*counts, worst * (1 + 1e-6), inverse_of(promises))


@EACH
@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_one_gaussian_coin_is_tight(mu):
    reached = float(special.ndtr(mu / 2))
    low = lower_mu(1, 1, 1, reached)
    assert low <= mu
    assert low == pytest.approx(mu, rel=1e-6)


def mass(canaries, guesses, right, failure, inverse):
    """The least total probability of the recursion, in the digits of the context; 2 above 1."""
    m, r, v = map(mpmath.mpf, (canaries, guesses, right))
    reach, miss = failure * v / m, failure * (r - v) / m
    for i in range(right - 1, -1, -1):
        needed = max(miss, inverse(reach))
        reach += i / (r - i) * (needed - miss)
        miss = needed
        if reach + miss > r / m:
            return 2
    return (reach + miss) * m / r


def recursion(canaries, guesses, right, mu, failure):
    """The least mass under μ in 40 digits."""
    with mpmath.workdps(40):

        def inverse(reach):
            return mpmath.ncdf(mpmath.sqrt(2) * mpmath.erfinv(2 * reach - 1) - mu)

        return mass(canaries, guesses, right, failure, inverse)


@EACH
@pytest.mark.parametrize("counts", [(100, 40, 36), (100, 40, 40), (200, 200, 140), (300, 60, 50)])
@pytest.mark.parametrize("failure", [0.05, 1e-4])
def test_the_bound_on_mu_is_just_below_the_exact_one(counts, failure):
    low = lower_mu(*counts, failure)
    assert low > 0.0
    exact = mpmath.mpf(failure)
    assert recursion(*counts, mpmath.mpf(low), exact) > 1
    assert recursion(*counts, mpmath.mpf(low) * (1 + mpmath.mpf("1e-6")), exact) <= 1


def published(canaries, guesses, right, epsilon, delta):
    """The p-value of Steinke, Nasr and Jagielski (2023), Theorem 5.2 and Appendix D."""
    law, wins = stats.binom(guesses, special.expit(epsilon)), np.arange(1, right + 1)
    shifted = (law.sf(right - 1 - wins) - law.sf(right - 1)) / wins
    return law.sf(right - 1) + 2 * canaries * delta * shifted.max()


@EACH
@pytest.mark.parametrize("epsilon", [1.0, 1.5, 2.0])
def test_a_mechanism_of_two_coins_exceeds_the_published_p_value(epsilon):
    """Both guesses are wrong with probability p, one with y each, none with x."""
    delta, odds = 0.01, math.exp(epsilon)
    p = (1 - delta * (2 + odds)) / (1 + odds) ** 2
    y = odds * p + delta
    x = odds * y
    laws = {s: {t: (p, y, x)[(np.equal(s, t)).sum()] for t in SIGNS} for s in SIGNS}
    for s, other in product(SIGNS, SIGNS):
        assert sum(laws[s].values()) == pytest.approx(1.0)
        if np.not_equal(s, other).sum() == 1:
            excess = [laws[s][t] - odds * laws[other][t] for t in SIGNS]
            assert np.clip(excess, 0, None).sum() <= delta * (1 + 1e-9)
    assert 1 - p > published(2, 2, 1, epsilon, delta)
    assert 1 - p <= p_value(2, 2, 1, epsilon, delta)
    promise = [(epsilon, delta)]
    assert worst_chance(2, 2, 1, promise) == pytest.approx(1 - p, rel=1e-6)
    assert not is_impossible(2, 2, 1, 1 - p, inverse_of(promise))


@EACH
def test_without_delta_the_bound_is_clopper_and_pearsons():
    for guesses, right in ((100, 75), (100, 100), (30, 25), (1000, 800)):
        exact = special.logit(stats.beta.ppf(0.05, right, guesses - right + 1))
        found = lower_epsilon(1000, guesses, right, 0.0, 0.05)
        assert found <= exact
        assert found == pytest.approx(exact, rel=1e-6)


@EACH
@pytest.mark.parametrize("delta", [1e-7, 1e-5, 3e-4])
def test_the_bound_on_epsilon_is_rounded_down(delta):
    """Either the p-value or the recursion, in 40 digits, is below α at the bound."""
    for counts in ((1000, 100, 90), (1000, 100, 100), (200, 200, 140), (2000, 100, 100)):
        low = lower_epsilon(*counts, delta, 0.05)
        assert 0.0 < low <= lower_epsilon(*counts, 0.0, 0.05) * (1 + 1e-9)
        assert exact_p_value(*counts, low, delta) <= 0.05 or not is_possible(*counts, low, delta)


def exact_p_value(canaries, guesses, right, epsilon, delta):
    with mpmath.workdps(40):
        q = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))

        def chance(count, hits):
            return mpmath.binomial(count, hits) * q**hits * (1 - q) ** (count - hits)

        tail = mpmath.fsum(chance(guesses, hits) for hits in range(right, guesses + 1))
        # the mode of Bin(j, q) is next to j q
        likeliest = mpmath.fsum(
            max(chance(j, k) for k in range(int(j * q), min(int(j * q) + 1, j) + 1))
            for j in range(guesses)
        )
        return tail + delta * (1 - q) * (canaries - guesses + likeliest)


def is_possible(canaries, guesses, right, epsilon, delta):
    with mpmath.workdps(40):
        odds = mpmath.exp(mpmath.mpf(epsilon))

        def inverse(reach):
            return max(0, (reach - delta) / odds, 1 - delta - odds * (1 - reach))

        return mass(canaries, guesses, right, mpmath.mpf(0.05), inverse) <= 1


@WHOLE
@pytest.mark.parametrize("mu", [1e-3, 0.2, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.3])
def test_the_epsilon_of_a_gaussian_is_rounded_down(mu, delta):
    low = gaussian_epsilon(mu, delta)

    def curve(epsilon):
        with mpmath.workdps(60):
            shift, loss = mpmath.mpf(mu), mpmath.mpf(epsilon)
            near = mpmath.ncdf(shift / 2 - loss / shift)
            return near - mpmath.exp(loss) * mpmath.ncdf(-shift / 2 - loss / shift)

    if low == 0.0:
        assert curve(0.0) <= delta * (1 + 1e-6)
    else:
        assert curve(low) >= delta
        assert curve(low * (1 + 1e-5)) <= delta


def responses(epsilon, canaries, source):
    """Scores of randomised response: each coin, kept with probability e^ε/(1 + e^ε)."""
    inside = coins(canaries, source)
    kept = source.random(canaries) < special.expit(epsilon)
    return np.where(kept, inside, ~inside).astype(float), inside


def allowed(share):
    return share * RUNS + 4.5 * math.sqrt(share * (1 - share) * RUNS)


@EACH
@WHOLE
@pytest.mark.parametrize(("canaries", "guesses"), [(400, 400), (400, 100)])
def test_randomised_response_is_covered(canaries, guesses):
    epsilon, source, level = 1.0, np.random.default_rng(1), 0.9
    mu = 2.0 * special.ndtri(special.expit(epsilon))
    missed = np.zeros(2)
    for _ in range(RUNS):
        half = guesses // 2
        found = audit_one_run(
            *responses(epsilon, canaries, source),
            top=half,
            bottom=half,
            delta=0.0,
            confidence=level,
            rng=source,
        )
        missed += found.epsilon_low > epsilon, found.mu_low > mu
    assert (missed <= allowed(1 - level)).all(), missed
    # the ε of randomised response is met, so that a bound any higher would be wrong too often
    assert missed[0] > 0.25 * (1 - level) * RUNS


@EACH
@WHOLE
@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_a_gaussian_is_covered(mu):
    source, level, delta = np.random.default_rng(2), 0.9, 1e-5
    epsilon = gaussian_epsilon(mu, delta)
    missed = np.zeros(3)
    for _ in range(RUNS):
        inside = coins(500, source)
        scores = source.standard_normal(500) + mu * inside
        found = audit_one_run(
            scores, inside, top=50, bottom=50, delta=delta, confidence=level, rng=source
        )
        missed += (
            found.epsilon_low > epsilon,
            found.mu_low > mu,
            found.gaussian_epsilon_low > epsilon,
        )
    assert (missed <= allowed(1 - level)).all(), missed


@WHOLE
def test_the_best_of_seven_is_wrong_too_often_unless_it_is_paid_for():
    epsilon, source, level = 1.0, np.random.default_rng(3), 0.95
    halves = (5, 10, 25, 50, 100, 150, 200)
    unpaid = paid = 0
    for _ in range(RUNS):
        found = audit_one_run(
            *responses(epsilon, 400, source),
            top=halves,
            bottom=halves,
            delta=0.0,
            confidence=level,
            rng=source,
        )
        paid += found.epsilon_low > epsilon
        unpaid += any(
            lower_epsilon(400, one.guesses, one.right, 0.0, 1 - level) > epsilon
            for one in found.choices
        )
    assert unpaid > allowed(1 - level)
    assert paid <= allowed(1 - level)
