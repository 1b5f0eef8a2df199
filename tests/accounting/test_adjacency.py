import math

import numpy as np
import pytest

from tacit.accounting import renyi_over_adjacency
from tacit.covariance import Diagonal, LowRank
from tacit.divergences import renyi_gaussians


def test_is_the_divergence_of_the_farthest_pair():
    rng = np.random.default_rng(1)
    differences = rng.standard_normal((20, 4))
    root = rng.standard_normal((4, 4))
    covariance = root @ root.T + 0.1 * np.eye(4)
    orders = [1.5, 2.0, 16.0]
    bound = renyi_over_adjacency(differences, covariance, orders)
    for order, epsilon in zip(orders, bound.epsilons, strict=True):
        worst = max(
            renyi_gaussians(difference, covariance, np.zeros(4), covariance, order)
            for difference in differences
        )
        assert epsilon == pytest.approx(worst, rel=1e-9)
    assert bound.evidence == "numerical"


def test_integers_are_not_below_the_exact_value():
    bound = renyi_over_adjacency([[3.0, 4.0]], Diagonal(np.array([9.0, 16.0])), [2.0])
    assert 2.0 <= bound.epsilons[0] <= 2.0 * (1 + 1e-12)


def test_a_direction_without_noise_is_infinite():
    noise = LowRank([[1.0, 0.0]], [[1.0]])
    along = renyi_over_adjacency([[2.0, 0.0]], noise, [2.0])
    across = renyi_over_adjacency([[2.0, 0.0], [0.0, 1e-6]], noise, [2.0])
    assert along.epsilons[0] == pytest.approx(4.0)
    assert across.epsilons == (math.inf,)


def test_no_difference_no_loss():
    assert renyi_over_adjacency(np.zeros((3, 2)), np.eye(2), [2.0]).epsilons == (0.0,)


@pytest.mark.parametrize(
    ("differences", "covariance", "orders", "name"),
    [
        ([[1.0, 2.0]], np.eye(3), [2.0], "differences"),
        ([[1.0, math.nan]], np.eye(2), [2.0], "differences"),
        ([[1.0, 2.0]], np.eye(2), [1.0], "orders"),
        ([[1.0, 2.0]], np.eye(2), [], "orders"),
    ],
)
def test_bad_input_names_the_argument(differences, covariance, orders, name):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        renyi_over_adjacency(differences, covariance, orders)


def test_a_covariance_that_is_none_is_refused():
    with pytest.raises(ValueError, match="expected a"):
        renyi_over_adjacency([[1.0, 2.0]], [[1.0, 0.0], [0.0, -1.0]], [2.0])


def test_a_difference_that_is_lost_to_underflow_is_told_as_more_than_none():
    told = renyi_over_adjacency([[1e-200]], [[1e300]], [2.0])
    assert told.epsilons[0] > 0.0
    assert told.evidence == "numerical"
    assert renyi_over_adjacency([[0.0]], [[1e300]], [2.0]).epsilons == (0.0,)
    # the square of the difference alone is no double, its share of the variance is
    bare = LowRank([[1.0, 0.0]], [[1e-321]], 1e-322)
    assert bare.mahalanobis([0.0, 1e-163]) == pytest.approx(1e-4, rel=0.1)
    wide = LowRank([[1.0, 0.0]], [[1.0]], 5e-324)
    assert renyi_over_adjacency([[0.0, 1e-170]], wide, [2.0]).epsilons == (math.inf,)
