import numpy as np
import pytest
from scipy import integrate, stats

from tacit import codec
from tacit.attacks import MembershipAttack, membership_attack
from tacit.attacks.intervals import mean_interval, proportion_interval
from tacit.covariance import Dense, Diagonal, Factored, Isotropic


def halves(count, pairs, seed):
    """Pairs of complementary halves of ``count`` rows."""
    rng = np.random.default_rng(seed)
    first = np.argsort(rng.random((pairs, count)), axis=1) < count // 2
    return np.stack([first, ~first], axis=1).reshape(2 * pairs, count)


def means(inside, seed=0):
    values = np.random.default_rng(seed).normal(size=(inside.shape[1], 3))
    return inside @ values / inside.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("separation", [0.5, 1.0, 2.0, 4.0])
def test_one_record_and_two_candidates_give_the_closed_form(separation):
    """Success of the best test between N(0, 1) and N(d, 1) is Φ(d/2)."""
    trials = 20_000
    attack = membership_attack(
        [[0.0], [separation]], [[False], [True]], Isotropic(1.0, 1), trials=trials, rng=4
    )
    exact = stats.norm.cdf(separation / 2)
    error = np.sqrt(exact * (1 - exact) / trials)
    assert abs(attack.success - exact) < 4 * error
    wrong = stats.norm.cdf(1.5 * separation / 2)
    assert abs(attack.success - wrong) > 4 * error
    assert abs(attack.worst_success - exact) < 4 * np.sqrt(2) * error


def test_unequal_prior_gives_the_closed_form():
    """P(in) = ¼: the best guess compares ¼ φ(y − d) with ¾ φ(y)."""
    d, trials = 1.5, 20_000
    threshold = d / 2 + np.log(3.0) / d
    exact = 0.75 * stats.norm.cdf(threshold) + 0.25 * stats.norm.sf(threshold - d)
    inside = [[False], [False], [False], [True]]
    attack = membership_attack(
        [[0], [0], [0], [d]], inside, Isotropic(1.0, 1), trials=trials, rng=5
    )
    assert attack.prior == 0.75
    assert abs(attack.success - exact) < 4 * np.sqrt(exact * (1 - exact) / trials)


def test_the_covariance_of_the_noise_is_the_one_the_attacker_uses():
    """Two candidates at Mahalanobis distance 2 under a rotated noise: Φ(1)."""
    covariance = np.array([[2.0, 1.2], [1.2, 1.0]])
    difference = np.linalg.cholesky(covariance) @ np.array([1.2, 1.6])
    inside = [[False], [True]]
    factor = np.linalg.cholesky(covariance)
    for noise in (Dense(covariance), Factored(factor.T)):
        attack = membership_attack([[0, 0], difference], inside, noise, trials=20_000, rng=6)
        exact = stats.norm.cdf(1.0)
        assert abs(attack.success - exact) < 4 * np.sqrt(exact * (1 - exact) / 20_000)


def test_bayes_is_the_exact_posterior_of_a_mixture():
    """Four candidates on a line: success by quadrature of max over the two memberships."""
    points, inside = np.array([-2.0, -0.5, 0.4, 3.0]), np.array([True, False, True, False])

    def best(y):
        densities = stats.norm.pdf(y - points) / 4
        return max(densities[inside].sum(), densities[~inside].sum())

    exact = integrate.quad(best, -10, 12, limit=400)[0]
    attack = membership_attack(
        points[:, None], inside[:, None], Isotropic(1.0, 1), trials=20_000, rng=7
    )
    bayes = dict(attack.compared)["Bayes likelihood ratio over the declared candidates"]
    assert abs(bayes - exact) < 4 * np.sqrt(exact * (1 - exact) / 20_000)
    assert attack.success == max(success for _, success in attack.compared)


def test_without_noise_to_speak_of_every_row_is_found():
    inside = halves(20, 30, seed=0)
    attack = membership_attack(means(inside), inside, Isotropic(1e-12, 3), trials=400, rng=0)
    assert attack.success == 1.0
    assert attack.worst_success == 1.0
    assert attack.worst_interval[0] > 0.97


def test_without_signal_the_attack_is_at_chance():
    inside = halves(20, 30, seed=1)
    attack = membership_attack(np.ones((60, 2)), inside, Isotropic(1.0, 2), trials=2000, rng=1)
    assert attack.interval[0] <= 0.5 <= attack.interval[1]
    assert attack.worst_interval[0] <= 0.5 <= attack.worst_interval[1]
    assert attack.interval[1] - attack.interval[0] < 0.05


