"""What every profile does: reading it, passing it on, and refusing what it cannot answer."""

import math
import sys

import numpy as np
import pytest
from mpmath import mpf

from tacit.accounting import (
    PrivacyProfile,
    gaussian,
    laplace,
    profile_from_curves,
    vector_projection,
)
from tacit.guarantees import ApproximateDP
from tests.accounting.oracles import gaussian_delta


def trivial(epsilon):
    return -np.expm1(np.minimum(epsilon, 0.0))


def build(**changes):
    settings = {"name": "nothing", "source": "test", "assumptions": ()} | changes
    return profile_from_curves(settings.pop("forward", trivial), **settings)


def test_delta_takes_numbers_and_arrays():
    profile = gaussian(1.0, 1.0)
    assert isinstance(profile.delta(1), float)
    grid = profile.delta([[0.0, 1.0], [2.0, -1.0]])
    assert grid.shape == (2, 2)
    assert grid[0, 1] == profile.delta(1.0)


def test_the_worse_direction_is_reported():
    ahead, back = gaussian(1.0, 1.0), gaussian(1.0, 2.0)
    profile = build(forward=back.forward, backward=ahead.forward)
    assert not profile.symmetric
    assert profile.delta(0.5) == ahead.delta(0.5)
    assert profile.epsilon(1e-5) == ahead.epsilon(1e-5)


def test_epsilon_keeps_its_promise_and_is_tight():
    profile = laplace(1.0, 1.0)
    for delta in (0.0, 1e-12, 0.01, 0.3, 0.9):
        epsilon = profile.epsilon(delta)
        assert profile.delta(epsilon) <= delta
        if epsilon > 0:
            assert profile.delta(epsilon * (1 - 1e-12)) > delta


def test_success_is_the_bayes_rule_of_two_gaussians():
    profile = gaussian(1.0, 1.0)
    for prior in (0.5, 0.2, 0.9):
        odds = math.log((1 - prior) / prior)
        truth = (1 - prior) + prior * gaussian_delta(odds, 1)
        bound = profile.success(prior)
        assert truth <= bound.success <= truth * (1 + mpf("1e-9"))
        assert bound.prior == max(prior, 1 - prior)
    assert build().success(0.3).success == pytest.approx(0.7, rel=1e-12)


def test_guarantees_say_what_the_profile_says():
    profile = gaussian(1.0, 1.0)
    at_delta = profile.guarantee(delta=1e-5)
    assert at_delta == ApproximateDP(
        epsilon=profile.epsilon(1e-5), delta=1e-5, adjacency=profile.adjacency,
        evidence="numerical", assumptions=profile.assumptions, source=profile.source,
    )  # fmt: skip
    assert profile.guarantee(epsilon=1.0).delta == profile.delta(1.0)
    assert (profile * 3).guarantee(epsilon=1.0).evidence == "theorem"
    with pytest.raises(ValueError, match=r"^delta, epsilon: expected exactly one"):
        profile.guarantee()
    with pytest.raises(ValueError, match=r"^delta, epsilon: expected exactly one"):
        profile.guarantee(delta=0.1, epsilon=1.0)
    with pytest.raises(ValueError, match=r"^delta: expected more than.*infinite mass 0"):
        profile.guarantee(delta=0.0)


@pytest.mark.thorough
def test_no_guarantee_below_the_infinite_mass():
    profile = vector_projection(
        dim=4, rank=1, alignment=0.5
    )  # a third of the releases betray the vector
    assert profile.guarantee(delta=0.34).epsilon < math.inf
    message = r"^delta: expected more than 0\.33333.*\(infinite mass 0\.333333\), got 0\.1$"
    with pytest.raises(ValueError, match=message):
        profile.guarantee(delta=0.1)
    with pytest.raises(ValueError, match=message):
        (profile.compose(gaussian(1.0, 1e6))).guarantee(delta=0.1)


@pytest.mark.parametrize("prior", [1e-12, 0.1, 0.3, 0.5, 0.9])
def test_no_loss_is_no_success_beyond_the_prior(prior):
    assert build().success(prior).success == max(prior, 1 - prior) or (
        build().success(prior).success == math.nextafter(max(prior, 1 - prior), 1.0)
    )
    assert gaussian(0.0, 1.0).success(0.5).success == 0.5


