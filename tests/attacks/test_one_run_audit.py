"""The audit of one run: its reference values, its power, its ties and what it refuses."""

import math

import numpy as np
import pytest

from tacit import codec
from tacit.attacks import CoinGuesses, OneRunAudit, audit_one_run, coins, white_box_scores
from tacit.attacks.audit.bounds import gaussian_epsilon, lower_epsilon, lower_mu
from tacit.guarantees import (
    ApproximateDP,
    GaussianDP,
    InformationBound,
    MaximalLeakage,
    RenyiDP,
)

THEOREM = {"evidence": "theorem", "assumptions": (), "source": "test"}
ADJACENT = {**THEOREM, "adjacency": "add or remove one canary"}
DELTA = 1e-5
# (μ, its ε): for each number of canaries the share guessed about, and the mean lower bounds on ε
# of the (ε, δ) and the Gaussian form at 95%.
TABLE = {
    (0.5, 1.99): {100: (0.3, 0.13, 0.20), 1000: (0.1, 0.65, 0.99), 10_000: (0.03, 1.04, 1.28)},
    (1.0, 4.38): {100: (0.35, 0.83, 1.56), 1000: (0.1, 1.63, 2.48), 10_000: (0.02, 2.35, 3.00)},
    (2.0, 10.0): {100: (0.4, 2.06, 4.07), 1000: (0.15, 3.47, 5.78), 10_000: (0.05, 4.48, 6.72)},
    (4.0, 24.4): {100: (0.7, 3.13, 6.95), 1000: (0.7, 5.42, 11.0), 10_000: (0.4, 6.92, 12.9)},
}
CELLS = [(mu, truth, m, *cell) for (mu, truth), row in TABLE.items() for m, cell in row.items()]


def gaussian_run(canaries, mu, source):
    inside = coins(canaries, source)
    return source.standard_normal(canaries) + mu * inside, inside


def audited(canaries, mu, share, source, **options):
    half = round(share * canaries / 2)
    named = {"top": half, "bottom": half, "delta": DELTA, "rng": source, **options}
    return audit_one_run(*gaussian_run(canaries, mu, source), **named)


@pytest.mark.parametrize(("mu", "truth", "canaries", "share", "epsilon", "gaussian"), CELLS)
def test_independent_gaussian_scores_give_the_reference_values(
    mu, truth, canaries, share, epsilon, gaussian
):
    source = np.random.default_rng([canaries, int(10 * mu)])
    runs = {100: 400, 1000: 60, 10_000: 20}[canaries]
    found = [audited(canaries, mu, share, source) for _ in range(runs)]
    pairs = np.array([(one.epsilon_low, one.gaussian_epsilon_low) for one in found])
    assert gaussian_epsilon(mu, DELTA) == pytest.approx(truth, rel=5e-3)
    # The values stand to two digits and are measured too, on as many runs at most; that of the
    # first form has the published term in δ, which differs by a few parts in a hundred.
    error = math.sqrt(2.0) * pairs.std(axis=0, ddof=1) / math.sqrt(min(runs, 20))
    beyond = pairs.mean(axis=0) - [epsilon, gaussian]
    assert (np.abs(beyond) < 3 * error + [0.01 + 0.03 * epsilon, 0.01]).all()
    assert (pairs.mean(axis=0) < truth).all()


def test_white_box_audit_of_a_noisy_sum_has_power_and_refutes_half_the_noise():
    """m orthonormal gradients, T rounds, noise std σ: μ = √T/σ per canary, ε known."""
    canaries, rounds, noise, source = 400, 4, 1.0, np.random.default_rng(5)
    basis = np.linalg.qr(source.standard_normal((500, canaries)))[0].T
    claimed = GaussianDP(mu=math.sqrt(rounds) / noise, **ADJACENT)
    outcomes = {}
    for used in (noise, noise / 2):
        inside = coins(canaries, source)
        updates = [
            inside @ basis + used * source.standard_normal(basis.shape[1]) for _ in range(rounds)
        ]
        outcomes[used] = audit_one_run(
            white_box_scores(basis, updates, weight=1.0),
            inside,
            top=80,
            bottom=80,
            delta=DELTA,
            rng=0,
        )
    honest, cheating = outcomes[noise], outcomes[noise / 2]
    epsilon = gaussian_epsilon(claimed.mu, DELTA)
    assert not honest.refuted(claimed)
    assert 0.25 * epsilon < honest.epsilon_low < honest.gaussian_epsilon_low < epsilon
    assert cheating.mu_low > honest.mu_low
    few = GaussianDP(mu=0.9 * cheating.mu_low, **ADJACENT)
    assert cheating.refuted(few)
    assert not honest.refuted(claimed)


