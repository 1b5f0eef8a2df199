"""Filters of the ledger beside adaptive adversaries, every outcome enumerated; μ beside mpmath."""

import itertools
import math

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.special import logsumexp

from tacit.guarantees import (
    ApproximateDP,
    GaussianDP,
    InformationBound,
    MaximalLeakage,
    RenyiDP,
    SuccessBound,
)
from tacit.information import channel_leakage
from tacit.ledger.account import DEFAULT_ORDERS, Account
from tacit.ledger.filters import exceeds
from tacit.ledger.notions import Budget, charge_of

from .registry import certifies

PROOF = {"evidence": "theorem", "assumptions": (), "source": "test"}
DEPTH = 5
TRIED = 3


def pure_curve(first, second, orders):
    """The Rényi curve of two finite laws, the larger direction, a little up."""
    values = []
    for order in orders:
        both = [
            float(logsumexp(order * np.log(p) + (1 - order) * np.log(q))) / (order - 1)
            for p, q in ((first, second), (second, first))
        ]
        values.append(max(*both, 0.0) * (1 + 1e-12) + 1e-15)
    return RenyiDP(orders=tuple(orders), epsilons=tuple(values), adjacency="a", **PROOF)


def mechanisms(rng, orders):
    """Laws of three outcomes: some whose loss is rare and large, some frequent and small."""
    found = []
    for spread in (0.05, 0.2, 0.5):
        for rare in (1e-4, 1e-2, 0.3):
            first = np.array([rare, 0.5, 0.5 - rare])
            second = first * np.exp(spread * rng.normal(size=3) * np.array([4.0, 1.0, 1.0]))
            second /= second.sum()
            found.append((first, second, charge_of(pure_curve(first, second, orders))))
    return found


def leaves(rng, pool, budget, orders, *, filtered=True):
    """Probabilities of every path of an adversary that chooses by what it saw, up to the filter."""
    paths = []

    def walk(account, p, q, depth):
        options = [pool[i] for i in rng.permutation(len(pool))[:TRIED]]
        for first, second, charge in options:
            after = account.added([charge])
            if depth < DEPTH and not (filtered and exceeds(budget, after)):
                for a, b in zip(first, second, strict=True):
                    walk(after, p * a, q * b, depth + 1)
                return
            if not filtered:
                break
        paths.append((p, q))

    walk(Account(orders=orders), 1.0, 1.0, 0)
    return np.array(paths)


def true_delta(paths, epsilon):
    p, q = paths.T
    grown = math.exp(epsilon)
    return max(np.maximum(p - grown * q, 0).sum(), np.maximum(q - grown * p, 0).sum())


@certifies(RenyiDP, ApproximateDP)
@pytest.mark.parametrize("orders", [(3.0,), (2.0, 16.0), DEFAULT_ORDERS])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.05), (1.0, 1e-2), (2.0, 1e-3)])
def test_an_adaptive_adversary_stays_within_the_budget(orders, epsilon, delta):
    rng = np.random.default_rng(5)
    budget = Budget(epsilon=epsilon, delta=delta)
    free = []
    for _ in range(6):
        pool = mechanisms(rng, orders)
        assert true_delta(leaves(rng, pool, budget, orders), epsilon) <= delta
        free.append(true_delta(leaves(rng, pool, budget, orders, filtered=False), epsilon))
    assert max(free) > delta, "the control, which nobody stops, was to overrun the budget"


@pytest.mark.thorough
@certifies(GaussianDP)
def test_shifts_chosen_by_what_was_seen_stay_within_mu():
    """Mean of (1 − e^{ε − L})₊ over adaptive Gaussian runs, beside the one shift μ."""
    rng = np.random.default_rng(11)
    budget, runs = Budget(mu=1.5), 4000
    limit = GaussianDP(mu=1.5, adjacency="a", **PROOF)
    filtered, free = np.zeros(runs), np.zeros(runs)
    charges = {mu: charge_of(GaussianDP(mu=mu, adjacency="a", **PROOF)) for mu in (0.5, 0.6, 0.9)}
    for run in range(runs):
        account, open_filter, noise = Account(), True, rng.normal(size=14)
        for z in noise:
            # greedy: small steps while it wins, large ones when it is behind
            mu = 0.5 if free[run] > 1.0 else 0.9 if free[run] < 0 else 0.6
            loss = mu * z + mu * mu / 2
            after = account.added([charges[mu]])
            open_filter = open_filter and not exceeds(budget, after)
            if open_filter:
                account = after
                filtered[run] += loss
            free[run] += loss
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        bound = limit.approximate(epsilon).delta
        gains = np.maximum(-np.expm1(epsilon - filtered), 0.0)
        assert gains.mean() <= bound + 5 * gains.std() / math.sqrt(runs)
        unstopped = np.maximum(-np.expm1(epsilon - free), 0.0)
        assert unstopped.mean() > bound + 5 * unstopped.std() / math.sqrt(runs)


