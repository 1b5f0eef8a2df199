"""One failure probability per certificate: what is tried on the way shares it."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from tacit.covariance import Isotropic, ScaleMixture
from tacit.design import true_information as designs
from tacit.guarantees import InformationBound
from tacit.information import compose_joint, composition, concentration, mixture
from tacit.information.bounds import InformationBracket as Bracket
from tacit_lab.stackelberg import StackelbergChecks, StackelbergRules, checks, estimate_stackelberg

from ..information.oracles import largest_miss_count
from .registry import certifies

MODULE = __import__("sys").modules["tacit.design.information.exact"]
POINTS = np.array([[-1.0], [1.0]])
REPEATS = 400


def spread_information(noise):
    """h(Y) − h(B) for two points at ±1 and noise of random size, on a dense grid."""
    sizes = np.sqrt(noise.scales * noise.base.trace())
    reach = 1.0 + 12.0 * float(sizes.max())
    edges = np.r_[np.geomspace(1e-6, reach, 6000)]
    y = np.unique(np.r_[-edges[::-1] + 1.0, edges + 1.0, -edges[::-1] - 1.0, edges - 1.0])

    def density(shifted):
        parts = zip(noise.probabilities, sizes, strict=True)
        return np.sum([p * norm.pdf(shifted, scale=s) for p, s in parts], axis=0)

    def entropy(values):
        return np.trapezoid(
            np.where(values > 0, -values * np.log(np.maximum(values, 1e-300)), 0), y
        )

    return entropy(0.5 * (density(y - 1.0) + density(y + 1.0))) - entropy(density(y))


def recorded(monkeypatch, module, name):
    """The failure probability of every call of a function that certifies, in order."""
    real, spent = getattr(module, name), []

    def watched(*args, **options):
        spent.append(1 - Fraction(options["confidence"]))
        return real(*args, **options)

    monkeypatch.setattr(module, name, watched)
    return spent


@pytest.mark.parametrize(
    ("family", "confidence"),
    [("full", 0.999), ("diagonal", 0.9), ("scale", 1.0 - 1e-9), ("mixture", 0.99)],
)
def test_all_certificates_of_a_search_fit_in_one_failure_probability(
    monkeypatch, family, confidence
):
    """Every certificate tried, of every kind of noise, rehearsals (which certify nothing) apart."""
    calls = []
    real = MODULE.mixture

    def watched(points, form, **options):
        calls.append((isinstance(form, ScaleMixture), options))
        return real(points, form, **options)

    monkeypatch.setattr(MODULE, "mixture", watched)
    monkeypatch.setattr(MODULE, "CERTIFIER_WORK", 0)
    monkeypatch.setattr(MODULE, "FEWEST_CERTIFYING", 20_000)
    if family == "mixture":
        without_search(monkeypatch)
    design = designs(POINTS, 0.6, family=family, confidence=confidence, rng=1, progress=False)
    assert design.confidence == confidence
    largest = max(options["samples"] for _, options in calls)
    certifying = [options for _, options in calls if options["samples"] == largest]
    assert len(certifying) >= (2 if family == "mixture" else 1)
    assert {spread for spread, _ in calls} == {False, True} or family != "mixture"
    failure = sum(1 - Fraction(options["confidence"]) for options in certifying)
    assert failure <= 1 - Fraction(confidence)


def without_search(monkeypatch):
    """Leave only the certificates: the noise of both kinds has a shape that is given."""

    class Found:
        noise, slope = MODULE.EigenNoise(np.eye(1), np.array([1.0])), -0.3

    monkeypatch.setattr(MODULE._SearchTask, "search", lambda self, family: Found)
    monkeypatch.setattr(
        MODULE._SearchTask, "spread", lambda self, form: ScaleMixture(form, [0.2, 2.0], [0.4, 0.6])
    )


@certifies(InformationBound)
@pytest.mark.parametrize("family", ["full", "mixture"])
def test_coverage_where_every_certificate_fails_as_often_as_it_may(monkeypatch, family):
    """A bound that is wrong with just the probability it admits: the design's is no more wrong.

    Where one is wrong it says a third of the truth, and the noise that follows is the cheapest.
    """
    confidence, source = 0.75, np.random.default_rng(0)
    certified = {}

    def truth(form):
        covariance = form.covariance if isinstance(form, ScaleMixture) else form
        return 0.5 * math.log1p(1.0 / covariance.trace())

    def fake(points, form, *, confidence, **options):
        exact = truth(form)
        wrong = source.random() < 1.0 - confidence
        upper = exact / 3.0 if wrong else exact * 1.001
        return Bracket(
            lower=0.0,
            estimate=upper,
            upper=upper,
            confidence=confidence,
            samples=1,
            method="fake",
        )

    monkeypatch.setattr(MODULE, "mixture", fake)
    without_search(monkeypatch)
    misses = 0
    for _ in range(REPEATS):
        design = designs(POINTS, 0.3, family=family, confidence=confidence, progress=False)
        noise = design.covariance if design.noise is None else design.noise
        misses += design.information < truth(noise)
        certified[design.method] = True
    assert misses < largest_miss_count(REPEATS, 1 - confidence)
    # The fake does fail: the test could not pass by chance alone if all were twice as likely.
    assert misses > REPEATS * (1 - confidence) / 8


@certifies(InformationBound)
def test_coverage_of_noise_of_random_size_by_repetition(monkeypatch):
    """Real certificates at 60%, from few draws, against quadrature."""
    monkeypatch.setattr(MODULE, "CERTIFIER_WORK", 0)
    monkeypatch.setattr(MODULE, "FEWEST_CERTIFYING", 2000)
    without_search(monkeypatch)
    runs, misses, kinds = 60, 0, set()
    for seed in range(runs):
        design = designs(POINTS, 0.6, family="mixture", confidence=0.6, rng=seed, progress=False)
        kinds.add(design.method)
        noise = design.noise or ScaleMixture(design.covariance, [1.0], [1.0])
        misses += design.information < spread_information(noise) * (1.0 - 1e-4)
    assert misses < largest_miss_count(runs, 0.4)
    assert kinds <= {"true-information-mixture", "true-information-full"}
    assert "true-information-mixture" in kinds


@pytest.mark.parametrize("count", [1, 2, 5])
def test_releases_together_share_one_failure_probability(monkeypatch, count):
    spent = recorded(monkeypatch, composition, "mixture")
    bound = compose_joint([(POINTS, Isotropic(1.0, 1))] * count, samples=2000, rng=2)
    assert len(spent) == count + 1
    assert sum(spent) <= 1 - Fraction(bound.confidence)


def test_checks_of_an_estimate_share_one_failure_probability(monkeypatch):
    """Fano for two labels, and both sides of the posterior: four statements."""
    pytest.importorskip("torch")
    found = estimate_stackelberg(
        np.linspace(-1.0, 1.0, 6)[:, None],
        mi_budget=0.5,
        rules=StackelbergRules(steps=20),
        checks=StackelbergChecks(
            labels={"sign": [0, 0, 0, 1, 1, 1], "parity": [0, 1, 0, 1, 0, 1]},
            samples=1000,
            confidence=0.95,
        ),
        rng=0,
        progress=False,
    )
    statements = sum(1 + math.isfinite(check.upper) for check in found.checks)
    assert statements == 4
    failure = sum(
        (1 + math.isfinite(check.upper)) * (1 - Fraction(check.confidence))
        for check in found.checks
    )
    assert failure <= 1 - Fraction(found.confidence)
    assert {check.name for check in found.checks} >= {checks.POSTERIOR}


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.999, 1.0 - 1e-12])
@pytest.mark.parametrize("parts", [1, 2, 3, 7, 72])
def test_shares_never_exceed_the_whole(confidence, parts):
    share = concentration.confidence_share(confidence, 1.0 / parts)
    assert parts * (1 - Fraction(share)) <= 1 - Fraction(confidence)
    assert 1 - share == pytest.approx((1 - confidence) / parts, rel=1e-3)


def test_a_confidence_that_cannot_be_divided_is_refused():
    with pytest.raises(ValueError, match="confidence: expected one whose distance from 1"):
        concentration.confidence_share(math.nextafter(1.0, 0.0), 0.5)
    with pytest.raises(ValueError, match="confidence"):
        designs(POINTS, 0.3, confidence=math.nextafter(1.0, 0.0), rng=0, progress=False)


@certifies(InformationBound)
@pytest.mark.parametrize("signal", [1e-6, 1e-4, 1e-2, 0.3, 2.0])
@pytest.mark.parametrize(
    ("scales", "shares"),
    [([0.25, 4.0], [0.5, 0.5]), ([0.01, 9.0], [0.3, 0.7]), ([1.0, 2.0, 8.0], [0.2, 0.3, 0.5])],
)
def test_noise_of_random_size_is_bounded_where_hardly_anything_is_told(signal, scales, shares):
    """Against quadrature: sound, and within twice the truth however little that is."""
    noise = ScaleMixture(Isotropic(1.0 / signal, 1), scales, shares)
    exact = spread_information(noise)
    for seed in range(3):
        bound = mixture(POINTS, noise, samples=20_000, rng=seed)
        assert bound.lower <= exact * (1 + 1e-4) + 1e-10
        assert bound.upper >= exact * (1 - 1e-4) - 1e-10
        assert bound.upper <= 2.0 * exact
