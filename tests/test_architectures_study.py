"""The study of split memory and regularisers: its measures, and the page it is rendered into."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tacit import Run  # noqa: E402
from tacit.covariance import Isotropic  # noqa: E402
from tacit.models import ModelSettings, train  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "experiments" / "results"


@pytest.fixture
def shared() -> Any:
    """Import a module that the experiments share."""
    return lambda name: importlib.import_module(f"tacit_lab.studies.architectures.{name}")


@pytest.fixture(scope="module")
def trained() -> Any:
    text = "".join(f"Sentence {i % 31} says {i % 7}, and {i % 5} follows.\n" for i in range(900))
    settings = ModelSettings(
        architecture="split-memory", width=24, trunk_width=8, layers=2, heads=2, context=8,
        vocabulary=280, batch=8,
    )  # fmt: skip
    return text, train(text, Run(steps=20, precision="float32", progress=False), settings)


def test_m_star_is_the_same_in_other_units_and_the_gain_is_not(shared: Any) -> None:
    measure = shared("measure")
    source = np.random.default_rng(0)
    left, right = source.normal(size=(2, 8, 40))
    left[4:] *= 0.01
    fisher, spread = left @ left.T, right @ right.T
    plain, moved = (measure.rescaled(fisher, spread, 1e-4, 4, factor) for factor in (1.0, 10.0))
    assert moved["least_signal"] == pytest.approx(plain["least_signal"], rel=1e-6)
    assert moved["gain_raw"] > 10 * plain["gain_raw"]


def test_a_memory_taken_out_is_its_mean_everywhere(shared: Any, trained: Any) -> None:
    measure = shared("measure")
    _, model = trained
    memory = torch.arange(16.0)
    tokens = model.stream("Sentence 3 says 5, and 2 follows.\n")[:6][None]
    trunk = model.states(tokens, 1, positions="all")[..., :8]
    with measure.memory_replaced(model, 1, memory):
        states = model.states(tokens, 2, positions="all")
    plain = model.states(tokens, 2, positions="all")
    whole = torch.cat([trunk, memory.expand(1, tokens.shape[1], 16)], dim=-1)
    block = model.anatomy.blocks[1]
    torch.testing.assert_close(states, block(whole, None, None), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(states, plain)


def test_use_without_noise_is_perfect_and_loss_is_the_cross_entropy(
    shared: Any, trained: Any
) -> None:
    text, model = trained
    measure, equal = shared("measure"), shared("equal")
    prompts = measure.draw_prompts(model, text, length=7, calibration=40, bank=60, held_out=10)
    bench = equal._Bench(model, 1, prompts, 30)
    found = bench.used(bench.states[:30])
    assert found["agreement"] == 1.0
    assert abs(found["kl"]) < 1e-6
    assert found["nll"] == pytest.approx(found["nll_clean"], abs=1e-4)
    noisy = bench.measured(Isotropic(1e4, model.width))
    assert noisy["kl"] > 0.01
    assert noisy["attack"] < 0.5
    by_hand = [
        -float(model.logits(row[None, :at]).double().log_softmax(-1)[0, row[at]])
        for row in prompts.held_out
        for at in range(1, 8)
    ]
    assert measure.loss(model, prompts.held_out) == pytest.approx(np.mean(by_hand), rel=1e-5)


@pytest.mark.parametrize("name", ["split-memory", "regularisers"])
def test_the_page_is_its_results(shared: Any, name: str) -> None:
    page = shared("split_page" if name == "split-memory" else "regularisers_page")
    rendered = (ROOT / "docs" / "explanation" / "reproductions.md").read_text(encoding="utf-8")
    assert "\n".join(page.sections()).strip() in rendered


def test_split_memory_rows_say_what_the_page_says() -> None:
    result = json.loads((RESULTS / "split-memory.json").read_text(encoding="utf-8"))
    for row in result["rows"]:
        for layer in row["layers"]:
            assert 0.0 < layer["least_signal"] <= layer["least_signal_ridged"]
            for entry in layer.get("rescaled", []):
                assert entry["least_signal"] == pytest.approx(layer["least_signal"], rel=1e-3)
            assert layer.get("trunk_share", 1.0) <= 1.0
