import itertools

import numpy as np
import pytest
from scipy import integrate, stats

from tacit import codec
from tacit.attacks import BayesAttack, bayes, bayes_success, likelihood_ratio
from tacit.covariance import Dense, Diagonal, Factored, Isotropic

TRIALS = 20_000


def standard_error(success, trials=TRIALS):
    return np.sqrt(success * (1 - success) / trials)


@pytest.mark.parametrize("separation", [0.3, 1.0, 3.0])
def test_two_points_give_the_closed_form(separation):
    exact = stats.norm.cdf(separation / 2)
    points, noise = [[0.0], [separation]], Isotropic(1.0, 1)
    attack = bayes(points, noise, ["out", "in"], trials=TRIALS, rng=1)
    assert abs(attack.success - exact) < 4 * standard_error(exact)
    wrong = stats.norm.cdf(1.3 * separation / 2)
    assert abs(attack.success - wrong) > 2 * standard_error(exact)
    low, high = bayes_success(points, noise, ["out", "in"])
    assert low <= exact <= high
    assert high - low <= 1e-6
    assert attack.prior == 0.5
    assert attack.classes == 2


def quadrature(points, weights, labels):
    """Success by adaptive quadrature of the largest joint density."""

    def best(y):
        densities = weights * stats.norm.pdf(y - points)
        return max(densities[labels == label].sum() for label in np.unique(labels))

    cuts = np.linspace(points.min() - 10, points.max() + 10, 400)
    return sum(
        integrate.quad(best, a, b, epsabs=1e-12, limit=200)[0] for a, b in itertools.pairwise(cuts)
    )


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("seed", range(4))
def test_mixtures_on_a_line_agree_with_quadrature(seed):
    source = np.random.default_rng(seed)
    points = source.normal(scale=2.0, size=9)
    weights = source.dirichlet(np.ones(9))
    labels = source.integers(3, size=9)
    exact = quadrature(points, weights, labels)
    low, high = bayes_success(points[:, None], Isotropic(1.0, 1), labels, weights=weights)
    assert low - 1e-8 <= exact <= high + 1e-8
    assert high - low <= 1e-6
    attack = bayes(
        points[:, None], Isotropic(1.0, 1), labels, weights=weights, trials=TRIALS, rng=seed
    )
    assert abs(attack.success - exact) < 4 * standard_error(exact)
    masses = [weights[labels == label].sum() for label in np.unique(labels)]
    assert attack.prior == pytest.approx(max(masses), rel=1e-12)


def test_naming_one_of_many_points_on_a_line():
    """Neighbours at distance h on a lattice: 2 Φ(h/2) − 1 inside, Φ(h/2) at the two ends."""
    count, gap = 40, 1.7
    inner = 2 * stats.norm.cdf(gap / 2) - 1
    exact = ((count - 2) * inner + 2 * stats.norm.cdf(gap / 2)) / count
    points = gap * np.arange(count)[:, None]
    low, high = bayes_success(points, Isotropic(1.0, 1), range(count))
    assert low <= exact <= high
    assert high - low <= 1e-6
    attack = bayes(points, Isotropic(1.0, 1), range(count), trials=TRIALS, rng=2)
    assert abs(attack.success - exact) < 4 * standard_error(exact)


@pytest.mark.parametrize("kind", ["dense", "factored"])
def test_the_noise_is_the_covariance_given(kind):
    """Distance 2 in noise units under a rotated noise, collinear in the plane: Φ(1)."""
    matrix = np.array([[2.0, 1.2], [1.2, 1.0]])
    root = np.linalg.cholesky(matrix)
    noise = Dense(matrix) if kind == "dense" else Factored(root.T)
    points = np.array([[0.0, 0.0], root @ [1.2, 1.6]]) + 100.0
    low, high = bayes_success(points, noise, [0, 1])
    assert low <= stats.norm.cdf(1.0) <= high
    attack = bayes(points, noise, [0, 1], trials=TRIALS, rng=3)
    assert abs(attack.success - stats.norm.cdf(1.0)) < 4 * standard_error(stats.norm.cdf(1.0))


