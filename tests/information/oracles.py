"""Exact values that share no code with the bounds: dense quadrature and closed forms."""

import math

import numpy as np
from mpmath import mp, mpf


def line_information(points, weights=None):
    """I(X; X + N(0, 1)) for points on the line, by quadrature at 25 digits."""
    points = [mpf(float(p)) for p in points]
    weights = [1.0 / len(points)] * len(points) if weights is None else weights
    shares = [mpf(float(w)) for w in weights]
    with mp.workdps(25):

        def entropy_term(y):
            density = mp.fsum(w * mp.npdf(y - p) for w, p in zip(shares, points, strict=True))
            return -density * mp.log(density) if density > 0 else mpf(0)

        cuts = sorted({min(points) - 12, *points, max(points) + 12})
        return float(mp.quad(entropy_term, cuts) - mp.log(2 * mp.pi * mp.e) / 2)


def plane_information(points, weights=None, *, step=0.05, reach=9.0):
    """I(X; X + N(0, I)) for points in the plane, by the trapezoidal rule on a dense grid."""
    points = np.asarray(points, dtype=float)
    weights = np.full(len(points), 1 / len(points)) if weights is None else np.asarray(weights)
    axes = [np.arange(c.min() - reach, c.max() + reach, step) for c in points.T]
    first = np.exp(-0.5 * (axes[0][:, None] - points[:, 0]) ** 2)
    second = np.exp(-0.5 * (axes[1][:, None] - points[:, 1]) ** 2)
    density = (first * weights) @ second.T / (2 * math.pi)
    positive = density[density > 0]
    entropy = -float((positive * np.log(positive)).sum()) * step**2
    return entropy - math.log(2 * math.pi * math.e)


def log_det(points, weights=None):
    """½ logdet(I + S) of the covariance S of weighted points."""
    points = np.asarray(points, dtype=float)
    weights = np.full(len(points), 1 / len(points)) if weights is None else np.asarray(weights)
    centred = points - weights @ points
    return 0.5 * float(
        np.linalg.slogdet(np.eye(points.shape[1]) + (centred.T * weights) @ centred)[1]
    )


def largest_miss_count(trials, failure, probability=1e-6):
    """Fewest misses that have less than ``probability`` when each miss has at most ``failure``."""
    tail = mpf(1)
    for misses in range(trials + 1):
        if tail < probability:
            return misses
        tail -= (
            mp.binomial(trials, misses)
            * mpf(failure) ** misses
            * (1 - mpf(failure)) ** (trials - misses)
        )
    return trials + 1
