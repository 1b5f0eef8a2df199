"""Someone with 300 pictures finds the model that reads them, and sends nothing without noise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tacit.specifications.seeds import workflow
from tacit.specifications.seeds.material import Material, cut, digits
from tacit_dock.cli.seeding import keep_seed
from tests.cli_runner import Tacit, refused
from tests.dock.running import running

datasets = pytest.importorskip("sklearn.datasets")
PLANS = ((tuple(range(10)), "plain"), ((4, 9), "plain"), ((3, 8), "plain"), ((0, 6, 9), "turned"))


def test_digits_as_they_come_find_the_model_of_digits_first(
    tacit: Tacit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = digits()

    def few(_: Path | None) -> Iterator[Material]:
        yield from (cut(pool, *plan) for plan in PLANS)

    monkeypatch.setattr(workflow, "materials", few)
    held = datasets.load_digits()
    task = tmp_path / "task.npz"
    np.savez(task, inputs=held.images[:300], labels=held.target[:300])
    with running(tmp_path / "dock") as found:
        for made in workflow.seed_learnwares():
            assert keep_seed(found.store, made)
        monkeypatch.setenv("TACIT_DOCK_URL", found.url)
        make = ("specification", "make", task, "--classes", "10", "--task", "--out")
        # what is refused says what to do, and then it is done
        bare = tmp_path / "bare.safetensors"
        refused(tacit(*make, bare, "--unprotected"), "--max-pixel")
        assert tacit(*make, bare, "--unprotected", "--max-pixel", "16").code == 0
        refused(tacit("dock", "search", bare), "read back")
        noisy = tmp_path / "task.safetensors"
        assert tacit(*make, noisy, "--epsilon", "4", "--max-pixel", "16").code == 0
        told = tacit("dock", "search", noisy, "--json", tmp_path / "found.json")
        assert told.out.startswith("A match")
        assert "8 × 8; the most similar model was described with pictures of 32 × 32" in told.out
        best, *others = json.loads((tmp_path / "found.json").read_text())["items"]
        assert best["title"] == "digits: 0, 1, 2, 3, 4, 5, 6, 7, 8 or 9"
        assert best["shared"] == [str(number) for number in range(10)]
        # the noise is fresh in every run
        assert best["similarity"] > max(0.6, *(item["similarity"] for item in others))
        assert tacit("dock", "fetch", best["id"], tmp_path / "model").code == 0
        assert (tmp_path / "model" / "model.safetensors").stat().st_size > 1000