def test_success_takes_the_direction_that_is_worse_for_the_prior():
    """A release that P alone can make: the unlikelier input is betrayed, whichever it is."""
    leak = 0.2
    ahead = build(
        forward=lambda e: np.where(e < 0, 1 - (1 - leak) * np.exp(np.minimum(e, 0)), leak),
        backward=lambda e: np.maximum(-np.expm1(np.minimum(e + math.log1p(-leak), 0.0)), 0.0),
        infinite_mass=leak,
    )
    for prior in (0.1, 0.9):
        # errors of the best test: the unlikelier input when it is not betrayed
        assert ahead.success(prior).success == pytest.approx(1 - 0.1 * (1 - leak), rel=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_the_other_accountant_reads_it_and_is_no_lower(count, neighbours):
    profile = gaussian(1.0, 0.8).poisson_subsample(0.1, neighbours=neighbours) * count
    passed = profile.to_dp_accounting()
    for epsilon in (0.0, 0.2, 1.0, 3.0):
        theirs = passed.get_delta_for_epsilon(epsilon)
        # each composes on a lattice of its own
        assert profile.delta(epsilon) <= theirs * (1 + 1e-6)
        assert theirs <= profile.delta(epsilon) * 1.001 + 1e-12
    again = passed.self_compose(3).get_delta_for_epsilon(2.0)
    assert again == pytest.approx((profile * 3).delta(2.0), rel=1e-3)


def test_without_the_other_accountant_it_says_what_to_install(monkeypatch):
    profile = gaussian(1.0, 1.0)
    for name in ("dp_accounting", "dp_accounting.pld"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"^to_dp_accounting needs dp_accounting: pip install"):
        profile.to_dp_accounting()


def test_what_it_passes_on_dominates_the_exact_curve():
    passed = gaussian(1.0, 1.0).to_dp_accounting()
    for epsilon in np.linspace(0, 8, 23):
        assert passed.get_delta_for_epsilon(epsilon) >= gaussian_delta(epsilon, 1)


def test_renyi_is_unbounded_where_nothing_is_known():
    assert build().renyi([2.0, 3.0]).tolist() == [math.inf, math.inf]
    assert (build() * 2).renyi([2.0]).tolist() == [math.inf]
    with pytest.raises(ValueError, match=r"^orders: expected numbers > 1"):
        build().renyi([1.0])


def test_the_figure_shows_the_curve_as_a_solid_line():
    profile = gaussian(1.0, 1.0)
    axes = profile.plot()
    line = axes.lines[0]
    assert line.get_linestyle() == "-"
    assert axes.get_yscale() == "log"
    epsilons, deltas = (np.asarray(values) for values in line.get_data())
    np.testing.assert_allclose(deltas, profile.delta(epsilons))
    assert deltas[-1] == pytest.approx(1e-12, rel=1e-3)
    # on axes that are given, and no others
    assert build().plot(axes) is axes
    assert len(axes.lines) == 2


def test_a_profile_is_frozen():
    with pytest.raises(AttributeError):
        gaussian(1.0, 1.0).name = "other"  # type: ignore[misc]
    assert isinstance(build(), PrivacyProfile)


def test_bad_curves_and_numbers_are_named():
    with pytest.raises(ValueError, match=r"^forward: expected a function"):
        build(forward=3)
    with pytest.raises(ValueError, match=r"^backward: expected a function"):
        build(backward="curve")
    with pytest.raises(ValueError, match=r"^forward: expected numbers, got NaN"):
        build(forward=lambda e: e * np.nan).delta(1.0)
    with pytest.raises(ValueError, match=r"^name: expected"):
        build(name=" ")
    with pytest.raises(ValueError, match=r"^infinite_mass: expected"):
        build(infinite_mass=1.5)
    for bad in (math.nan, "one", [0.0, math.nan]):
        with pytest.raises(ValueError, match=r"^epsilon: expected numbers"):
            build().delta(bad)
    for bad in (-0.1, 1.1, math.nan, None):
        with pytest.raises(ValueError, match=r"^delta: expected"):
            build().epsilon(bad)
    with pytest.raises(ValueError, match=r"^prior: expected"):
        build().success(0.0)


def test_a_curve_that_falls_at_once_has_a_smallest_epsilon():
    jump = profile_from_curves(
        lambda e: np.where(e <= 0, 0.1, 0.0), name="jump", source="test", assumptions=()
    )
    assert 0 < jump.epsilon(0.05) < 1e-300


def test_a_notebook_shows_a_profile_that_has_no_epsilon():
    assert "Gaussian noise" in gaussian(1.0, 1e-7)._repr_html_()
