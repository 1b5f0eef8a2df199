"""Whatever comes as an argument, a function on hidden states takes it or raises a ValueError."""

from functools import partial

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from tacit.attacks import (
    Recovery,
    TokenProbe,
    TokenSearch,
    TrajectoryInverter,
    attack_inversion,
    margin_threshold,
    sequential_decoder,
)
from tacit.attacks.sequential.margin_law import step_law
from tacit.covariance import Isotropic
from tacit.design import isotropic
from tacit.hidden_states import (
    Codebook,
    CodebookFit,
    Denoiser,
    Differences,
    FisherFit,
    GeometryFit,
    MarginRounding,
    NextTokens,
    Sizes,
    Wish,
    adjacency_differences,
    designs_at_budget,
    fisher_information,
    measure_geometry,
    measure_margins,
    measure_projections,
    measure_utility,
    release,
    transplantation,
)
from tacit.hidden_states.codebooks.certificates import certify, compose
from tacit.hidden_states.codebooks.response import RandomizedCodes
from tacit.hidden_states.geometry.spread import spread_of_differences, spread_of_directions
from tacit.hidden_states.geometry.utility import quantile_interval
from tacit.models import Behaviours, Prefixes, sample_prefixes, split
from tests.arguments import asked, check
from tests.hidden_states.networks import small_network
from tests.hidden_states.prompts import fitted

WIDTH, VOCABULARY, LAYER = 8, 9, 1
ROWS = np.random.default_rng(0).normal(size=(30, WIDTH))
CODES = np.arange(30) % 4
STREAM = np.random.default_rng(1).integers(VOCABULARY, size=300)
NEIGHBOURS = np.array([[0, 1], [1, 2], [2, 0], [3, 0]])
NOISE = Isotropic(1.0, WIDTH)