def random_mixture(seed, count=12, dim=3):
    source = np.random.default_rng(seed)
    points = source.standard_t(2, size=(count, dim))
    root = source.normal(size=(dim, dim)) + 2 * np.eye(dim)
    return points, root @ root.T, source.integers(2, size=count), source


def other_attackers(points, covariance, labels, fresh):
    """Guesses from releases by attackers who know everything but do not use the posterior."""
    wrong = np.diag(np.diag(covariance)) * 3.0

    def nearest(seen, precision):
        differences = seen[:, None, :] - points[None]
        distances = np.einsum("nkd,de,nke->nk", differences, precision, differences)
        return labels[distances.argmin(axis=1)]

    def means(seen):
        centres = np.stack([points[labels == label].mean(axis=0) for label in (0, 1)])
        distances = ((seen[:, None, :] - centres) ** 2).sum(axis=2)
        return distances.argmin(axis=1)

    yield nearest(fresh, np.eye(points.shape[1]))
    yield nearest(fresh, np.linalg.inv(covariance))
    yield nearest(fresh, np.linalg.inv(wrong))
    yield means(fresh)


@pytest.mark.parametrize("seed", range(5))
def test_no_other_attacker_is_better(seed):
    points, covariance, labels, source = random_mixture(seed)
    labels[:2] = (0, 1)
    attack = bayes(points, Dense(covariance), labels, trials=TRIALS, rng=seed)
    secrets = source.integers(len(points), size=TRIALS)
    noise = source.standard_normal((TRIALS, 3)) @ np.linalg.cholesky(covariance).T
    for guesses in other_attackers(points, covariance, labels, points[secrets] + noise):
        success = np.mean(guesses == labels[secrets])
        error = np.hypot(standard_error(success), standard_error(attack.success))
        assert success <= attack.success + 4 * error


def test_a_wrong_covariance_is_worse():
    """Two points along e₁ + e₂ under strongly correlated noise; ignoring that costs accuracy."""
    covariance = np.array([[1.0, 0.95], [0.95, 1.0]])
    points = np.array([[0.0, 0.0], [1.0, 0.0]])
    exact = stats.norm.cdf(np.sqrt(points[1] @ np.linalg.inv(covariance) @ points[1]) / 2)
    source = np.random.default_rng(4)
    secrets = source.integers(2, size=TRIALS)
    noise = source.standard_normal((TRIALS, 2)) @ np.linalg.cholesky(covariance).T
    seen = points[secrets] + noise
    right = likelihood_ratio(seen, points[1:], points[:1], Dense(covariance)) > 0
    wrong = likelihood_ratio(seen, points[1:], points[:1], Isotropic(1.0, 2)) > 0
    assert abs(np.mean(right == secrets) - exact) < 4 * standard_error(exact)
    assert np.mean(wrong == secrets) < np.mean(right == secrets) - 8 * standard_error(exact)


def test_relabelling_and_reordering_change_nothing():
    points, _, labels, source = random_mixture(6, count=7, dim=1)
    noise = Diagonal([2.0])
    low, high = bayes_success(points, noise, labels)
    order = source.permutation(7)
    names = np.array(["yes", "no"])[labels]
    again = bayes_success(points[order], noise, names[order])
    assert again == pytest.approx((low, high), abs=1e-12)
    shifted = bayes_success(10.0 - 3.0 * points, Diagonal([18.0]), labels)
    assert shifted == pytest.approx((low, high), abs=1e-6)


def test_equal_outputs_are_guessed_by_lot():
    attack = bayes(np.ones((4, 2)), Isotropic(1.0, 2), range(4), trials=TRIALS, rng=5)
    assert abs(attack.success - 0.25) < 4 * standard_error(0.25)
    weighted = bayes(
        np.ones((3, 1)), Isotropic(1.0, 1), ["a", "a", "b"], weights=[1, 2, 1], trials=TRIALS, rng=5
    )
    assert weighted.prior == 0.75
    assert abs(weighted.success - 0.75) < 4 * standard_error(0.75)
    low, high = bayes_success(np.ones((3, 1)), Isotropic(1.0, 1), [0, 0, 1], weights=[1, 2, 1])
    assert low <= 0.75 <= high


