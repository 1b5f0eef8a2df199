"""Events of dp_accounting: beside its own distributions, closed forms, and refused by name."""

import inspect

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event, pld, rdp

from tacit.accounting import from_dp_event, gaussian, gaussian_shift, randomized_response
from tacit.accounting.exchange.events import READERS, REFUSED

POINTS = (0.0, 0.1, 0.5, 1.0, 2.0)
GAUSSIAN, LAPLACE = dp_event.GaussianDpEvent(1.3), dp_event.LaplaceDpEvent(1.3)
# What their accountant of distributions has, and under which relation.
BOTH, ADDED, REPLACED = ("add-remove", "replace"), ("add-remove",), ("replace",)
SHARED = {
    "gaussian": (GAUSSIAN, BOTH),
    "laplace": (LAPLACE, ADDED),
    "discrete": (dp_event.DiscreteLaplaceDpEvent(0.4, 3), ADDED),
    "response": (dp_event.RandomizedResponseDpEvent(0.5, 4), REPLACED),
    "mixture": (dp_event.MixtureOfGaussiansDpEvent(1.1, [0, 2.0, 0.5], [0.5, 0.2, 0.3]), ADDED),
    "sampled": (dp_event.PoissonSampledDpEvent(0.05, GAUSSIAN), BOTH),
    "sampled-laplace": (dp_event.PoissonSampledDpEvent(0.2, LAPLACE), ADDED),
    "composed": (dp_event.ComposedDpEvent([GAUSSIAN, dp_event.NoOpDpEvent()]), BOTH),
    "repeated": (dp_event.SelfComposedDpEvent(GAUSSIAN, 4), BOTH),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_is_at_most_what_their_distributions_say(name):
    event, relations = SHARED[name]
    for neighbours in relations:
        relation = NeighboringRelation[
            "REPLACE_ONE" if neighbours == "replace" else "ADD_OR_REMOVE_ONE"
        ]
        # a mixture takes them half a minute on their own lattice of 1e-4
        step = 1e-2 if name == "mixture" else 1e-4
        theirs = pld.PLDAccountant(relation, step).compose(event)
        ours = from_dp_event(event, neighbours)
        for epsilon in POINTS:
            # theirs is an upper bound as well: on a lattice, ours is no further up
            expected = theirs.get_delta(epsilon)
            assert ours.delta(epsilon) <= expected * (1 + 1e-6) + 1e-11
            # and not another mechanism's: their lattice costs little
            assert ours.delta(epsilon) >= expected * (1 - 2e-3) - 1e-3


def test_answers_add_up():
    # dp_accounting 0.6.0 counts a response that is repeated once (ε = 1.0986 for ten coins)
    coins = dp_event.SelfComposedDpEvent(dp_event.RandomizedResponseDpEvent(0.5, 2), 10)
    found = from_dp_event(coins, "replace")
    # ten coins that lie a quarter of the time: the binomial itself
    counts = np.arange(11)
    ways = np.array([1, 10, 45, 120, 210, 252, 210, 120, 45, 10, 1.0])
    own = ways * 0.75**counts * 0.25 ** (10 - counts)
    truth = np.maximum(own - np.exp(2.0) * own[::-1], 0.0).sum()
    assert truth <= found.delta(2.0) <= truth * (1 + 1e-6)
    assert found.delta(2.0) == pytest.approx((randomized_response(np.log(3.0)) * 10).delta(2.0))


def test_a_leaf_of_a_tree_is_in_its_height_of_nodes():
    # seven leaves: 7, of 1 + 2 + 4, stands alone, and 4 in the nodes of 1, 2 and 4
    event = dp_event.SingleEpochTreeAggregationDpEvent(2.0, [3, 7])
    told = from_dp_event(event)
    exact = gaussian(np.sqrt(3.0), 2.0)
    assert exact.delta(1.0) <= told.delta(1.0) <= exact.delta(1.0) * (1 + 1e-12)
    theirs = rdp.RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_SPECIAL)
    assert told.epsilon(1e-5) <= theirs.compose(event).get_epsilon(1e-5)


