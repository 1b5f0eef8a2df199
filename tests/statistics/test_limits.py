"""Intervals end at what a number can be, and counts are whole on request."""

import numpy as np
import pytest
from tacit.report.numbers import number_lines

from tacit.statistics import privatize, sums
from tacit.statistics.numbers import NumbersRelease

QUIET = {"attack": False, "progress": False}


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(30, 3))


def test_intervals_end_at_what_a_number_can_be(rows):
    release = privatize("std+correlation+principal-components", rows, success=0.55, **QUIET)
    for sampling in (False, True):
        ends = release.intervals(sampling=sampling)
        known = ~np.isnan(ends[:, 0])
        assert (ends[:3][known[:3]] >= 0.0).all()
        assert (np.abs(ends[3:6][known[3:6]]) <= 1.0).all()
    assert release.limits[6].tolist() == [0.0, np.inf]
    assert (release.limits[7:] == [-1.0, 1.0]).all()
    lines = " ".join(number_lines(release.form.numbers))
    assert "[0.0" in lines
    again = NumbersRelease.from_dict(release.to_dict())
    assert (again.limits == release.limits).all()
    assert [one.interval() for one in again.form.numbers] == [tuple(e) for e in again.intervals()]


def test_a_release_of_before_has_no_limits(rows):
    content = privatize("std", rows, success=0.55, **QUIET).to_dict()
    del content["limits"]
    assert NumbersRelease.from_dict(content).limits is None


def test_means_of_a_table_end_at_its_bounds(rows):
    release = privatize(
        "mean+std", rows, protect="table", bounds=[(-3, 3)] * 3, success=0.55, **QUIET
    )
    assert (np.abs(release.intervals()[:3]) <= 3.0).all()
    assert (release.intervals()[3:] >= 0.0).all()


def test_whole_counts_have_the_errors_of_their_noise_and_of_rounding():
    rows = np.random.default_rng(0).integers(0, 3, size=(80, 1)).astype(float)
    found = {}
    for whole in (False, True):
        query = sums.Histogram("a", whole=whole)
        found[whole] = privatize(query, rows, columns=["a"], success=0.6, **QUIET)
    noisy = found[False].errors > 0.0
    assert noisy.any()
    expected = np.hypot(found[False].errors[noisy], 12.0**-0.5)
    np.testing.assert_allclose(found[True].errors[noisy], expected)
    assert (found[True].values == np.rint(found[True].values)).all()
