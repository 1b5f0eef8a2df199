"""The study of specifications: tasks, users, baselines that keep their bound, the page."""

from __future__ import annotations

import importlib
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "experiments" / "results" / "specifications-identification.json"
OBJECTIVES = STORED.with_name("specifications-objectives.json")


@pytest.fixture
def load() -> Any:
    """Import a module that the study shares."""
    return lambda name: importlib.import_module(f"tacit_lab.studies.specifications.{name}")


def test_tasks_of_a_seed_are_as_many_as_asked_for_and_no_two_alike(load: Any) -> None:
    tasks = load("tasks")
    for seed in range(5):
        names = [task.name for task in tasks.image_tasks(seed)]
        assert len(names) == len(set(names)) == 40
    assert len({task.name for task in tasks.text_tasks()}) == 20
    assert tasks.image_tasks(0) != tasks.image_tasks(1)


def test_partitions_of_a_case_differ_as_sets_of_sets(load: Any) -> None:
    drawn = load("tasks").relabelled_tasks(1)
    kept = {(task.source, frozenset(map(frozenset, task.groups))) for task in drawn}
    assert len(kept) == len(drawn) == 24
    assert all(sorted(sum(task.groups, ())) == list(range(10)) for task in drawn)


@pytest.mark.parametrize("name", ["mean feature", "class means"])
def test_replacing_one_record_moves_a_baseline_by_two_clips_over_n(load: Any, name: str) -> None:
    baselines = load("baselines")
    rng = np.random.default_rng(0)
    frame = baselines.BaselineFrame.of(rng.normal(size=(200, 6)))
    most = 0.0
    for _ in range(200):
        features, labels = 9 * rng.normal(size=(20, 6)), rng.integers(0, 3, 20)
        labels[:3] = np.arange(3)
        other, renamed = features.copy(), labels.copy()
        other[-1], renamed[-1] = -9 * rng.normal(size=6), rng.integers(0, 3)
        if rng.random() < 0.5:
            other[-1], renamed[-1] = -features[-1], labels[-1]
        one, two = (
            baselines.vectors(held, classes, frame, epsilon=None, rng=rng)[name]
            for held, classes in ((features, labels), (other, renamed))
        )
        most = max(most, float(np.linalg.norm(one - two)))
    bound = 2 * frame.clip / 20
    assert 0.9 * bound < most <= bound * (1 + 1e-9)


def test_the_noise_of_a_baseline_is_that_of_its_budget(load: Any) -> None:
    from tacit.accounting import gaussian

    baselines = load("baselines")
    rng = np.random.default_rng(1)
    frame = baselines.BaselineFrame.of(rng.normal(size=(200, 400)))
    features, labels = rng.normal(size=(50, 400)), np.arange(50) % 2
    clean, noisy = (
        baselines.vectors(features, labels, frame, epsilon=value, rng=rng)["class means"]
        for value in (None, 2.0)
    )
    std = float((noisy - clean).std())
    # 2,000 numbers: the standard deviation is known to one part in 63
    assert gaussian(2 * frame.clip / 50, std).epsilon(1e-5) == pytest.approx(2.0, rel=0.08)


def test_a_histogram_of_labels_has_the_noise_for_one_record_in_place_of_another(load: Any) -> None:
    from tacit.accounting import gaussian

    baselines = load("baselines")
    known = [str(number) for number in range(3000)]
    labels = np.arange(40) % 2
    changed = labels.copy()
    changed[0] = 1
    rng = np.random.default_rng(3)
    one, other, noisy = (
        baselines.histogram(held, ["7", "2999"], known, epsilon=epsilon, rng=rng)
        for held, epsilon in ((labels, None), (changed, None), (labels, 2.0))
    )
    assert one[7] == one[2999] == 0.5
    assert np.linalg.norm(one - other) == pytest.approx(2**0.5 / 40)
    # 3,000 numbers: the standard deviation is known to one part in 77
    std = float((noisy - one).std())
    assert gaussian(2**0.5 / 40, std).epsilon(1e-5) == pytest.approx(2.0, rel=0.07)


def test_the_scatter_does_not_see_the_order_of_labels(load: Any) -> None:
    baselines = load("baselines")
    rng = np.random.default_rng(2)
    frame = baselines.BaselineFrame.of(rng.normal(size=(100, 5)))
    features, labels = rng.normal(size=(30, 5)), np.arange(30) % 3
    renamed = np.array([2, 0, 1])[labels]
    one, two = (
        baselines.vectors(features, held, frame, epsilon=None, rng=rng)
        for held in (labels, renamed)
    )
    np.testing.assert_allclose(one["scatter"], two["scatter"], atol=1e-12)
    assert not np.allclose(one["class means"], two["class means"])


def test_a_share_has_the_error_of_a_share(load: Any) -> None:
    share = load("measures").share
    assert share([True] * 3 + [False])[1] == pytest.approx((0.75 * 0.25 / 4) ** 0.5)
    assert 0 < share([True] * 10)[1] < 0.1


def test_ridge_on_features_learns_what_a_line_can(load: Any) -> None:
    rng = np.random.default_rng(3)
    known, asked = rng.normal(size=(60, 4)), rng.normal(size=(200, 4))
    probed = load("measures").probed
    assert probed(known, (known[:, 0] > 0) * 1, asked, (asked[:, 0] > 0) * 1) > 0.9


