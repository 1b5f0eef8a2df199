"""The game itself: known optima reached, the published flaw reproduced, misuse refused."""

import json
import math
import sys

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from tacit import load
from tacit.covariance import Dense
from tacit.design import gaussian_information
from tacit.gate import Policy, check_release
from tacit.guarantees import Guarantee, guarantee_from_dict
from tacit.information import mixture
from tacit.ledger import Ledger
from tacit_lab.stackelberg import (
    StackelbergChecks,
    StackelbergEstimate,
    StackelbergRules,
    decoder_margin,
    estimate_stackelberg,
)

SECRETS = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [3.0, 1.0], [1.0, 1.0]])
STEPS = {count: StackelbergRules(steps=count) for count in (10, 20, 30, 200, 300)}


def clusters(seed=0, rows=400, spread=0.3):
    """Four clusters in three dimensions: outputs, class, and the entropy of the law."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=rows)
    centres = np.vstack([5.0 * np.eye(3), np.zeros(3)])
    outputs = centres[labels] + spread * rng.normal(size=(rows, 3))
    # The clusters lie 16 spreads apart: H = ln 4 + (3/2) ln(2πe s²).
    entropy = math.log(4.0) + 1.5 * math.log(2.0 * math.pi * math.e * spread**2)
    return outputs, labels, entropy


@pytest.fixture(scope="module")
def finite():
    return estimate_stackelberg(
        SECRETS,
        mi_budget=0.3,
        rng=1,
        rules=StackelbergRules(steps=100),
        checks=StackelbergChecks(labels={"left": SECRETS[:, 0] < 1}),
    )


@pytest.fixture(scope="module")
def flawed():
    outputs, labels, entropy = clusters()
    return estimate_stackelberg(
        outputs,
        outputs,
        mi_budget=0.02,
        rules=StackelbergRules(entropy=entropy),
        checks=StackelbergChecks(labels={"class": labels}),
        rng=1,
    )


@pytest.mark.thorough
def test_gaussian_decoder_reaches_the_log_det_optimum():
    outputs = np.random.default_rng(0).normal(size=(4000, 3)) * [1.0, 2.0, 0.5]
    optimum = gaussian_information(np.cov(outputs.T, bias=True), 0.5).cost
    estimate = estimate_stackelberg(outputs, outputs, mi_budget=0.5, rng=1)
    assert estimate.cost == pytest.approx(optimum, rel=0.05)
    assert estimate.estimated_information == pytest.approx(0.5, rel=0.03)
    # The start is that optimum, so the end must differ from a start at another budget.
    assert gaussian_information(np.cov(outputs.T, bias=True), 0.45).cost > 1.1 * optimum


@pytest.mark.thorough
def test_cost_moves_the_noise():
    outputs = np.random.default_rng(0).normal(size=(2000, 2))
    estimate = estimate_stackelberg(outputs, outputs, mi_budget=0.5, cost=[1.0, 16.0], rng=1)
    exact = gaussian_information(np.cov(outputs.T, bias=True), 0.5, cost=[1.0, 16.0])
    assert estimate.cost == pytest.approx(exact.cost, rel=0.06)
    weighted = estimate.noise.covariance
    assert weighted[0, 0] > 2.0 * weighted[1, 1]


@pytest.mark.thorough
def test_categorical_decoder_agrees_with_the_exact_information(finite):
    exact = mixture(
        SECRETS, Dense(finite.noise.covariance), samples=200_000, confidence=0.999, rng=5
    )
    error = 5 * finite.standard_error
    assert finite.entropy == pytest.approx(math.log(5))
    # A decoder finds no more than there is, and this one nearly all.
    assert finite.estimated_information <= exact.upper + error
    assert finite.estimated_information >= 0.97 * exact.lower - error
    assert finite.estimated_information == pytest.approx(0.3, rel=0.03)
    assert finite.cost <= 1.05 * gaussian_information(np.cov(SECRETS.T, bias=True), 0.3).cost


@pytest.mark.thorough
def test_checks_of_a_finite_secret_hold(finite):
    fano, exact = finite.checks
    assert fano.name == "Fano on 'left'"
    assert 0 <= fano.lower <= exact.upper
    assert exact.lower <= 0.3 * 1.05
    assert exact.upper >= 0.3 * 0.95
    assert f"{finite.mi_budget:g} nats" in finite.verdict


@pytest.mark.thorough
@pytest.mark.parametrize("noise", ["mixture", "elliptical"])
def test_other_noise_families_meet_the_budget(noise):
    estimate = estimate_stackelberg(
        SECRETS, mi_budget=0.3, rng=1, rules=StackelbergRules(noise=noise, steps=300)
    )
    check = estimate.checks[0]
    assert estimate.noise.family == noise
    assert check.lower <= 0.3 * 1.06
    assert check.upper >= 0.3 * 0.94
    assert estimate.cost == pytest.approx(np.trace(estimate.noise.second_moment), rel=1e-9)
    assert estimate.cost <= 1.1 * gaussian_information(np.cov(SECRETS.T, bias=True), 0.3).cost


@pytest.mark.thorough
def test_a_weak_decoder_reports_a_budget_that_it_does_not_keep(flawed):
    """The published flaw: the budget looks met, and nearly everything about the class leaks."""
    outputs, _, _ = clusters()
    assert flawed.estimated_information < 0.5
    assert flawed.contradicted
    check = flawed.checks[0]
    assert check.accuracy > 0.8
    assert check.lower > 0.6
    assert "0.02 nats is refuted: at least" in flawed.verdict
    assert "(Fano on 'class', 99.0% confidence)" in flawed.verdict
    honest = gaussian_information(np.cov(outputs.T, bias=True), 0.02)
    assert flawed.cost < 0.5 * honest.cost


@pytest.mark.thorough
def test_mixture_density_decoder_finds_the_class():
    outputs, labels, _ = clusters(rows=1000)
    estimate = estimate_stackelberg(
        outputs,
        outputs,
        mi_budget=0.5,
        checks=StackelbergChecks(labels={"class": labels}),
        rng=1,
        rules=StackelbergRules(decoder="mixture-density", steps=200),
    )
    # Weaker decoders leave several times as much information as they report.
    assert estimate.checks[0].lower <= 0.5 * 1.1
    assert estimate.cost < 1.5 * gaussian_information(np.cov(outputs.T, bias=True), 0.5).cost


@pytest.mark.thorough
def test_flow_decoder_sees_what_a_gaussian_does_not():
    """Two clusters on a line: knowing the law, a flow needs less noise for the same information."""
    rng = np.random.default_rng(0)
    outputs = rng.choice([-1.0, 1.0], size=(2000, 1)) + 0.1 * rng.normal(size=(2000, 1))
    entropy = math.log(2.0) + 0.5 * math.log(2.0 * math.pi * math.e * 0.01)
    costs = {}
    for decoder in ("gaussian", "flow"):
        estimate = estimate_stackelberg(
            outputs,
            outputs,
            mi_budget=0.3,
            rng=1,
            rules=StackelbergRules(decoder=decoder, entropy=entropy, steps=300),
        )
        costs[decoder] = estimate.cost
        assert estimate.estimated_information == pytest.approx(0.3, abs=0.05)
    # ±1 alone carries 0.30 nats through noise of variance 1.15; the spread 0.1 adds little.
    assert 0.7 < costs["flow"] < 1.8
    assert costs["gaussian"] < 0.3 * costs["flow"]


@pytest.mark.thorough
def test_few_values_of_the_secret_are_grouped():
    outputs, labels, _ = clusters(rows=60)
    estimate = estimate_stackelberg(
        outputs,
        labels,
        mi_budget=0.2,
        rng=1,
        rules=StackelbergRules(decoder="categorical", steps=200),
    )
    share = np.bincount(labels) / 60
    assert estimate.entropy == pytest.approx(-(share @ np.log(share)))
    assert estimate.checks[0].lower <= 0.2 * 1.1
    assert estimate.checks[0].upper >= 0.2 * 0.9


@pytest.mark.thorough
def test_pac_adjusted_penalty_stays_below_the_budget():
    plain = estimate_stackelberg(SECRETS, mi_budget=0.3, rng=1, rules=STEPS[200])
    careful = estimate_stackelberg(
        SECRETS,
        mi_budget=0.3,
        rules=StackelbergRules(penalty="pac-adjusted", margin=0.1, steps=200),
        rng=1,
    )
    assert careful.estimated_information < 0.25
    assert careful.cost > 1.1 * plain.cost


def test_margin_is_the_formula_of_the_lemma():
    exact = 4 * 0.01 + 2 * 3.0 * math.sqrt(2 * math.log(20) / 500)
    found = decoder_margin(rademacher=0.01, bound=3.0, samples=500, confidence=0.9)
    assert found == pytest.approx(exact, rel=1e-12)


@pytest.mark.thorough
def test_outputs_in_a_plane_get_noise_in_the_plane():
    outputs = SECRETS @ np.array([[1.0, 0.0, 2.0], [0.0, 1.0, -1.0]]) + 3.0
    estimate = estimate_stackelberg(outputs, mi_budget=0.5, rng=0, rules=STEPS[30])
    assert estimate.noise.lift.shape == (2, 3)
    assert np.linalg.matrix_rank(estimate.noise.covariance) == 2
    normal = np.cross([1.0, 0.0, 2.0], [0.0, 1.0, -1.0])
    assert np.abs(estimate.noise.sample(10, 0) @ normal).max() < 1e-10


@pytest.mark.thorough
def test_a_seed_fixes_everything_and_torch_is_left_alone():
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    first, second, other = (
        estimate_stackelberg(SECRETS, mi_budget=0.5, rules=STEPS[20], rng=seed)
        for seed in (3, 3, 4)
    )
    assert first.summary() == second.summary()
    assert first.cost != other.cost
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


@pytest.mark.thorough
def test_summary_is_strict_json(flawed):
    content = json.loads(json.dumps(flawed.summary(), allow_nan=False))
    assert content["contradicted"] is True
    assert content["noise"]["family"] == "gaussian"
    assert content["checks"][0]["upper"] is None


def test_an_estimate_is_no_guarantee(finite, tmp_path):
    assert not isinstance(finite, Guarantee)
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget("pool", mi_budget=1.0)
    with pytest.raises(ValueError, match="expected a tacit guarantee, got StackelbergEstimate"):
        ledger.reserve("pool", finite, "logits")
    assert ledger.spent("pool").nats == 0.0
    for refused in (
        lambda: check_release(finite, Policy(max_information=1.0)),
        lambda: load(finite),
        lambda: load(finite.summary()),
        lambda: guarantee_from_dict(finite.summary()),
    ):
        with pytest.raises(ValueError, match=r"release|type"):
            refused()


def test_verdicts_without_a_refutation():
    outputs = np.random.default_rng(0).normal(size=(40, 1))
    unchecked = estimate_stackelberg(outputs, outputs, mi_budget=0.5, rules=STEPS[10], rng=0)
    assert "is unchecked" in unchecked.verdict
    assert not unchecked.contradicted


HOSTILE = {
    "outputs": [None, "x", [], np.ones((3, 2)), np.full((3, 1), np.nan), np.eye(3) * 1e200],
    "secrets": [np.ones(5), np.ones((4, 1)), "x", np.zeros((5, 0))],
    "mi_budget": [0.0, -1.0, math.nan, math.inf, 5.0, "x", None],
    "decoder": ["softmax", 3, "gaussian"],
    "noise": ["laplace", None],
    "cost": [-1.0, [1.0, 0.0], np.ones(3), np.ones((2, 3)), [1.0, math.inf]],
    "penalty": ["none", "pac-adjusted"],
    "margin": [0.1],
    "penalty_weight": [0.0, math.nan],
    "labels": [[0, 1], {"a": [0, 1]}, {"a": [0.5] * 5}, {3: [0] * 5}],
    "entropy": ["x", math.nan],
    "steps": [9, 1.5],
    "period": [0],
    "batch": [1],
    "samples": [10],
    "confidence": [0.5, 1.0],
    "rng": [-1, "x"],
}


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in HOSTILE.items() for value in values],
    ids=str,
)
def test_bad_input_is_named(name, value):
    given = {"outputs": SECRETS, "mi_budget": 0.3, "rng": 0}
    asked = {"rules": {"steps": 10}, "checks": {"samples": 1000}}
    if name == "secrets":
        asked["rules"]["decoder"] = "gaussian"
    values = {**dict.fromkeys(("labels", "samples", "confidence"), "checks"),
              **dict.fromkeys(vars(StackelbergRules()), "rules")}  # fmt: skip
    (asked[values[name]] if name in values else given)[name] = value
    outputs = given.pop("outputs")
    secrets = given.pop("secrets", None)
    wanted = {"gaussian": "secrets", "pac-adjusted": "margin"}.get(str(value), name)
    with pytest.raises(ValueError, match=wanted):
        estimate_stackelberg(
            outputs,
            secrets,
            rules=StackelbergRules(**asked["rules"]),
            checks=StackelbergChecks(**asked["checks"]),
            **given,
        )


def test_an_entropy_that_no_noise_can_meet_is_refused():
    outputs, _, _ = clusters(rows=50)
    rules = StackelbergRules(entropy=50.0, steps=10)
    with pytest.raises(ValueError, match="entropy: expected less than"):
        estimate_stackelberg(outputs, outputs, mi_budget=0.1, rules=rules, rng=0)


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "tacit_lab.stackelberg.game", raising=False)
    package = sys.modules["tacit_lab.stackelberg"]
    monkeypatch.delattr(package, "game", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"pip install 'tacit-privacy\[torch\]'"):
        estimate_stackelberg(SECRETS, mi_budget=0.3, rng=0)


def test_the_estimate_type_is_the_only_thing_returned(finite):
    assert isinstance(finite, StackelbergEstimate)
    assert finite.cross_entropy == pytest.approx(finite.entropy - finite.estimated_information)
    assert finite.history.cost.shape == finite.history.estimated_information.shape == (100,)