def test_impossible_candidates_do_not_count():
    points = [[0.0], [2.0], [0.0]]
    attack = bayes(points, Isotropic(1.0, 1), [0, 1, 2], weights=[1, 1, 0], trials=100, rng=0)
    assert attack.classes == 2
    low, high = bayes_success(points, Isotropic(1.0, 1), [0, 1, 2], weights=[1, 1, 0])
    assert low <= stats.norm.cdf(1.0) <= high


def test_far_apart_is_certain_and_one_label_needs_no_guess():
    attack = bayes([[0.0], [1e6]], Isotropic(1.0, 1), [0, 1], trials=50, rng=0)
    assert attack.success == 1.0
    assert attack.interval[1] == 1.0
    assert bayes([[0.0], [1.0]], Isotropic(1.0, 1), [7, 7], trials=50, rng=0).success == 1.0


def test_success_is_not_the_mean_posterior_of_the_truth():
    """At distance 2 the truth has posterior 0.77 on average, and the guess is right 84.1%."""
    attack = bayes([[0.0], [2.0]], Isotropic(1.0, 1), [0, 1], trials=TRIALS, rng=8)
    source = np.random.default_rng(8)
    seen = source.standard_normal(TRIALS)
    posterior = np.mean(1 / (1 + np.exp(2.0 * (seen - 1.0))))
    assert posterior < 0.8
    assert abs(attack.success - stats.norm.cdf(1.0)) < 4 * standard_error(0.84)


def test_json_round_trip():
    attack = bayes([[0.0], [1.0]], Isotropic(1.0, 1), [0, 1], trials=50, rng=0)
    assert codec.read(BayesAttack, codec.write(BayesAttack, attack), "attack") == attack


@pytest.mark.parametrize("function", [bayes, bayes_success])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"outputs": [[0.0], [np.nan]]}, "outputs: expected finite"),
        ({"covariance": Isotropic(1.0, 2)}, "covariance: expected one of full rank 1"),
        ({"covariance": Isotropic(0.0, 1)}, "covariance: expected one of full rank 1"),
        ({"labels": [0]}, "labels: expected 2 labels"),
        ({"labels": [0.0, np.nan]}, "labels: expected finite"),
        ({"labels": [None, 1]}, "labels: expected numbers or strings"),
        ({"labels": [[1], [1, 2]]}, "labels: expected one label per output"),
        ({"weights": [1.0]}, "weights: expected 2 entries"),
        ({"weights": [0.0, 0.0]}, "weights: expected weights >= 0, not all zero"),
        ({"weights": [-1.0, 2.0]}, "weights: expected weights >= 0"),
    ],
)
def test_bad_input(function, change, message):
    arguments = {
        "outputs": [[0.0], [1.0]],
        "covariance": Isotropic(1.0, 1),
        "labels": [0, 1],
        **change,
    }
    with pytest.raises(ValueError, match=message):
        function(
            arguments.pop("outputs"),
            arguments.pop("covariance"),
            arguments.pop("labels"),
            **arguments,
        )


def test_what_cannot_be_enclosed_is_refused():
    plane = np.eye(3)
    with pytest.raises(ValueError, match="on one line"):
        bayes_success(plane, Isotropic(1.0, 3), range(3))
    with pytest.raises(ValueError, match="do not overlap"):
        bayes_success([[0.0], [1e9]], Isotropic(1.0, 1), [0, 1])
    with pytest.raises(ValueError, match="tolerance"):
        bayes_success([[0.0], [1.0]], Isotropic(1.0, 1), [0, 1], tolerance=0.0)
    with pytest.raises(ValueError, match="trials"):
        bayes([[0.0], [1.0]], Isotropic(1.0, 1), [0, 1], trials=0)
    with pytest.raises(ValueError, match="confidence"):
        bayes([[0.0], [1.0]], Isotropic(1.0, 1), [0, 1], confidence=1.0)
