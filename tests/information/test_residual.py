import math

import numpy as np
import pytest
from mpmath import mp, mpf

from tacit import guarantees
from tacit.covariance import Dense, Diagonal, Isotropic, LowRank
from tacit.information import mixture, residual

UNIFORM = residual.IntrinsicPrivacy(nats=0.0, reference="the uniform law")


@pytest.mark.parametrize("seed", range(4))
def test_a_finite_secret_against_high_precision(seed):
    source = np.random.default_rng(seed)
    weights, base = source.dirichlet(np.full(6, 0.3)), source.dirichlet(np.ones(6))
    with mp.workdps(40):
        total = mp.fsum(mpf(float(w)) for w in weights)
        shares = [mpf(float(w)) / total for w in weights]
        scale = mp.fsum(mpf(float(b)) for b in base)
        references = [mpf(float(b)) / scale for b in base]
        entropy = -mp.fsum(p * mp.log(p) for p in shares if p > 0)
        divergence = mp.fsum(
            p * mp.log(p / r) for p, r in zip(shares, references, strict=True) if p > 0
        )
        uniform, given = entropy - mp.log(6), -divergence
    found = residual.finite_intrinsic(weights).nats
    assert found <= uniform
    assert found == pytest.approx(float(uniform), abs=1e-13)
    found = residual.finite_intrinsic(weights, base).nats
    assert found <= given
    assert found == pytest.approx(float(given), abs=1e-13)


def test_the_ends_of_the_finite_scale():
    assert residual.finite_intrinsic(np.full(7, 1 / 7)).nats == 0.0
    assert residual.finite_intrinsic([0.3, 0.7], [0.3, 0.7]).nats == 0.0
    assert residual.finite_intrinsic([0.0, 1.0]).nats == pytest.approx(-math.log(2))
    assert residual.finite_intrinsic([0.5, 0.5], [1.0, 0.0]).nats == -math.inf


@pytest.mark.parametrize("dim", [1, 3])
def test_a_gaussian_secret_by_all_three_references(dim):
    """h = d/2 ln(2πe σ²): 0 by its own Gaussian, h − d ln 10 in a cube, KL to the logistic law."""
    entropy = residual.gaussian_entropy(Isotropic(0.25, dim))
    assert entropy == pytest.approx(0.5 * dim * math.log(2 * math.pi * math.e * 0.25))
    own = residual.maximum_entropy_intrinsic(entropy, Isotropic(0.25, dim)).nats
    assert -1e-13 < own < 0.0
    cube = residual.uniform_intrinsic(entropy, dim * math.log(10)).nats
    assert cube == pytest.approx(entropy - dim * math.log(10))
    term = residual.gaussian_logistic_mean(1.0, 0.5)
    found = residual.pullback_intrinsic(entropy, dim * term).nats
    with mp.workdps(20):

        def integrand(x):
            density = mp.npdf(x, 1, 0.5)
            logistic = mp.exp(-x) / (1 + mp.exp(-x)) ** 2
            return density * mp.log(density / logistic)

        exact = -dim * mp.quad(integrand, [-6, 0, 1, 2, 8])
    assert found <= exact
    assert found == pytest.approx(float(exact), abs=1e-6)


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (-3.0, 0.1), (2.0, 30.0), (0.0, 1e4)])
def test_the_mean_of_the_logistic_density_is_rounded_down(mean, std):
    with mp.workdps(20):

        def integrand(t):
            x = abs(mean + std * t)
            return mp.npdf(t) * (-x - 2 * mp.log1p(mp.exp(-x)))

        kink = -mean / std
        cuts = sorted({-13, 13, *(kink + s / std for s in (-40, -5, 0, 5, 40))})
        exact = mp.quad(integrand, [c for c in cuts if -13 <= c <= 13], maxdegree=8)
    found = residual.gaussian_logistic_mean(mean, std)
    assert found <= exact
    assert found == pytest.approx(float(exact), rel=2e-6)


def test_the_logistic_density_is_one_on_the_line():
    grid = np.linspace(-200, 200, 40_001)
    values = np.exp(residual.logistic_log_density(grid[:, None], [1.0], [3.0]))
    assert values.sum() * 0.01 == pytest.approx(1.0, rel=1e-9)
    pair = residual.logistic_log_density([[0.3, -2.0]], [0.0, 1.0], [1.0, 2.0])
    parts = [
        residual.logistic_log_density([[0.3]], [0.0], [1.0]),
        residual.logistic_log_density([[-2.0]], [1.0], [2.0]),
    ]
    assert pair[0] == pytest.approx(float(parts[0][0] + parts[1][0]))


