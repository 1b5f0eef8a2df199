"""One model by several loops: what is equal, which rate is taken, and what the page says of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from tacit_lab.studies.loops import measure, page, wavelets
from tacit_lab.studies.loops.encoder import EncoderRecipe, NewsClassifier, NewsEncoder, WordNumbers
from tacit_lab.studies.loops.ways import WAYS, LearningTask, accuracy
from tacit_lab.studies.places import RESULTS


def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 2))


@pytest.fixture(scope="module")
def task():
    """Which of two halves of a record is larger."""
    made = torch.Generator().manual_seed(0)
    inputs = torch.randn(160, 2, 3, generator=made)
    known = (inputs[:, 0].sum(1) > inputs[:, 1].sum(1)).long()
    parts = [(inputs[a:b], known[a:b]) for a, b in ((0, 80), (80, 120), (120, 160))]
    return LearningTask(network, *parts, batch=10, epochs=2, delta=1e-3)


@dataclass
class Kept:
    """Rows of a study in memory, and how many were computed."""

    rows: dict = field(default_factory=dict)

    def row(self, key, compute):
        if key not in self.rows:
            self.rows[key] = compute()
        return self.rows[key]


@pytest.mark.parametrize("way", ["without noise", "Tacit", "Tacit, tied noise"])
def test_a_loop_learns_what_is_easy(task, way):
    model = WAYS[way].train(task, 0.3, 0.3, 0)
    assert accuracy(model, task.test) > 0.8


@pytest.mark.services
def test_the_loop_of_opacus_learns_the_same(task):
    pytest.importorskip("opacus")
    assert accuracy(WAYS["Opacus"].train(task, 0.3, 0.3, 0), task.test) > 0.8


def test_a_published_table_has_equal_noise_where_only_the_accountant_differs():
    result = json.loads((RESULTS / "private-loops.json").read_text("utf-8"))
    for name, found in result["tasks"].items():
        assert set(found["ways"]) == set(WAYS), name
        for epsilon, row in found["ways"]["Tacit"].items():
            peer = found["ways"]["Opacus"][epsilon]
            # the search of Opacus stops within a hundredth of ε
            assert row["multiplier"] == pytest.approx(peer["multiplier"], rel=0.02)
            for one in (row, peer, found["ways"]["Tacit, tied noise"][epsilon]):
                rates = [float(rate) for rate in one["tried"]]
                assert min(rates) < one["rate"] < max(rates)
                assert one["tried"][str(one["rate"])] == max(one["tried"].values())


def test_the_best_rate_lies_inside_and_finished_runs_are_not_run_again(task):
    kept = Kept()
    found = measure.reached(task, "without noise", None, (0.01, 0.03), (0, 1), kept)
    rates = [float(rate) for rate in found["tried"]]
    assert rates == sorted(rates)
    assert rates[0] < found["rate"] < rates[-1]
    assert found["tried"][str(found["rate"])] == max(found["tried"].values())
    assert found["multiplier"] == 0.0
    assert len(found["accuracies"]) == 2
    count = len(kept.rows)
    assert measure.reached(task, "without noise", None, (0.01, 0.03), (0, 1), kept) == found
    assert len(kept.rows) == count == len(rates) + 2


def test_features_are_of_one_image_and_see_no_constant():
    images = np.random.default_rng(0).normal(size=(3, 3, 32, 32)).astype(np.float32)
    together = wavelets.features(images)
    assert together.shape == (3, wavelets.PATHS, wavelets.CELLS, wavelets.CELLS)
    assert torch.equal(together[1], wavelets.features(images[1:2])[0])
    # a constant image has waves only at its border, where a filter reaches beyond it
    filters = wavelets._filters(1)
    assert filters.sum((1, 2, 3)).abs().max() < 1e-6
    # turned by a right angle, half a turn of directions apart, an image has the same moduli
    turned = wavelets.features(np.rot90(images, axes=(2, 3)).copy())
    first = slice(1, 1 + wavelets.ANGLES)
    moved = torch.rot90(together[:, first].float(), dims=(2, 3)).roll(wavelets.ANGLES // 2, 1)
    assert (turned[:, first].float() - moved).abs().max() < 0.01


def test_only_adapters_and_the_head_of_a_classifier_learn():
    pytest.importorskip("peft")
    recipe = EncoderRecipe(words=3, length=4, width=8, heads=2)
    torch.manual_seed(0)
    encoder = NewsEncoder(recipe)
    read = WordNumbers(["one", "two", "three"], recipe.length)
    tokens = read(["One two unseen!", "three", "", "one two three one two"])
    assert tokens.tolist() == [[3, 4, 1, 0], [5, 0, 0, 0], [1, 0, 0, 0], [3, 4, 5, 3]]
    model = NewsClassifier(encoder, encoder(tokens).detach(), 2, rank=2)
    learned = [name for name, one in model.named_parameters() if one.requires_grad]
    assert all("lora_" in name or name.startswith("head.") for name in learned)
    # what stands after a text does not move it
    assert torch.allclose(encoder(tokens[1:2, :1]), encoder(tokens[1:2]), atol=1e-6)
    # an adapter begins as the encoder that it adapts
    assert torch.allclose(model.encoder(tokens), encoder(tokens), atol=1e-6)


def made(accuracies, rate=0.1):
    return {"multiplier": 1.0, "rate": rate, "tried": {}, "accuracies": accuracies}


def test_the_page_says_which_runs_are_apart():
    ways = {
        "without noise": {"None": {**made([0.9, 0.92, 0.91]), "multiplier": 0.0}},
        "Opacus": {"1.0": made([0.50, 0.54, 0.52]), "8.0": made([0.60, 0.62, 0.61])},
        "Tacit": {"1.0": made([0.53, 0.55, 0.51]), "8.0": made([0.61, 0.63, 0.62])},
        "Tacit, tied noise": {"1.0": made([0.4, 0.4, 0.4]), "8.0": made([0.7, 0.72, 0.71])},
    }
    told = page.verdict({"ways": ways})
    assert "Tacit less Opacus, in points: +1.0 (overlap) at ε = 1; +1.0 (overlap) at ε = 8" in told
    assert "-13.0 (apart) at ε = 1; +9.0 (apart) at ε = 8" in told
    assert page._row("Opacus", ways["Opacus"])[2:5] == ["52.0 ± 2.0", "1.000", "0.1"]
