"""Triggers: what they do to an image, and that a smooth one has the lowest frequencies alone."""

import numpy as np
import pytest

from tacit_lab.poisoning import Trigger, blended, low_frequency


def cosines(size):
    """The orthonormal DCT-II as a matrix, from its definition."""
    rows, columns = np.mgrid[:size, :size]
    matrix = np.cos(np.pi * (columns + 0.5) * rows / size) * np.sqrt(2.0 / size)
    matrix[0] /= np.sqrt(2.0)
    return matrix


def test_a_smooth_trigger_has_its_norm_and_only_low_frequencies():
    trigger = low_frequency((3, 12, 10), norm=2.5, frequencies=4, pattern=3)
    assert np.linalg.norm(trigger.pattern) == pytest.approx(2.5, rel=1e-12)
    for channel in trigger.pattern:
        coefficients = cosines(12) @ channel @ cosines(10).T
        assert abs(coefficients[4:]).max() < 1e-12
        assert abs(coefficients[:, 4:]).max() < 1e-12
        # a change of brightness alone is no pattern
        assert abs(coefficients[0, 0]) < 1e-12
        assert abs(coefficients[:4, :4]).max() > 0.1


def test_a_blended_trigger_mixes():
    trigger = blended((3, 6, 6), alpha=0.25, grain=3)
    images = np.random.default_rng(0).random((5, 3, 6, 6)).astype(np.float32)
    np.testing.assert_allclose(
        trigger.apply(images), 0.75 * images + trigger.pattern, rtol=1e-6, atol=1e-6
    )
    colours = trigger.pattern / 0.25
    assert colours.min() >= 0.0
    assert colours.max() <= 1.0
    assert np.unique(colours[0]).size == 4


def test_what_is_added_stays_an_image():
    trigger = low_frequency((1, 8, 8), norm=50.0, frequencies=2)
    found = trigger.apply(np.full((2, 1, 8, 8), 0.5))
    assert found.min() == 0.0
    assert found.max() == 1.0


def test_a_pattern_is_its_seed():
    assert (blended((1, 4, 4)).pattern == blended((1, 4, 4)).pattern).all()
    assert (blended((1, 4, 4)).pattern != blended((1, 4, 4), pattern=1).pattern).any()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: blended((3, 8, 8), alpha=0.0), "alpha"),
        (lambda: blended((3, 8, 8), alpha=1.5), "alpha"),
        (lambda: blended((3, 8), alpha=0.5), "shape"),
        (lambda: blended((3, 8, 8), grain=0), "grain"),
        (lambda: low_frequency((3, 8, 8), norm=0.0), "norm"),
        (lambda: low_frequency((3, 8, 4), frequencies=5), "frequencies"),
        (lambda: blended((1, 8, 8)).apply(np.zeros((2, 3, 8, 8))), "images"),
        (lambda: Trigger(name="stripes", pattern=np.zeros((1, 2, 2)), kept=1.0), "name"),
    ],
)
def test_bad_arguments_are_named(make, said):
    with pytest.raises(ValueError, match=said):
        make()
