"""The truth, from mpmath and plain enumeration: no code of Tacit is used here."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
from mpmath import mp, mpf

DIGITS = 60


def shift_divergence(kind, distance):
    """E f(exp(dX − d²/2)) by quadrature over the standard normal law, at 60 digits."""
    name, parameter = kind if isinstance(kind, tuple) else (kind, None)
    with mp.workdps(DIGITS):
        d = mpf(distance)
        functions = {
            "kl": lambda t: t * mp.log(t) - t + 1,
            "tv": lambda t: abs(t - 1) / 2,
            "hellinger": lambda t: (mp.sqrt(t) - 1) ** 2 / 2,
            "chi2": lambda t: (t - 1) ** 2,
            "renyi": lambda t: t ** mpf(parameter),
            "hockey-stick": lambda t: max(t - mp.exp(mpf(parameter)), 0),
        }
        f = functions[name]
        kinks = {0, d, d / 2}
        if name == "hockey-stick":
            kinks.add(d / 2 + mpf(parameter) / d)
        if name == "chi2":
            kinks.add(2 * d)
        if name == "renyi":
            kinks.add(parameter * d)
        kinks = {*kinks, min(kinks) - 14, max(kinks) + 14}
        edges = sorted({k + shift for k in kinks for shift in (-14, -4, 0, 4, 14)})
        value = mp.quad(lambda x: mp.npdf(x) * f(mp.exp(d * x - d * d / 2)), edges)
        return mp.log(value) / (mpf(parameter) - 1) if name == "renyi" else value


def hockey_stick(epsilon, distance):
    """Privacy profile of the Gaussian mechanism, at 60 digits."""
    with mp.workdps(DIGITS + 400):
        e, d = mpf(epsilon), mpf(distance)
        return mp.ncdf(d / 2 - e / d) - mp.exp(e) * mp.ncdf(-d / 2 - e / d)


def bernoulli_kl(success, prior):
    with mp.workdps(DIGITS + 300):
        s, p = mpf(success), mpf(prior)
        first = s * mp.log(s / p) if s > 0 else mpf(0)
        return first + ((1 - s) * mp.log((1 - s) / (1 - p)) if s < 1 else mpf(0))


def channel_information(prior, channel):
    """Mutual information and Bayes success of naming X from Y, for P(y|x) = channel[x, y]."""
    information = mpf(0)
    with mp.workdps(30):
        masses = [mp.convert(p) for p in prior]
        rows = [[mp.convert(w) for w in row] for row in channel]
        columns = list(zip(*rows, strict=True))
        marginal = [mp.fdot(masses, column) for column in columns]
        for p, row in zip(masses, rows, strict=True):
            for w, m in zip(row, marginal, strict=True):
                if w > 0 and p > 0:
                    information += p * w * mp.log(w / m)
        success = mp.fsum(
            max(p * w for p, w in zip(masses, column, strict=True)) for column in columns
        )
    return information, success


def best_tests(first, second, prior):
    """Success of the best deterministic test between two laws on a finite set, by enumeration."""
    best = Fraction(0)
    for decision in itertools.product((False, True), repeat=len(first)):
        won = sum(
            (Fraction(prior) * p if says else (1 - Fraction(prior)) * q)
            for says, p, q in zip(decision, first, second, strict=True)
        )
        best = max(best, won)
    return best


def mixture_information(means, weights, noise_std):
    """I(X; X + N(0, σ²)) for a finite secret on the line, by quadrature at 30 digits."""
    with mp.workdps(30):
        points = [mpf(float(m)) / mpf(float(noise_std)) for m in means]
        shares = [mpf(float(w)) for w in weights]
        total = mp.fsum(shares)
        shares = [w / total for w in shares]

        def entropy_term(y):
            density = mp.fsum(w * mp.npdf(y - m) for w, m in zip(shares, points, strict=True))
            return -density * mp.log(density)

        edges = sorted({m + s for m in points for s in (-12, -3, 0, 3, 12)})
        return mp.quad(entropy_term, edges) - mp.log(2 * mp.pi * mp.e) / 2


def mixture_success(means, weights, noise_std):
    """Bayes success of naming X from X + N(0, σ²): the integral of max_x p(x) φ, at 20 digits."""
    with mp.workdps(20):
        points = [mpf(float(m)) / mpf(float(noise_std)) for m in means]
        total = mp.fsum(mpf(float(w)) for w in weights)
        shares = [mpf(float(w)) / total for w in weights]
        crossings = [
            (a + b) / 2 + mp.log(v / w) / (b - a)
            for (a, v), (b, w) in itertools.combinations(zip(points, shares, strict=True), 2)
            if a != b
        ]
        edges = sorted({*crossings, *(m + s for m in points for s in (-10, -3, 0, 3, 10))})
        return mp.quad(
            lambda y: max(w * mp.npdf(y - m) for w, m in zip(shares, points, strict=True)), edges
        )


def gaussian_renyi(mean0, cov0, mean1, cov1, order):
    """D_α of two Gaussians on the line or plane by integrating p^α q^(1−α); order 1 is KL."""
    mean0, mean1 = np.atleast_1d(mean0), np.atleast_1d(mean1)
    cov0, cov1 = np.atleast_2d(cov0), np.atleast_2d(cov1)
    with mp.workdps(25):
        log0, log1 = _log_density(mean0, cov0), _log_density(mean1, cov1)

        def integrand(*point):
            first, second = log0(point), log1(point)
            if order == 1:
                return mp.exp(first) * (first - second)
            return mp.exp(order * first + (1 - order) * second)

        edges = []
        for i in range(len(mean0)):
            reach = 30 * math.sqrt(max(cov0[i, i], cov1[i, i]))
            centre = (mean0[i] + mean1[i]) / 2
            edges.append(
                [centre - reach, centre - reach / 8, centre, centre + reach / 8, centre + reach]
            )
        value = mp.quad(integrand, *edges)
        return value if order == 1 else mp.log(value) / (order - 1)


def _log_density(mean, covariance):
    inverse = mp.matrix(covariance.tolist()) ** -1
    constant = mp.log(mp.det(2 * mp.pi * mp.matrix(covariance.tolist()))) / 2

    def log_density(point):
        z = mp.matrix([mpf(x) - mpf(float(m)) for x, m in zip(point, mean, strict=True)])
        return -(z.T * inverse * z)[0] / 2 - constant

    return log_density


def gaussian_renyi_closed(mean0, cov0, mean1, cov1, order):
    """The closed form in mpmath matrices at 60 digits, any dimension; order 1 is KL."""
    with mp.workdps(DIGITS):
        a, b = mp.matrix(np.asarray(cov0).tolist()), mp.matrix(np.asarray(cov1).tolist())
        z = mp.matrix([mpf(float(x)) - mpf(float(y)) for x, y in zip(mean0, mean1, strict=True)])
        if order == 1:
            inverse = b**-1
            trace = mp.fsum((inverse * a)[i, i] for i in range(a.rows))
            mahalanobis = (z.T * inverse * z)[0]
            return (trace - a.rows - mp.log(mp.det(a) / mp.det(b)) + mahalanobis) / 2
        alpha = mpf(order)
        mixed = (1 - alpha) * a + alpha * b
        if min(mpmath.eigsy(mixed, eigvals_only=True)) <= 0:
            return mp.inf
        logs = mp.log(mp.det(mixed)) - (1 - alpha) * mp.log(mp.det(a)) - alpha * mp.log(mp.det(b))
        return alpha / 2 * (z.T * mixed**-1 * z)[0] - logs / (2 * (alpha - 1))
