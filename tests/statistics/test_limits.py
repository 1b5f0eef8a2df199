"""Intervals end at what a number can be, and counts are whole on request."""

import numpy as np
import pytest

from tacit import Effort, Rows, Table
from tacit.pages.numbers import number_lines
from tacit.releases import Release
from tacit.statistics import privatize, queries

QUIET = Effort(trials=0)


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(30, 3))


def test_intervals_end_at_what_a_number_can_be(rows):
    release = privatize("std+correlation+principal-components", rows, Rows(success=0.55), QUIET)
    for sampling in (False, True):
        ends = release.intervals(sampling=sampling)
        known = ~np.isnan(ends[:, 0])
        assert (ends[:3][known[:3]] >= 0.0).all()
        assert (np.abs(ends[3:6][known[3:6]]) <= 1.0).all()
    limits = release.numbers.limits
    assert limits[6].tolist() == [0.0, np.inf]
    assert (limits[7:] == [-1.0, 1.0]).all()
    lines = " ".join(number_lines(tuple(release.numbers)))
    assert "[0.0" in lines
    again = Release.from_dict(release.to_dict())
    assert (again.numbers.limits == limits).all()
    assert [one.interval() for one in again.numbers] == [tuple(e) for e in again.intervals()]


def test_means_of_a_table_end_at_its_bounds(rows):
    promise = Table(bounds=[(-3, 3)] * 3, success=0.55)
    release = privatize("mean+std", rows, promise, QUIET)
    assert (np.abs(release.intervals()[:3]) <= 3.0).all()
    assert (release.intervals()[3:] >= 0.0).all()


def test_whole_counts_have_the_errors_of_their_noise_and_of_rounding():
    rows = np.random.default_rng(0).integers(0, 3, size=(80, 1)).astype(float)
    found = {}
    for whole in (False, True):
        query = queries.Histogram("a", whole=whole)
        found[whole] = privatize(query, rows, Rows(success=0.6), QUIET, columns=["a"])
    noisy = found[False].errors > 0.0
    assert noisy.any()
    expected = np.hypot(found[False].errors[noisy], 12.0**-0.5)
    np.testing.assert_allclose(found[True].errors[noisy], expected)
    assert (found[True].values == np.rint(found[True].values)).all()