def test_noise_halved_behind_its_back_is_refuted():
    source = np.random.default_rng(6)
    claimed = GaussianDP(mu=1.0, **ADJACENT)
    epsilon = gaussian_epsilon(1.0, DELTA)
    halved = audited(2000, 2.0, 0.2, source)
    assert halved.refuted(claimed)
    assert halved.refuted(ApproximateDP(epsilon=0.8 * epsilon, delta=DELTA, **ADJACENT))
    assert halved.refuted(claimed.renyi([2.0, 4.0, 8.0, 16.0])) == (
        halved.epsilon_low > claimed.renyi([2.0, 4.0, 8.0, 16.0]).approximate(DELTA).epsilon
    )
    honest = audited(2000, 1.0, 0.2, source)
    assert not honest.refuted(claimed)
    assert not honest.refuted(ApproximateDP(epsilon=epsilon, delta=DELTA, **ADJACENT))


def test_an_epsilon_is_tested_at_its_own_delta():
    found = audited(1000, 2.0, 0.2, np.random.default_rng(7))
    for delta in (0.0, 1e-7, 1e-5, 1e-3):
        low = found.epsilon_low_at(delta)
        below = ApproximateDP(epsilon=0.999 * low, delta=delta, **ADJACENT)
        above = ApproximateDP(epsilon=1.001 * low, delta=delta, **ADJACENT)
        assert found.refuted(below)
        assert not found.refuted(above)
    assert found.epsilon_low_at(DELTA) == found.epsilon_low
    lows = [found.epsilon_low_at(delta) for delta in (0.0, 1e-7, 1e-5, 1e-3, 0.1)]
    assert lows[-1] == 0.0
    assert lows == sorted(lows, reverse=True)


@pytest.mark.parametrize(
    "wrong",
    [
        InformationBound(nats=1.0, secret="the coins", **THEOREM),
        MaximalLeakage(factor=2.0, secret="the coins", **THEOREM),
        "μ = 1",
    ],
)
def test_a_promise_that_coins_do_not_test_is_refused(wrong):
    found = audited(100, 1.0, 0.3, np.random.default_rng(8))
    with pytest.raises(ValueError, match="guarantee: expected ApproximateDP, GaussianDP"):
        found.refuted(wrong)
    pure = audited(100, 1.0, 0.3, np.random.default_rng(8), delta=0.0)
    with pytest.raises(ValueError, match="delta"):
        pure.refuted(RenyiDP(orders=(2.0,), epsilons=(1.0,), **ADJACENT))


def test_guesses_are_counted_by_rank():
    scores = np.array([3.0, -1.0, 2.0, 0.0, 5.0, -4.0])
    inside = np.array([1, 0, 0, 1, 1, 0])
    found = audit_one_run(scores, inside, top=[3, 1, 0], bottom=[2, 0, 3], delta=0.1)
    assert [choice.right for choice in found.choices] == [4, 1, 2]
    assert [choice.guesses for choice in found.choices] == [5, 1, 3]
    assert not found.fixed
    failure = (1 - 0.95) / 3
    for choice in found.choices:
        counts = 6, choice.guesses, choice.right
        assert choice.mu_low == lower_mu(*counts, failure)
        assert choice.epsilon_low == lower_epsilon(*counts, 0.1, failure)


def test_ties_are_broken_by_lot_and_prove_nothing_by_their_order():
    """Members first and one score for all: an order by position would be right every time."""
    inside = np.arange(1000) >= 500
    for seed in range(5):
        found = audit_one_run(np.zeros(1000), inside, top=300, bottom=300, delta=DELTA, rng=seed)
        assert abs(found.right - 300) < 5 * math.sqrt(600 / 4)
        assert found.epsilon_low < 0.3
    halves = np.repeat([0.0, 1.0], 500)
    assert audit_one_run(halves, inside, top=500, bottom=500, delta=DELTA).right == 1000


