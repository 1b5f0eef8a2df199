"""What a submission claims is held against its release and the policy, never optimistically."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from scipy.special import log_ndtr, ndtr

from tacit.dock import Policy, RefusedError
from tacit.dock.claims import DELTA, advantage_of, decide, epsilon_of
from tacit.guarantees import ApproximateDP, GaussianDP, InformationBound, MaximalLeakage, RenyiDP
from tacit.releases import Form
from tests.dock.learnwares import PRIVATE, files, is_problem, specification

SHARED = {"evidence": "theorem", "source": "test", "assumptions": ()}
MADE = specification(1)
RELEASE = Form(
    kind="specification",
    title="A specification",
    secret="one record",
    method="dp",
    guarantees=(PRIVATE,),
    created="2026-01-02T03:04:05+00:00",
    reproducible=False,
    digests=(("specification", MADE.revision),),
)


def written(form: Form) -> bytes:
    return json.dumps(form.to_dict()).encode()


def test_a_release_that_agrees_is_taken(dock):
    assert decide(MADE, written(RELEASE), Policy()).status == "listed"
    assert dock.submit(files(MADE, release=written(RELEASE))).status_code == 201


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"guarantees": (replace(PRIVATE, mu=1.0),)}, "other guarantees"),
        ({"guarantees": ()}, "other guarantees"),
        ({"reproducible": True}, "a seed can repeat"),
        ({"reproducible": True, "seed": 7}, "a seed can repeat"),
        ({"digests": (("specification", specification(2).revision),)}, "names another"),
        ({"digests": ()}, "names another"),
        ({"assumptions": ("VOID: a seed fixed it",)}, "void"),
    ],
)
@pytest.mark.parametrize("without", ["refuse", "accept", "quarantine"])
def test_a_release_that_does_not_is_refused_whatever_the_policy(change, said, without):
    forged = written(replace(RELEASE, **change))
    with pytest.raises(RefusedError, match=said) as caught:
        decide(MADE, forged, Policy(without=without))
    assert caught.value.status == 422


def test_a_forged_release_is_answered_as_a_problem(dock):
    forged = written(replace(RELEASE, reproducible=True))
    is_problem(dock.submit(files(MADE, release=forged)), 422, "seed")


@pytest.mark.parametrize("mu", [0.0, 1e-6, 0.1, 0.5, 1.0, 3.0, 40.0])
def test_epsilon_of_a_gaussian_is_never_too_small(mu):
    held = GaussianDP(mu=mu, adjacency="replace", **SHARED)
    epsilon = epsilon_of(held)
    assert held.approximate(epsilon).delta <= DELTA
    if epsilon > 0.0:
        # δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) is above 1e-5 just below
        below = epsilon * (1.0 - 1e-6)
        delta = ndtr(mu / 2 - below / mu) - math.exp(below + log_ndtr(-mu / 2 - below / mu))
        assert delta > DELTA * (1.0 - 1e-3)


def test_epsilon_is_infinite_where_none_is_claimed():
    assert math.isinf(epsilon_of(ApproximateDP(epsilon=1, delta=1e-3, adjacency="r", **SHARED)))
    assert math.isinf(epsilon_of(InformationBound(nats=0.1, secret="s", **SHARED)))
    assert epsilon_of(ApproximateDP(epsilon=1, delta=1e-6, adjacency="r", **SHARED)) == 1.0


@pytest.mark.parametrize(
    ("held", "least"),
    [
        (GaussianDP(mu=1.0, adjacency="r", **SHARED), 2 * ndtr(0.5) - 1),
        (ApproximateDP(epsilon=1.0, delta=0.0, adjacency="r", **SHARED), math.tanh(0.5)),
        (MaximalLeakage(secret="s", factor=1.5, **SHARED), 0.5),
        # Pinsker: an advantage a at even odds takes at least a²/2 nats
        (InformationBound(nats=0.02, secret="s", **SHARED), 0.19),
        (RenyiDP(orders=(2.0,), epsilons=(0.0,), adjacency="r", **SHARED), 0.0),
    ],
)
def test_advantage_is_the_largest_that_is_allowed(held, least):
    found = advantage_of(held)
    assert found >= least * (1 - 1e-12)
    assert found <= least + 0.02 if not isinstance(held, RenyiDP) else found < 1.0