def test_accuracy_is_of_hard_guesses_not_a_mean_posterior():
    """Two candidates far apart in one coordinate of ten rows: hard guesses are almost all right."""
    inside = halves(10, 1, seed=2)
    attack = membership_attack([[-2.0], [2.0]], inside, Isotropic(1.0, 1), trials=20_000, rng=2)
    exact = stats.norm.cdf(2.0)
    assert abs(attack.success - exact) < 4 * np.sqrt(exact * (1 - exact) / 20_000)


def test_intervals_count_a_trial_once_although_its_guesses_depend_on_each_other():
    """With two candidates all rows are right or wrong together: width follows the trials."""
    inside = halves(400, 1, seed=3)
    attack = membership_attack([[-0.1], [0.1]], inside, Isotropic(1.0, 1), trials=500, rng=3)
    assert attack.interval[1] - attack.interval[0] > 2 * 1.96 * 0.5 / np.sqrt(500)


def test_interval_covers_in_repetition():
    """Failure 5% at most: 60 repetitions may miss 9 times with probability below .3%."""
    inside, exact = [[False], [True]], stats.norm.cdf(0.5)
    missed = sum(
        not attack.interval[0] <= exact <= attack.interval[1]
        for attack in (
            membership_attack([[0.0], [1.0]], inside, Isotropic(1.0, 1), trials=200, rng=seed)
            for seed in range(60)
        )
    )
    assert missed <= 9


def test_the_worst_record_is_chosen_and_measured_on_different_trials():
    """Pure noise: the largest of 500 fractions is far above ½, an honest one is not."""
    inside = halves(500, 50, seed=4)
    attack = membership_attack(np.zeros((100, 1)), inside, Isotropic(1.0, 1), trials=200, rng=4)
    assert attack.worst_interval[0] < 0.5
    assert abs(attack.worst_success - 0.5) < 4 * 0.5 / np.sqrt(100)


def test_the_exposed_record_is_found():
    inside = halves(30, 100, seed=5)
    values = np.zeros(30)
    values[17] = 4.0
    attack = membership_attack(
        (inside @ values)[:, None], inside, Diagonal([1.0]), trials=600, rng=5
    )
    assert attack.worst_record == 17
    assert attack.worst_interval[0] < stats.norm.cdf(2.0) < attack.worst_interval[1]


def test_same_seed_same_attack_and_json_round_trip():
    inside = halves(12, 20, seed=6)
    first, second = (
        membership_attack(means(inside), inside, Isotropic(0.1, 3), trials=50, rng=9) for _ in "ab"
    )
    assert first == second
    assert codec.read(MembershipAttack, codec.write(MembershipAttack, first), "attack") == first


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"outputs": [[0.0], [np.nan]]}, "outputs: expected finite"),
        ({"outputs": [[0.0]]}, "memberships: expected 1 rows"),
        ({"memberships": [[True], [True]]}, "same share"),
        ({"memberships": [[True, False], [False, False]]}, "same share"),
        ({"covariance": Isotropic(1.0, 2)}, "covariance: expected one of full rank 1"),
        ({"covariance": Diagonal([0.0])}, "covariance: expected one of full rank 1"),
        ({"trials": 3}, "trials: expected an integer >= 4"),
        ({"confidence": 1.0}, "confidence"),
    ],
)
def test_bad_input(change, message):
    arguments = {
        "outputs": [[0.0], [1.0]],
        "memberships": [[True], [False]],
        "covariance": Isotropic(1.0, 1),
        "trials": 10,
        "confidence": 0.95,
        **change,
    }
    with pytest.raises(ValueError, match=message):
        membership_attack(
            arguments.pop("outputs"),
            arguments.pop("memberships"),
            arguments.pop("covariance"),
            **arguments,
        )


def test_proportion_interval_inverts_the_binomial():
    low, high = proportion_interval(37, 100, 0.9)
    assert stats.binom.sf(36, 100, low) == pytest.approx(0.05, rel=1e-9)
    assert stats.binom.cdf(37, 100, high) == pytest.approx(0.05, rel=1e-9)
    assert proportion_interval(100, 100, 0.9)[1] == 1.0


@pytest.mark.parametrize("rate", [0.002, 0.3])
def test_mean_interval_covers_skewed_values(rate):
    """Rare ones among zeros, where a normal interval misses far more often than it says."""
    rng = np.random.default_rng(8)
    missed = 0
    for _ in range(400):
        low, high = mean_interval((rng.random(300) < rate).astype(float), 0.9)
        missed += not low <= rate <= high
    assert missed <= 60


def test_bad_interval_input():
    with pytest.raises(ValueError, match="at least 2"):
        mean_interval(np.array([0.5]), 0.95)
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        mean_interval(np.array([0.5, 1.5]), 0.95)
    with pytest.raises(ValueError, match="hits"):
        proportion_interval(5, 4, 0.95)
