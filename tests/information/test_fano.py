import math

import mpmath
import numpy as np
import pytest

from tacit import conversions
from tacit.conversions import fano_information


@pytest.mark.parametrize("classes", [2, 3, 10, 1000])
@pytest.mark.parametrize("accuracy", [0.3, 0.9, 1.0 - 1e-9, 1.0])
def test_never_above_the_formula_in_high_precision(accuracy, classes):
    uniform = math.log(classes)
    for share in (1.0, 0.6):
        entropy = share * uniform
        with mpmath.workdps(40):
            error = 1 - mpmath.mpf(accuracy)
            lost = mpmath.mpf(0)
            for part in (error, mpmath.mpf(accuracy)):
                lost -= part * mpmath.log(part) if part > 0 else 0
            lost += error * mpmath.log(classes - 1)
            exact = max(mpmath.mpf(0), mpmath.mpf(entropy) - lost)
            exact = exact if accuracy * classes > 1 else mpmath.mpf(0)
            found = fano_information(accuracy, classes, entropy)
            assert found <= exact
            assert exact - found < 1e-13 * (1 + uniform)


@pytest.mark.parametrize("classes", [2, 4, 100])
def test_equally_likely_labels_agree_with_the_conversion(classes):
    for accuracy in np.linspace(0.0, 1.0, 23):
        found = fano_information(accuracy, classes, math.log(classes))
        assert found == pytest.approx(conversions.fano_information(accuracy, classes), abs=1e-12)


def test_a_symmetric_channel_meets_it_with_equality():
    """Right with probability a, any other label otherwise: I = ln C − h(a) − (1 − a) ln(C − 1)."""
    classes, accuracy = 5, 0.7
    channel = np.full((classes, classes), (1 - accuracy) / (classes - 1))
    np.fill_diagonal(channel, accuracy)
    information = (channel / classes * np.log(channel * classes)).sum()
    found = fano_information(accuracy, classes, math.log(classes))
    assert found == pytest.approx(information, rel=1e-12)


def test_no_channel_leaks_less():
    """The best guess over random channels and priors, against their exact information."""
    source = np.random.default_rng(0)
    tightest = math.inf
    for _ in range(500):
        classes, symbols = source.integers(2, 6), source.integers(2, 9)
        prior = source.dirichlet(np.full(classes, 0.7))
        channel = source.dirichlet(np.full(symbols, 0.3), size=classes)
        joint = prior[:, None] * channel
        independent = prior[:, None] * joint.sum(axis=0)
        seen = joint > 0
        information = float((joint[seen] * np.log(joint[seen] / independent[seen])).sum())
        entropy = -float((prior * np.log(np.maximum(prior, 1e-300))).sum())
        accuracy = min(1.0, float(joint.max(axis=0).sum()))
        found = fano_information(accuracy, int(classes), entropy)
        assert found <= information + 1e-12
        tightest = min(tightest, information - found)
    assert tightest < 0.01


def test_grows_with_the_accuracy_and_is_zero_at_chance():
    values = [fano_information(a, 10, 2.0) for a in np.linspace(0.0, 1.0, 201)]
    assert np.all(np.diff(values) >= 0)
    assert values[20] == 0.0
    assert values[-1] == pytest.approx(2.0, rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.1, 4, 1.0), "accuracy"),
        ((math.nan, 4, 1.0), "accuracy"),
        ((0.5, 1, 0.0), "classes"),
        ((0.5, 2.0, 0.5), "classes"),
        ((0.5, 4, 1.4), "label_entropy"),
        ((0.5, 4, -0.1), "label_entropy"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        fano_information(*arguments)