def test_correlated_entropy_is_the_determinant():
    matrix = np.array([[2.0, 0.9], [0.9, 1.0]])
    expected = math.log(2 * math.pi * math.e) + 0.5 * math.log(np.linalg.det(matrix))
    assert residual.gaussian_entropy(Dense(matrix)) == pytest.approx(expected)
    assert residual.gaussian_entropy(LowRank([[1.0, 0.0]], [[1.0]])) == -math.inf
    tiny = residual.gaussian_entropy(Diagonal([1e-200, 1e-200]))
    assert tiny == pytest.approx(math.log(2 * math.pi * math.e) - 200 * math.log(10))


def test_what_is_left_is_the_conditional_entropy_less_the_logarithm():
    """Two equally likely signs: H(X | Y) − ln 2 = −I, and the bound is below it."""
    bound = mixture([[-1.0], [1.0]], Isotropic(1.0, 1), rng=0)
    left = residual.finite_intrinsic([0.5, 0.5]).after(bound, ["the sign is even"])
    assert isinstance(left, guarantees.ResidualPrivacy)
    assert -0.3378 < left.residual < -0.33683082
    assert left.evidence == "statistical"
    assert left.confidence == bound.confidence
    assert "the sign is even" in left.assumptions


def test_the_decomposition_is_exact():
    intrinsic = residual.finite_intrinsic([0.1, 0.2, 0.7])
    parts = residual.decompose(intrinsic, 0.7, 0.9)
    expected = 0.9 * math.log(0.9 / 0.7) + 0.1 * math.log(0.1 / 0.3)
    assert parts.lost == pytest.approx(expected, rel=1e-12)
    assert parts.residual + parts.lost == pytest.approx(parts.intrinsic, abs=1e-15)
    assert residual.decompose(UNIFORM, 0.5, 0.5).lost == 0.0
    assert residual.decompose(UNIFORM, 0.5, 1.0).lost == pytest.approx(math.log(2))
    assert residual.decompose(UNIFORM, 0.0, 0.5).lost == math.inf


def test_an_attack_takes_no_more_than_the_information():
    """Bayes success Φ(a) of a sign: its Δ is below I(X; Y), so its R is above the guarantee."""
    bound = mixture([[-1.0], [1.0]], Isotropic(1.0, 1), rng=0)
    success = float(mp.ncdf(1))
    parts = residual.decompose(UNIFORM, 0.5, success)
    assert parts.residual >= UNIFORM.after(bound).residual
    assert parts.lost > bound.upper / 3


def test_membership_is_relative_to_the_universe():
    assert residual.membership_intrinsic(10).nats == 0.0
    weights = np.arange(1.0, 11.0) / 55
    entropy = -float(weights @ np.log(weights))
    found = residual.membership_intrinsic(10, weights)
    assert found.nats == pytest.approx(entropy - math.log(10))
    assert "records" in found.reference


def test_bad_arguments_get_a_sentence():
    bad = [
        (residual.finite_intrinsic, [0.5, 0.6], "weights"),
        (residual.finite_intrinsic, "x", "weights"),
        (residual.membership_intrinsic, 0, "records"),
        (residual.gaussian_entropy, 1.0, "covariance"),
    ]
    for function, hostile, name in bad:
        with pytest.raises(ValueError, match=name):
            function(hostile)
    with pytest.raises(ValueError, match="weights: expected 3"):
        residual.membership_intrinsic(3, [0.5, 0.5])
    with pytest.raises(ValueError, match="entropy: expected at most"):
        residual.maximum_entropy_intrinsic(9.0, Isotropic(1.0, 1))
    with pytest.raises(ValueError, match="entropy: expected at most"):
        residual.uniform_intrinsic(1.0, 0.0)
    with pytest.raises(ValueError, match="full rank"):
        residual.maximum_entropy_intrinsic(0.0, LowRank([[1.0, 0.0]], [[1.0]]))
    with pytest.raises(ValueError, match="posterior"):
        residual.decompose(UNIFORM, 0.5, 0.4)
    with pytest.raises(ValueError, match="intrinsic"):
        residual.decompose(0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="information"):
        UNIFORM.after(0.5)
    with pytest.raises(ValueError, match="assumptions"):
        UNIFORM.after(mixture([[0.0], [1.0]], Isotropic(1.0, 1), rng=0), "one sentence")
    with pytest.raises(ValueError, match="nats"):
        residual.IntrinsicPrivacy(nats=0.1, reference="R")
    with pytest.raises(ValueError, match="reference"):
        residual.IntrinsicPrivacy(nats=-0.1, reference=" ")
    with pytest.raises(ValueError, match="scale"):
        residual.logistic_log_density([[0.0]], [0.0], [0.0])
    with pytest.raises(ValueError, match="std"):
        residual.gaussian_logistic_mean(0.0, 0.0)
    with pytest.raises(ValueError, match="mean"):
        residual.gaussian_logistic_mean(math.inf, 1.0)
    with pytest.raises(ValueError, match="log_volume"):
        residual.uniform_intrinsic(0.0, math.inf)
    assert residual.uniform_intrinsic(-math.inf, 0.0).nats == -math.inf
