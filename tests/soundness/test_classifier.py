"""Released logits against their exact information and the exact success of the best attacker."""

import numpy as np
import pytest
from scipy.special import xlogy

from tacit import Draw, Effort
from tacit.classifiers import privatize_logits
from tacit.guarantees import InformationBound, SuccessBound

from .registry import certifies

STEP, REACH = 0.1, 8.5


def whitened_plane(logits, covariance):
    """Posterior over the inputs on a fine grid of the plane, in units of the noise.

    The trapezoid rule on a Gaussian mixture errs by exp(−2π²/h²), far below rounding at h = 0.1.
    """
    points = np.linalg.solve(np.linalg.cholesky(covariance), logits.T).T
    axes = [np.arange(points[:, k].min() - REACH, points[:, k].max() + REACH, STEP) for k in (0, 1)]
    densities = [
        np.exp(-0.5 * (axis[:, None] - points[:, k]) ** 2) / np.sqrt(2 * np.pi)
        for k, axis in enumerate(axes)
    ]
    return np.einsum("in,jn->ijn", *densities).reshape(-1, len(points)) * STEP**2 / len(points)


def exact_values(logits, covariance, labels):
    """Return I(X; Y), the best success in naming the input, and in naming its label."""
    joint = whitened_plane(logits, covariance)
    total = joint.sum(axis=1)
    assert abs(total.sum() - 1) < 1e-12
    information = np.log(len(logits)) + xlogy(joint, joint).sum() - xlogy(total, total).sum()
    by_label = np.stack([joint[:, labels == label].sum(axis=1) for label in np.unique(labels)])
    return information, joint.max(axis=1).sum(), by_label.max(axis=0).sum()


def pools(seed):
    source = np.random.default_rng(seed)
    count = int(source.integers(3, 12))
    kind = seed % 3
    if kind == 0:
        logits = source.normal(size=(count, 2))
    elif kind == 1:
        logits = source.standard_t(1.5, size=(count, 2))
    else:
        logits = 3.0 * source.integers(2, size=(count, 2)) + 0.1 * source.normal(size=(count, 2))
    labels = np.arange(count) % 2
    return logits @ np.diag(10.0 ** source.uniform(-3, 3, size=2)), labels


@certifies(InformationBound, SuccessBound)
@pytest.mark.parametrize("method", ["exact", "linear", "diagonal"])
@pytest.mark.parametrize("seed", range(9))
def test_released_logits_tell_no_more_than_certified(seed, method):
    logits, labels = pools(seed)
    for budget in (0.02, 0.5, 1.5):
        promise = Draw(nats=budget, method=method)
        release = privatize_logits(logits, labels, promise, Effort(trials=0), labels=labels)
        identified, labelled, told = release.guarantees
        truth = exact_values(logits, release.details.design.covariance.to_dense(), labels)
        assert truth[0] <= told.nats + 1e-12
        assert truth[1] <= identified.success + 1e-12
        assert truth[2] <= labelled.success + 1e-12


def test_the_oracle_tells_a_bound_that_is_too_small():
    """At a tenth of the certified noise the same number of nats would be wrong."""
    logits, labels = pools(0)
    release = privatize_logits(logits, labels, Draw(nats=0.5), Effort(trials=0), labels=labels)
    thin = 0.1 * release.details.design.covariance.to_dense()
    information, identified, _ = exact_values(logits, thin, labels)
    assert information > release.guarantees[2].nats
    assert identified > release.guarantees[0].success