def test_batches_of_fixed_size_are_below_theirs():
    # their Rényi account takes σ over the distance of two records, which is twice the norm of one
    ours = dp_event.SampledWithoutReplacementDpEvent(1000, 50, dp_event.GaussianDpEvent(4.0))
    theirs = dp_event.SampledWithoutReplacementDpEvent(1000, 50, dp_event.GaussianDpEvent(2.0))
    found = from_dp_event(ours, "replace")
    rate, epsilon = 0.05, 0.01
    truth = rate * gaussian(2.0, 4.0).delta(np.log1p(np.expm1(epsilon) / rate))
    assert found.delta(epsilon) == pytest.approx(truth, rel=1e-9)
    account = rdp.RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    assert found.epsilon(1e-5) <= account.compose(theirs).get_epsilon(1e-5)


def test_a_replaced_record_on_samples_costs_more():
    for event in (LAPLACE, GAUSSIAN):
        sampled = dp_event.PoissonSampledDpEvent(0.1, event)
        added, replaced = from_dp_event(sampled), from_dp_event(sampled, "replace")
        assert added.delta(0.01) < replaced.delta(0.01) <= 2 * added.delta(0.01) + 0.01


def test_nothing_and_everything():
    nothing = [
        dp_event.NoOpDpEvent(),
        dp_event.ComposedDpEvent([]),
        dp_event.SelfComposedDpEvent(GAUSSIAN, 0),
        dp_event.PoissonSampledDpEvent(0.0, GAUSSIAN),
        dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0], [1.0]),
    ]
    for event in nothing:
        assert from_dp_event(event).delta(1e-6) <= 1e-11
    assert from_dp_event(dp_event.RandomizedResponseDpEvent(0.0, 1), "replace").advantage() == 0.0
    everything = [
        dp_event.NonPrivateDpEvent(),
        dp_event.GaussianDpEvent(0.0),
        dp_event.ComposedDpEvent([GAUSSIAN, dp_event.NonPrivateDpEvent()]),
    ]
    for event in everything:
        assert from_dp_event(event).delta(50.0) == gaussian_shift(np.inf).delta(50.0) == 1.0


def test_every_event_is_read_or_refused_by_name():
    kinds = {
        name
        for name, kind in inspect.getmembers(dp_event, inspect.isclass)
        if issubclass(kind, dp_event.DpEvent) and kind is not dp_event.DpEvent
    }
    assert kinds == {*READERS, *REFUSED}
    assert not {*READERS} & {*REFUSED}
    with pytest.raises(ValueError, match=r"^event: ZCDpEvent is refused: "):
        from_dp_event(dp_event.ComposedDpEvent([GAUSSIAN, dp_event.ZCDpEvent(0.1)]))


@pytest.mark.parametrize(
    ("event", "neighbours", "said"),
    [
        (3, "add-remove", "event: expected a dp_accounting.DpEvent, got int"),
        (GAUSSIAN, "both", "neighbours: expected "),
        (dp_event.GaussianDpEvent(-1.0), "replace", "GaussianDpEvent.noise_multiplier: "),
        (dp_event.PoissonSampledDpEvent(1.5, GAUSSIAN), "replace", "PoissonSampledDpEvent.sampl"),
        (dp_event.SelfComposedDpEvent(GAUSSIAN, -1), "replace", "SelfComposedDpEvent.count: "),
        (dp_event.RandomizedResponseDpEvent(0.5, 2), "add-remove", "neighbours: expected 'repl"),
        (SHARED["mixture"][0], "replace", "neighbours: expected 'add-remove' for Mixture"),
        (dp_event.MixtureOfGaussiansDpEvent(1.0, [1.0], [0.4]), "add-remove", "Mixture.*sum of 1"),
        (dp_event.MixtureOfGaussiansDpEvent(1.0, [-1.0], [1.0]), "add-remove", "MixtureOf.*>= 0"),
        (dp_event.SingleEpochTreeAggregationDpEvent(1.0, []), "replace", "Single.*step_counts: "),
        (dp_event.SampledWithoutReplacementDpEvent(9, 3, GAUSSIAN), "add-remove", "neighbours: "),
        (dp_event.SampledWithoutReplacementDpEvent(9, 10, GAUSSIAN), "replace", "Sampled.*size: "),
        (
            dp_event.PoissonSampledDpEvent(0.1, dp_event.RandomizedResponseDpEvent(0.5, 2)),
            "replace",
            "event: a Poisson sample of RandomizedResponseDpEvent is refused",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(event, neighbours, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        from_dp_event(event, neighbours)
