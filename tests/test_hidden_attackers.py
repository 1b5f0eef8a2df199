"""The experiment on attackers who know more: equal KL, controls, and a page of its numbers."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tacit.hidden_states import Bench, Sizes
from tacit.models import Prefixes
from tests.hidden_states.networks import small_network

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def shared() -> Any:
    return lambda name: importlib.import_module(f"tacit_lab.studies.hidden.{name}")


@pytest.fixture(scope="module")
def result(shared: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    attackers = shared("attackers")
    stream = np.random.default_rng(1).integers(40, size=6000)
    prefixes = Prefixes.draw(stream, bank=200, calibration=200, held_out=60, length=6, rng=0)
    sizes = Sizes(geometry=100, pairs=50, prompts=100, generated=0, queries=100, trained=100)
    scale = attackers.AttackerScale(
        bank=200, calibration=200, sizes=sizes, grid=(0.01, 0.1, 1.0, 10.0), codewords=(4, 16),
        books=("argmax",), prompts=20, candidates=40, topics=3,
    )  # fmt: skip
    model = small_network(vocabulary=40, width=16)
    bench = Bench(model, prefixes, sizes, 3)
    path = tmp_path_factory.mktemp("attackers") / "points.jsonl"

    def measure() -> Any:
        return attackers.measure_layer(1, scale, bench, out=path, progress=lambda label: None)

    points = measure()
    size = path.stat().st_size
    assert attackers.packed(measure()) == attackers.packed(points)
    assert path.stat().st_size == size
    clean = [attackers.clean_facts(bench, 1, scale)]
    return json.loads(
        json.dumps(
            {
                "model": "tiny", "texts": "random tokens", "length": 6, "bank": 200, "topics": 3,
                "calibration": 200, "held_out": 60, "prompts": 20, "candidates": 40, "clean": clean,
                "rows": attackers.packed(points),
            },
            allow_nan=False,
        )
    )  # fmt: skip


def test_noise_stands_at_the_measured_kl_of_the_code(result: Any) -> None:
    code = next(row for row in result["rows"] if row["codewords"] == 16)
    noise = [row for row in result["rows"] if row["codewords"] is None]
    assert {row["mechanism"] for row in noise} == {"isotropic", "mahalanobis-optimal"}
    assert {"raw", "wiener"} <= {row["reading"] for row in noise}
    assert all(0.6 < row["kl"] / code["kl"] < 1.6 for row in noise)


def test_every_release_has_every_attacker_and_the_clean_state_gives_most(result: Any) -> None:
    clean = result["clean"][0]["guesses"]
    assert clean[0]["success"][0] == clean[0]["covered"] == 1.0
    for row in result["rows"]:
        assert [g["task"] for g in row["guesses"]] == [g["task"] for g in clean]
        assert row["guesses"][0]["success"][0] <= clean[0]["success"][0]
        assert row["bound"] is None or row["bank"][0] <= row["bound"]


def test_the_page_is_written_from_the_numbers(shared: Any, result: Any) -> None:
    page = shared("attackers_page").text(result)
    assert "| the clean state | 0 | 1.00 |" in page
    assert "likeliest token (control)" in page
    assert "### Layer 1" in page
    assert all(len(line) < 120 or line.startswith("|") for line in page.splitlines())


def test_the_page_in_the_docs_is_that_of_the_stored_result(shared: Any) -> None:
    pages = shared("attackers_page")
    places = importlib.import_module("tacit_lab.studies.places")
    path = places.RESULTS / "hidden-attackers.json"
    if not path.is_file():
        pytest.skip("experiments/results is not beside an installed package")
    stored = json.loads(path.read_text(encoding="utf-8"))
    written = places.DOCS / "explanation" / "hidden-attackers.md"
    assert written.read_text(encoding="utf-8") == pages.text(stored)
    assert stored["model"] == "tacit/small"
    assert len(stored["clean"]) == 3
