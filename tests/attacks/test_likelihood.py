import numpy as np
import pytest
from scipy import special, stats

from tacit.attacks import likelihood_ratio, roc
from tacit.covariance import Dense, Diagonal, Isotropic


def test_agrees_with_the_densities_of_scipy():
    source = np.random.default_rng(0)
    inside, outside = source.normal(size=(5, 3)), source.normal(size=(8, 3)) + 0.5
    root = source.normal(size=(3, 3)) + 2 * np.eye(3)
    covariance = root @ root.T
    weights_in, weights_out = source.dirichlet(np.ones(5)), source.dirichlet(np.ones(8))
    seen = source.normal(size=(40, 3)) * 3

    def log_mixture(points, weights):
        terms = [stats.multivariate_normal.logpdf(seen, point, covariance) for point in points]
        return special.logsumexp(np.stack(terms), axis=0, b=weights[:, None])

    exact = log_mixture(inside, weights_in) - log_mixture(outside, weights_out)
    found = likelihood_ratio(
        seen,
        inside,
        outside,
        Dense(covariance),
        inside_weights=7.0 * weights_in,
        outside_weights=weights_out,
    )
    assert np.allclose(found, exact, rtol=1e-9, atol=1e-9)
    swapped = likelihood_ratio(
        seen,
        outside,
        inside,
        Dense(covariance),
        inside_weights=weights_out,
        outside_weights=weights_in,
    )
    assert np.allclose(swapped, -exact, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("separation", [0.8, 2.0])
def test_two_hypotheses_give_the_closed_form_roc(separation):
    source = np.random.default_rng(1)
    count = 20_000
    saw = np.arange(2 * count) < count
    seen = source.standard_normal(2 * count) * 3.0 + 3.0 * separation * saw
    scores = likelihood_ratio(seen[:, None], [[3.0 * separation]], [[0.0]], Isotropic(9.0, 1))
    found = roc(scores, saw, fpr=(0.1,), rng=1)
    exact = stats.norm.cdf(separation / np.sqrt(2))
    assert abs(found.auc - exact) < 4 * np.sqrt(exact * (1 - exact) / count)
    low, high = found.operating_points[0].interval
    assert low <= stats.norm.cdf(separation + stats.norm.ppf(0.1)) <= high


def test_zero_weights_drop_candidates():
    noise = Diagonal([1.0, 4.0])
    seen = np.random.default_rng(2).normal(size=(10, 2))
    both = likelihood_ratio(
        seen,
        [[1, 1], [5, 5]],
        [[0, 0], [-3, 2]],
        noise,
        inside_weights=[1, 0],
        outside_weights=[1, 0],
    )
    assert np.allclose(both, likelihood_ratio(seen, [[1, 1]], [[0, 0]], noise), rtol=1e-9)


def test_far_releases_keep_their_order():
    """Densities underflow long before their logarithms do."""
    seen = np.array([[1e3], [1e5], [-1e5]])
    scores = likelihood_ratio(seen, [[1.0]], [[0.0]], Isotropic(1.0, 1))
    assert np.allclose(scores, seen[:, 0] - 0.5, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"releases": [[np.inf]]}, "releases: expected finite"),
        ({"releases": [[1e200]]}, "releases: expected rows"),
        ({"inside": [[1.0, 2.0]]}, "inside: expected 1 columns"),
        ({"outside": [[]]}, "outside"),
        ({"covariance": Isotropic(0.0, 1)}, "covariance: expected one of full rank"),
        ({"inside_weights": [1.0, 1.0]}, "inside_weights: expected 1 entries"),
        ({"outside_weights": [-1.0]}, "outside_weights: expected weights >= 0"),
    ],
)
def test_bad_input(change, message):
    arguments = {
        "releases": [[0.0]],
        "inside": [[1.0]],
        "outside": [[0.0]],
        "covariance": Isotropic(1.0, 1),
        **change,
    }
    given = [arguments.pop(name) for name in ("releases", "inside", "outside", "covariance")]
    with pytest.raises(ValueError, match=message):
        likelihood_ratio(*given, **arguments)