def test_a_hundred_thousand_canaries_are_audited():
    found = audited(100_000, 1.0, 0.01, np.random.default_rng(9))
    assert 2.0 < found.epsilon_low < found.gaussian_epsilon_low < 4.38
    whole = audit_one_run(np.arange(100_000), np.arange(100_000) >= 50_000, **EVERYTHING)
    assert whole.right == 100_000
    assert 8.0 < whole.epsilon_low < whole.gaussian_epsilon_low < math.inf


EVERYTHING = {"top": 50_000, "bottom": 50_000, "delta": DELTA}


def test_bounds_grow_with_right_guesses_and_confidence_costs():
    for low in (lambda v, a: lower_epsilon(500, 100, v, DELTA, a), lambda v, a: mu(v, a)):
        values = [low(right, 0.05) for right in range(0, 101, 5)]
        assert values == sorted(values)
        assert values[0] == 0.0
        assert low(90, 1e-9) < low(90, 0.01) < low(90, 0.2)


def mu(right, failure):
    return lower_mu(500, 100, right, failure)


def test_an_audit_is_written_and_read_back():
    found = audited(300, 2.0, 0.3, np.random.default_rng(10), top=[20, 40], bottom=[20, 40])
    pure = audited(300, 2.0, 0.3, np.random.default_rng(10), delta=0.0)
    assert pure.gaussian_epsilon_low == math.inf
    for one in (found, pure):
        assert codec.read(OneRunAudit, codec.write(OneRunAudit, one), "audit") == one


def test_it_is_described_in_one_line():
    found = audited(1000, 2.0, 0.2, np.random.default_rng(11))
    line = found.describe()
    assert line.startswith(
        f"Fair coins put in or left out 1000 canaries; of 200 guesses {found.right}"
    )
    assert "95%" in line
    assert "\n" not in line
    several = audited(1000, 2.0, 0.2, np.random.default_rng(11), top=[50, 80], bottom=[50, 80])
    assert "the best of 2 choices, paid for" in several.describe()
    assert several.best in several.choices
    assert isinstance(several.best, CoinGuesses)


SCORES, INSIDE = np.arange(10.0), np.arange(10) % 2
GOOD = {"top": 2, "bottom": 2, "delta": DELTA}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"scores": [0.0, math.nan] * 5}, "scores: expected finite"),
        ({"members": INSIDE[:9]}, "members: expected shape"),
        ({"members": 0.5 * INSIDE}, "members: expected truth values"),
        ({"top": 9}, "top: expected top . bottom from 1 to the 10 canaries, got 9 . 2"),
        ({"top": 0, "bottom": 0}, "top: expected top . bottom from 1"),
        ({"top": [1, 2]}, "bottom: expected 2 numbers as in top, got 1"),
        ({"top": [], "bottom": []}, "top: expected at least one"),
        ({"top": -1}, "top: expected an integer >= 0"),
        ({"top": 1.5}, "top: expected an integer"),
        ({"top": "12"}, "top: expected an integer or several"),
        ({"delta": 1.5}, "delta"),
        ({"confidence": 1.0}, "confidence"),
    ],
)
def test_bad_arguments_are_named(changed, message):
    arguments = {"scores": SCORES, "members": INSIDE, **GOOD, **changed}
    with pytest.raises(ValueError, match=message):
        audit_one_run(**arguments)


def test_coins_that_are_surely_not_fair_are_refused():
    scores = np.arange(200.0)
    for inside in (np.ones(200), np.zeros(200), np.arange(200) < 40):
        with pytest.raises(ValueError, match="members: expected independent fair coins"):
            audit_one_run(scores, inside, **GOOD)
    for seed in range(200):
        audit_one_run(scores, coins(200, seed), **GOOD)


def test_coins_are_fair_and_independent():
    thrown = coins(200_000)
    assert abs(thrown.mean() - 0.5) < 5 * 0.5 / math.sqrt(thrown.size)
    repeats = (thrown[1:] == thrown[:-1]).mean()
    assert abs(repeats - 0.5) < 5 * 0.5 / math.sqrt(thrown.size)
    assert (coins(50, 3) == coins(50, 3)).all()
    with pytest.raises(ValueError, match="canaries: expected an integer >= 1"):
        coins(0)