ARRAYS = {
    "adjacency_differences": (adjacency_differences, [ROWS, 4], {"kind": "nearest", "rng": 0}),
    "spread_of_differences": (spread_of_differences, [ROWS], {}),
    "spread_of_directions": (spread_of_directions, [ROWS, 9], {"rng": 0}),
    "margin_threshold": (margin_threshold, [9, 0.1], {"tail": "gaussian"}),
    "step_law": (step_law, [ROWS], {"draws": 9, "rng": 0}),
    "quantile_interval": (quantile_interval, [np.arange(30.0), 0.5, 0.9], {}),
    "certify": (certify, [CODES, 4], {"weights": np.ones(30)}),
    "compose": (compose, [4, 2, 30], {"weights": np.ones(30)}),
    "RandomizedCodes": (RandomizedCodes, [1.0, NEIGHBOURS], {}),
    "RandomizedCodes.release": (RandomizedCodes(1.0, NEIGHBOURS).release, [CODES], {"rng": 0}),
    "RandomizedCodes.certify": (
        RandomizedCodes(1.0, NEIGHBOURS).certify,
        [CODES],
        {"weights": np.ones(30)},
    ),
    "RandomizedCodes.guarantee": (RandomizedCodes(1.0, NEIGHBOURS).guarantee, [2], {}),
    "release": (
        lambda rows, listed, orders, rng: release(
            rows,
            isotropic(np.ones(WIDTH), 1.0),
            Differences(listed=listed, orders=orders),
            rng=rng,
        ),
        [ROWS],
        {"listed": ROWS[:3], "orders": [2.0, 4.0], "rng": 0},
    ),
    "sample_prefixes": (
        sample_prefixes,
        [STREAM],
        {"count": 3, "length": 4, "rng": 0, "exclude": STREAM[None, :4]},
    ),
    "split": (split, [STREAM[:12].reshape(3, 4), 1, 2], {}),
    "Prefixes.draw": (
        Prefixes.draw,
        [STREAM],
        {"bank": 3, "calibration": 2, "held_out": 1, "length": 4, "rng": 0},
    ),
    "Sizes": (Sizes, [], {"prompts": 9, "generated": 2}),
    "Wish": (
        Wish,
        [],
        {"max_attack": 0.1, "min_agreement": 0.2, "max_kl": 1.0, "protocol": "A"},
    ),
    "Behaviours": (Behaviours, [ROWS], {}),
    "Behaviours.top": (Behaviours.top, [ROWS, 2], {}),
    "Codebook.fit": (
        fitted,
        [ROWS],
        {"size": 4, "metric": "euclidean", "least_cell": 5, "rng": 0},
    ),
    "Codebook.fit on behaviours": (
        partial(fitted, ROWS, size=4, metric="behaviour", rounds=1, rng=0),
        [],
        {"behaviours": ROWS},
    ),
    "Codebook.fit by Fisher": (
        partial(fitted, ROWS, size=4, metric="fisher", rng=0),
        [],
        {"fisher": np.eye(WIDTH)},
    ),
    "Denoiser.posterior_mean": (partial(Denoiser.posterior_mean, covariance=NOISE), [ROWS], {}),
    "Denoiser.wiener": (partial(Denoiser.wiener, covariance=NOISE), [ROWS], {}),
    "Denoiser.denoise": (Denoiser.wiener(ROWS, NOISE).denoise, [ROWS], {}),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_functions_of_arrays_raise_nothing_but_value_errors(name):
    check(*ARRAYS[name])


@pytest.fixture(scope="module")
def model():
    return small_network("llama", vocabulary=VOCABULARY, width=WIDTH, context=8)


@pytest.fixture(scope="module")
def prompts():
    return torch.randint(VOCABULARY, (14, 4), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def book():
    return Codebook.fit(ROWS, CodebookFit(size=4, metric="euclidean", least_cell=1), rng=0)


@pytest.mark.parametrize(
    ("name", "arguments", "options"),
    [
        ("assign", [ROWS], {}),
        ("decode", [CODES], {}),
        ("certify", [CODES], {"weights": np.ones(30)}),
        ("compose", [2, 30], {"weights": np.ones(30)}),
        ("randomised", [1.0], {"near": 2}),
    ],
)
def test_codebooks_raise_nothing_but_value_errors(book, name, arguments, options):
    check(getattr(book, name), arguments, options)


def test_models_raise_nothing_but_value_errors(model, prompts):
    few = prompts[:2]
    states = model.states(few, LAYER)
    run = model.continuation(few, LAYER)
    check(model.states, [few, LAYER], {"positions": "last", "batch_size": 2})
    check(model.logits, [few], {"batch_size": 2})
    check(model.continuation, [few, LAYER], {"batch_size": 2})
    check(model.generate, [few, LAYER, states, 2], {"batch_size": 2})
    check(run.logits, [states], {"batch_size": 2})
    check(
        partial(measure_utility, run),
        [states],
        {"predicted": 0.1, "confidence": 0.9, "batch_size": 2},
    )


def test_measurements_raise_nothing_but_value_errors(model, prompts):
    basis = np.eye(WIDTH)[:, :2]
    shared = {"batch_size": 5, "rng": 0}
    check(
        partial(asked(fisher_information, FisherFit), model),
        [LAYER, prompts],
        {"diagonal": False, "label_source": "top-k", "draws": 2, "top": 2, **shared},
    )
    check(
        partial(asked(fisher_information, FisherFit), model, LAYER, prompts, label_source="true"),
        [],
        {"next_tokens": np.arange(14) % 9},
    )
    check(
        partial(asked(measure_geometry, GeometryFit), model),
        [LAYER, prompts],
        {"rank": 2, "difference_scale": "raw", "pairs": 9, "ridge": 1e-3, "draws": 1, **shared},
    )
    check(
        partial(measure_projections, model),
        [LAYER, prompts, basis],
        {"rank": 2, "confidence": 0.9, **shared},
    )
    check(
        partial(transplantation, model),
        [LAYER, prompts, basis],
        {"rank": 2, "mixes": [0.0, 1.0], "confidence": 0.9, "rng": 0},
    )
    check(
        partial(measure_margins, model),
        [
            LAYER,
            NextTokens(prefixes=prompts[:2], next_tokens=[1, 2], candidates=[1, 2, 3]),
            basis,
            MarginRounding(calibration=ROWS, bits=(4,)),
        ],
        {"rank": 2, **shared},
    )


def test_designs_raise_nothing_but_value_errors(model, prompts):
    found = measure_geometry(
        model, LAYER, prompts, GeometryFit(label_source="model-exact", rank=2), rng=0
    )
    check(
        partial(designs_at_budget, found),
        [0.1],
        {"rank": 2, "exponent": 0.5, "floor": 0.1, "differences": ROWS[:3]},
    )


def test_the_decoder_raises_nothing_but_value_errors(model, prompts):
    few = prompts[:1, :2]
    check(
        partial(asked(sequential_decoder, TokenSearch), model),
        [LAYER, model.states(few, LAYER, positions="all"), np.eye(WIDTH)],
        {
            "truth": few,
            "beam": 1,
            "shortlist": 4,
            "token_law": "model",
            "floor": 0.1,
            "confidence": 0.9,
            "draws": 9,
            "batch_size": 5,
            "rng": 0,
            "margins": False,
            "probe": TokenProbe.fit(model, LAYER, prompts[:, :4]),
        },
    )


def test_inversion_raises_nothing_but_value_errors(model, prompts):
    few, rest = prompts[:2, :3], prompts[2:, :3]
    check(
        partial(TokenProbe.fit, model),
        [LAYER, rest],
        {"channel": None, "ridge": 1.0, "shrinkage": 2.0, "rng": 0},
    )
    inverter = TrajectoryInverter(model, LAYER, np.eye(WIDTH), TokenProbe.fit(model, LAYER, rest))
    check(
        attack_inversion,
        [inverter, model.states(few, LAYER, positions="all"), few, rest],
        {"known": "report", "baselines": ["permuted", "nearest"], "confidence": 0.9, "rng": 0},
    )
    check(Recovery.of, [few, few], {"confidence": 0.9})
