"""A profile is a value: a pickled or copied one has the same curve, to the last bit."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from tacit import accounting
from tacit.guarantees.adjacency import Adjacency

EPSILONS = np.array([-3.0, -0.2, 0.0, 1e-6, 0.3, 1.0, 4.0, 40.0, np.inf])
ORDERS = np.array([1.5, 2.0, 32.0])
PROFILES = {
    "gaussian": lambda: accounting.gaussian(1.0, 1.3),
    "shift": lambda: accounting.gaussian_shift(0.4),
    "laplace": lambda: accounting.laplace(1.0, 0.7),
    "response": lambda: accounting.randomized_response(0.8, 5),
    "sampled": lambda: accounting.subsampled_gaussian(0.02, 1.1, 50),
    "replaced": lambda: accounting.subsampled_gaussian(0.1, 1.1, 20, neighbours=Adjacency.REPLACE),
    "group": lambda: accounting.subsampled_group(0.02, 1.5, 10, 3),
    "allocation": lambda: accounting.random_allocation(1.2, steps=10),
    "projection": lambda: accounting.noisy_projection(
        dim=40, rank=4, sensitivity=1.0, noise_std=2.0
    ),
    "steps": lambda: accounting.noisy_projection_steps(
        accounting.ProjectedSteps(dim=40, rank=4, steps=3, sampling_rate=0.1), 1.5
    ),
    "vector": lambda: accounting.vector_projection(dim=40, rank=4, alignment=0.5),
    "sketch": lambda: accounting.sketch(rank=8, dim=40, gamma=0.3),
    "sketch from ratio": lambda: accounting.sketch_from_ratio([1.1, 0.95], 8),
    "sketch within": lambda: accounting.sketch_within(rank=4, dim=6, lowest=0.9, highest=1.2),
    "noise after": lambda: accounting.projected_plus_noise(
        dim=40, rank=4, sensitivity=1.0, noise_std=2.0, alignment=0.4
    ),
    "composed": lambda: accounting.gaussian(1.0, 2.0).compose(accounting.laplace(1.0, 3.0) * 3),
    "subsampled": lambda: accounting.laplace(1.0, 1.0).poisson_subsample(0.1),
    "subsampled, replaced": lambda: accounting.laplace(1.0, 1.0).poisson_subsample(
        0.1, neighbours=Adjacency.REPLACE
    ),
}


SLOW = ("noise after", "vector", "sketch")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.thorough) if name in SLOW else name for name in PROFILES],
)
def test_a_profile_pickles_and_copies_with_its_curve(name):
    profile = PROFILES[name]()
    before = [profile.delta(float(one)) for one in EPSILONS]
    sent = pickle.loads(pickle.dumps(profile))
    # a copy of what was sent has the curve only if what was sent has it
    again = copy.deepcopy(sent)
    assert type(again) is type(sent) is type(profile)
    assert again == sent == profile
    assert hash(again) == hash(profile)
    assert profile != profile * 2
    assert again.name == sent.name == profile.name
    assert [again.delta(float(one)) for one in EPSILONS] == before
    assert again.epsilon(1e-5) == profile.epsilon(1e-5)
    if profile.renyi_curve is not None:
        assert again.renyi(ORDERS).tolist() == profile.renyi(ORDERS).tolist()
    # what is made of it is the same, up to what tables of chords were asked before
    if name not in SLOW:
        assert (again * 2).delta(1.0) == pytest.approx((profile * 2).delta(1.0), rel=1e-6)