def test_a_model_is_trained_once(
    load: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    learnwares, tasks = load("learnwares"), load("tasks")
    monkeypatch.setattr(learnwares, "CACHE", tmp_path)
    asked: list[int] = []

    def drawn(task: Any, count: int, part: str, seed: int) -> Any:
        asked.append(count)
        rng = np.random.default_rng([seed, zlib.crc32(part.encode())])
        inputs = rng.random((count, 3, 32, 32), dtype=np.float32)
        return learnwares.LabelledPictures(inputs, np.arange(count) % task.labels)

    monkeypatch.setattr(learnwares, "records", drawn)
    task = tasks.image_tasks(0)[0]
    recipe = learnwares.LearnwareRecipe(records=20, epochs=1, channels=4)
    first, second = (learnwares.model(task, recipe) for _ in range(2))
    assert asked == [20]
    shown = np.zeros((2, 3, 32, 32), dtype=np.float32)
    np.testing.assert_array_equal(learnwares.logits(first, shown), learnwares.logits(second, shown))


def test_rows_that_were_not_run_are_left_empty_on_the_page(load: Any) -> None:
    result = _small()
    page = "\n".join(load("specifications_page").lines(result))
    assert "3 have not been run" in " ".join(page.split())
    assert "95.0 ± 2.0" in page
    assert "94% is reached (95.0%)" in " ".join(page.split())
    assert "not run" in page


def test_objectives_that_were_not_run_are_left_empty_on_the_page(load: Any) -> None:
    row = {"tasks": "images", "names": "own", "what": "mean", "queries": 80}
    result = {
        "command": "make", "delta": 1e-5, "backbone": "a", "missing": 3,
        "sizes": {"tasks_seed": 1, "draws": 2, "records": [300, 1000], "epsilons": [8.0, 1.0]},
        "tasks": {"images": 40, "relabelled": 24},
        "rows": [
            {**row, "records": 300, "epsilon": 1.0, "top1": [0.91, 0.03]},
            {**row, "records": 1000, "epsilon": 1.0, "top1": [0.84, 0.04]},
        ],
    }  # fmt: skip
    result["rows"].append({**result["rows"][0], "tasks": "relabelled", "top1": [0.06, 0.03]})
    page = " ".join("\n".join(load("objectives_page").lines(result)).split())
    assert "3 have not been run" in page
    assert "| each their own | mean | – | 91.0 ± 3.0 | – | 84.0 ± 4.0 |" in page
    assert "n = 300: reached (91.0 ± 3.0%); n = 1,000: missed (84.0 ± 4.0%)" in page


def test_the_figure_is_the_same_for_the_same_numbers(load: Any, tmp_path: Path) -> None:
    one, two = (tmp_path / f"{name}" / "figure.svg" for name in "ab")
    for path in (one, two):
        path.parent.mkdir()
        load("figure").draw(_small(), path)
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.skipif(not STORED.is_file(), reason="the study was not run")
def test_what_was_asked_of_identification_is_reached_in_the_stored_result(load: Any) -> None:
    result = json.loads(STORED.read_text(encoding="utf-8"))
    page = load("specifications_page")
    assert result["queries"] >= 160
    assert page._pave(result, "images", 0.0, count=100).top1[0] >= page.PLAIN
    for epsilon, share in page.ASKED.items():
        assert page._pave(result, "images", epsilon, rank=1).top1[0] >= share


def test_inputs_without_shared_names_find_their_model_in_the_stored_result(load: Any) -> None:
    result = json.loads(OBJECTIVES.read_text(encoding="utf-8"))
    page = load("objectives_page")
    for count in result["sizes"]["records"]:
        assert page.top1(result, "images", "own", "mean", count, 1.0)[0] >= page.ASKED


def _small() -> dict[str, Any]:
    row = {
        "tasks": "images", "what": "PAVE", "route": "aligned", "order": "aligned", "records": 100,
        "rank": 2, "subspace": 48, "epsilon": 0.0, "user": 0.0, "top1": [0.95, 0.02],
        "reuse": [0.8, 0.01], "numbers": 48,
    }  # fmt: skip
    plain = {**row, "what": "class means", "route": "", "rank": 0, "subspace": 0}
    share = {"best": [0.9, 0.01], "mean": [0.4, 0.01], "few": [0.7, 0.01], "probe": [0.8, 0.01]}
    return {
        "command": "make", "commit": "0", "delta": 1e-5, "images": 40, "texts": 20, "queries": 160,
        "sizes": {"tasks_seed": 1, "examples": 100, "draws": 4, "records": [100, 1000],
                  "records_texts": 400, "ranks": [1, 2], "cases": 24, "epsilons": [1.0, 4.0]},
        "backbones": {"images": "a", "texts": "b"}, "rank": 2, "subspace": 48, "missing": 3,
        "full": {"1": {"error": 0.1, "same": 0.9}}, "gamma": {}, "gamma_records": ["100"],
        "seconds": {"100 images": 0.2}, "reuse": {"images": share, "texts": share},
        "rows": [row, plain],
    }  # fmt: skip