def paths_of(rng, pool, budget, inputs, *, filtered):
    """P(path | x) of every path of an adversary that chooses by what it saw, up to the filter."""
    paths = []

    def walk(account, chances, depth):
        for rows, charge in [pool[i] for i in rng.permutation(len(pool))[:TRIED]]:
            after = account.added([charge])
            if depth < DEPTH and not (filtered and exceeds(budget, after)):
                for column in rows.T:
                    walk(after, chances * column, depth + 1)
                return
        paths.append(chances)

    walk(Account(), np.ones(inputs), 0)
    return np.array(paths)


@certifies(MaximalLeakage, InformationBound)
@pytest.mark.parametrize("kind", ["leakage", "nats"])
@pytest.mark.parametrize("limit", [0.5, 1.5, 3.0])
def test_factors_chosen_by_what_was_seen_stay_within_the_budget(kind, limit):
    rng = np.random.default_rng(7)
    budget = Budget(**{kind: limit})
    free = []
    for _ in range(6):
        inputs = int(rng.integers(2, 12))
        pool = []
        for sharpness in (0.2, 1.0, 5.0):
            for outputs in (2, 3):
                rows = rng.dirichlet(np.full(outputs, 1 / sharpness), size=inputs)
                pool.append((rows, charge_of(channel_leakage(rows))))
        paths = paths_of(rng, pool, budget, inputs, filtered=True)
        assert paths.sum(axis=0) == pytest.approx(1.0)
        assert paths.max(axis=1).sum() <= math.exp(limit) * (1 + 1e-12)
        prior = rng.dirichlet(np.full(inputs, 0.3))
        joint = paths * prior
        assert joint.max(axis=1).sum() <= math.exp(limit) * prior.max() * (1 + 1e-12)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = joint * np.log(paths / joint.sum(axis=1, keepdims=True))
        assert np.nansum(ratio) <= limit * (1 + 1e-12)
        without = paths_of(rng, pool, budget, inputs, filtered=False)
        free.append(without.max(axis=1).sum())
    # 12 inputs cannot be named better than always
    assert limit > math.log(6) or max(free) > math.exp(limit), "the control was to overrun"


@certifies(GaussianDP, SuccessBound, ApproximateDP, RenyiDP)
@pytest.mark.parametrize("mu", [1e-8, 1e-3, 0.1, 1.0, 6.0, 30.0])
def test_what_mu_gives_is_never_below_the_gaussian_pair(mu):
    bound = GaussianDP(mu=mu, adjacency="a", **PROOF)
    with mp.workdps(60):
        exact = mpf(mu)
        for epsilon, prior in itertools.product((0.0, 0.1, 1.0, 20.0), (0.5, 0.1, 0.99)):
            e = mpf(epsilon)
            delta = mp.ncdf(exact / 2 - e / exact) - mp.exp(e) * mp.ncdf(-exact / 2 - e / exact)
            found = mpf(bound.approximate(epsilon).delta)
            assert delta <= found <= delta * (1 + mpf(10) ** -9) + mpf(10) ** -300
            # the best test of N(0, 1), of probability 1 − p, against N(μ, 1)
            cut = exact / 2 + mp.log((1 - mpf(prior)) / mpf(prior)) / exact
            best = mpf(prior) * mp.ncdf(exact - cut) + (1 - mpf(prior)) * mp.ncdf(cut)
            assert best <= mpf(bound.success(prior).success) <= best + mpf(10) ** -9
        orders = (1.5, 2.0, 64.0)
        for order, value in zip(orders, bound.renyi(orders).epsilons, strict=True):
            assert mpf(order) * exact**2 / 2 <= mpf(value)
            assert mpf(value) <= mpf(order) * exact**2 / 2 * (1 + mpf(2) ** -51)
