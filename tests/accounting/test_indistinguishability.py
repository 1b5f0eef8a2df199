"""Rounds of Gaussian noise beside references: budgets, accounts and groups."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from tacit.accounting.mechanisms.indistinguishability import account_rounds, per_round_budgets
from tacit.accounting.published import dsi_corollary_c_1, dsi_lemma_3_5, dsi_theorem_3_4
from tacit.design import worst_case
from tacit.divergences import kl_gaussians, renyi_gaussians, shift_divergence


def gaussian_delta(squared, epsilon):
    """δ(ε) of a Gaussian shift at 60 digits."""
    mp.dps = 60
    d, loss = mp.sqrt(mpf(squared)), mpf(epsilon)
    return mp.ncdf(d / 2 - loss / d) - mp.exp(loss) * mp.ncdf(-d / 2 - loss / d)


@settings(max_examples=40, deadline=None)
@given(
    epsilon=st.floats(1e-3, 50),
    log_delta=st.floats(-28, -0.1),
    rounds=st.integers(1, 2000),
)
def test_budgets_keep_their_promise_and_waste_nothing(epsilon, log_delta, rounds):
    delta = math.exp(log_delta)
    budgets = per_round_budgets(epsilon, delta, rounds)
    assert budgets.shape == (rounds, 1)
    total = sum(Fraction(g) for g in budgets[:, 0].tolist())
    exact = mpf(total.numerator) / mpf(total.denominator)
    assert gaussian_delta(exact, epsilon) <= mpf(delta)
    assert gaussian_delta(exact * (1 + mpf("1e-9")), epsilon) > mpf(delta)
    assert account_rounds(budgets).approximate("reference 0", delta=delta).epsilon <= epsilon * (
        1 + 1e-12
    )


@settings(max_examples=40, deadline=None)
@given(epsilon=st.floats(1e-3, 50), log_delta=st.floats(-28, -0.1))
def test_the_published_route_is_sound_and_never_better(epsilon, log_delta):
    delta = math.exp(log_delta)
    budget = float(per_round_budgets(epsilon, delta, 1, route="renyi")[0, 0])
    assert budget <= float(per_round_budgets(epsilon, delta, 1)[0, 0])
    # its own formula: min over α of αG/2 + ln(1/δ)/(α − 1) = G/2 + √(2G ln(1/δ))
    assert budget / 2 + math.sqrt(2 * budget * -log_delta) == pytest.approx(epsilon, rel=1e-9)
    assert gaussian_delta(budget, epsilon) <= mpf(delta)


def test_unequal_references_and_rounds():
    epsilon, delta = np.array([0.5, 1.0, 4.0]), np.array([1e-6, 1e-5, 1e-3])
    shares = np.array([0.5, 0.3, 0.2])
    budgets = per_round_budgets(epsilon, delta, 3, shares=shares)
    assert budgets.shape == (3, 3)
    account = account_rounds(budgets, ["a", "b", "c"])
    for name, target, failure in zip("abc", epsilon.tolist(), delta.tolist(), strict=True):
        guarantee = account.approximate(name, delta=failure)
        assert guarantee.epsilon <= target * (1 + 1e-12)
        assert guarantee.epsilon == pytest.approx(target, rel=1e-9)
        assert name in guarantee.adjacency
    np.testing.assert_allclose(budgets / budgets.sum(axis=0), shares[:, None] * np.ones(3))


def test_the_account_of_designed_rounds():
    """Real designs for real differences: the covariance gives back the budgets it was made for."""
    rng = np.random.default_rng(5)
    budgets = per_round_budgets([0.5, 2.0, 2.0], 1e-6, rounds=4)
    spent = []
    for row in budgets:
        differences = rng.normal(size=(3, 6))
        design = worst_case(differences, row)
        spent.append([design.covariance.mahalanobis(z) for z in differences])
    account = account_rounds(spent)
    for name, target in zip(account.references, (0.5, 2.0, 2.0), strict=True):
        assert account.approximate(name, delta=1e-6).epsilon <= target * (1 + 1e-9)
    loosest = max(account.squared) / budgets.sum(axis=0).max()
    assert loosest > 0.5  # some constraint of each design is tight


def test_divergences_beside_the_joint_gaussian():
    """Non-adaptive rounds are one Gaussian with a block covariance."""
    rng = np.random.default_rng(0)
    shifts, covariances = rng.normal(size=(3, 2)), [np.diag(v) for v in rng.uniform(1, 4, (3, 2))]
    squared = [z @ np.linalg.solve(c, z) for z, c in zip(shifts, covariances, strict=True)]
    account = account_rounds([[g] for g in squared], ["without Ada"])
    block = np.zeros((6, 6))
    for i, covariance in enumerate(covariances):
        block[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = covariance
    zero, mean = np.zeros(6), shifts.ravel()
    kl = account.indistinguishability("kl").bounds[0]
    assert kl == pytest.approx(kl_gaussians(zero, block, mean, block), rel=1e-12)
    assert kl == pytest.approx(dsi_corollary_c_1([g / 2 for g in squared]), rel=1e-12)
    curve = account.renyi("without Ada", [1.5, 2.0, 8.0])
    for order, value in zip(curve.orders, curve.epsilons, strict=True):
        exact = renyi_gaussians(zero, block, mean, block, order)
        assert exact * (1 - 1e-12) <= value <= exact * (1 + 1e-12)
    rounds = [math.exp(2.5 * 1.5 * g / 2) for g in squared]
    product = float(account.alpha_divergences(2.5)[0])
    assert product == pytest.approx(dsi_theorem_3_4(rounds), rel=1e-12)


def test_adaptive_rounds_by_simulation():
    """The second difference depends on the first output, within its distance whatever it was."""
    rng = np.random.default_rng(11)
    size, epsilon = 400_000, 0.4

    def second_shift(first):
        return np.where(first > 0.3, 0.5, -0.2)

    first, noise = rng.normal(size=(2, size))
    loss = 0.6 * 0.6 / 2 - 0.6 * first  # ln dN(0,1)/dN(0.6,1) at the first output
    shift = second_shift(first)
    loss = loss + shift * shift / 2 - shift * noise
    gains = np.maximum(-np.expm1(epsilon - loss), 0.0)
    estimate, error = float(gains.mean()), float(gains.std() / math.sqrt(size))
    account = account_rounds([[0.36], [0.25]])
    bound = account.indistinguishability(("hockey-stick", epsilon)).bounds[0]
    assert estimate <= bound + 5 * error
    too_small = shift_divergence(("hockey-stick", epsilon), 0.6)  # the second round left out
    assert estimate > too_small + 5 * error


def test_a_group_of_references():
    rng = np.random.default_rng(3)
    weights = {"a": 0.5, "c": 0.3, "d": 0.2}
    rounds = [(rng.normal(size=(4, 5)), rng.uniform(0.5, 2, 5)) for _ in range(3)]
    squared = [[float(np.sum(z * z / v)) for z in differences] for differences, v in rounds]
    account = account_rounds(squared, ["a", "b", "c", "d"])
    group = account.group(weights, "kl", name="a, c and d")
    kept = np.array([0.5, 0.0, 0.3, 0.2])
    true = sum(float(np.sum((kept @ differences) ** 2 / v)) for differences, v in rounds)
    assert true / 2 <= group.bounds[0]
    members = [account.squared[i] for i in (0, 2, 3)]
    published = dsi_lemma_3_5("kl", members, list(weights.values()))
    assert group.bounds[0] <= published * (1 + 1e-12)
    assert group.references == ("a, c and d",)
    alone = account.group({"b": 1.0}, "kl", name="b alone").bounds[0]
    assert alone == pytest.approx(account.squared[1] / 2, rel=1e-12)


def test_extremes():
    free = account_rounds([[0.0], [0.0]])
    assert free.approximate("reference 0", delta=1e-9).epsilon == 0.0
    assert free.indistinguishability("kl").bounds == (0.0,)
    huge = account_rounds([[1e308], [1e308]])
    assert huge.squared == (math.inf,)
    assert huge.indistinguishability("tv").bounds == (1.0,)
    assert huge.approximate("reference 0", delta=1e-9).epsilon == math.inf
    assert huge.alpha_divergences(2.0).tolist() == [math.inf]


ACCOUNT = account_rounds([[0.1, 0.2]], ["a", "b"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: per_round_budgets(0.0, 1e-5, 1), "epsilon: expected numbers > 0, got 0.0"),
        (lambda: per_round_budgets(1.0, [0.1, 1.0], 1), "delta: expected numbers in (0, 1)"),
        (lambda: per_round_budgets([1, 2, 3], [0.1, 0.2], 1), "delta: expected 3 entries, got 2"),
        (lambda: per_round_budgets(1.0, 0.1, 0), "rounds: expected an integer >= 1, got 0"),
        (lambda: per_round_budgets(1.0, 0.1, 2, shares=[0.5]), "shares: expected 2 entries"),
        (lambda: per_round_budgets(1.0, 0.1, 2, shares=[0.5, 0.6]), "shares: expected a sum of 1"),
        (lambda: per_round_budgets(1.0, 0.1, 2, shares=[0.0, 1.0]), "shares: expected numbers > 0"),
        (lambda: per_round_budgets(1.0, 0.1, 1, route="best"), "route: expected one of 'exact'"),
        (lambda: account_rounds([[-0.1]]), "squared_distances: expected numbers >= 0, got -0.1"),
        (lambda: account_rounds([[math.nan]]), "squared_distances: expected finite numbers"),
        (lambda: account_rounds([0.1]), "squared_distances: expected a 2-dimensional array"),
        (lambda: account_rounds([[0.1, 0.2]], ["a"]), "references: expected 2 distinct names"),
        (lambda: account_rounds([[0.1, 0.2]], ["a", "a"]), "references: expected 2 distinct names"),
        (lambda: ACCOUNT.profile("c"), "reference: expected one of 'a', 'b', got 'c'"),
        (lambda: ACCOUNT.approximate("a", delta=0.0), "delta: expected a number in (0.0, 1.0)"),
        (lambda: ACCOUNT.renyi("a", [1.0]), "orders: expected increasing numbers > 1"),
        (lambda: ACCOUNT.indistinguishability("l2"), "divergence: expected 'kl'"),
        (lambda: ACCOUNT.alpha_divergences(1.0), "order: expected a number in (1.0"),
        (lambda: ACCOUNT.group({}, "kl", name="g"), "weights: expected a weight for each member"),
        (lambda: ACCOUNT.group({"a": 0.5}, "kl", name="g"), "weights: expected a sum of 1"),
        (lambda: ACCOUNT.group({"c": 1.0}, "kl", name="g"), "reference: expected one of"),
    ],
)
def test_bad_input_gets_a_sentence(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
