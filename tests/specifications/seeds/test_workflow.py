"""Seeds are found by the tasks made for them, and hold what a dock asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tacit.specifications import specification_from_bytes
from tacit.specifications.seeds import workflow
from tacit.specifications.seeds.material import Material, cut, digits
from tacit.specifications.seeds.workflow import example_tasks, seed_learnwares
from tacit_dock import read_card


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = digits()

    def few(_: Path | None) -> Iterator[Material]:
        yield from (cut(pool, pair, "plain") for pair in ((0, 1), (3, 8), (4, 9)))

    monkeypatch.setattr(workflow, "materials", few)


@pytest.mark.usefixtures("three")
def test_every_example_task_finds_its_learnware() -> None:
    held = list(seed_learnwares())
    made = [specification_from_bytes(one.specification) for one in held]
    for at, task in enumerate(example_tasks()):
        asked = specification_from_bytes(task.specification)
        assert asked.kind == "task"
        assert not asked.guarantees
        assert int(np.argmax([asked.cosine(one) for one in made])) == at
        assert task.name == held[at].name


@pytest.mark.usefixtures("three")
def test_a_seed_is_certified_and_its_card_begins_with_its_head() -> None:
    one = next(seed_learnwares())
    made = specification_from_bytes(one.specification)
    assert made.method == "dp"
    assert any("ε = 2" in bound.describe() for bound in made.guarantees)
    assert one.card.startswith('---\nname: "digits-0-1-plain"\n')
    assert one.card.count("\n---\n") == 1
    told = read_card(one.card.encode())
    assert (told.title, told.modality) == ("digits: 0 or 1", "image")
    assert set(told.marks) == {"license=cc-by-4.0", "task=classification"}
    assert "CC BY 4.0 (UCI)" in told.text
    assert json.loads(one.release)["details"]["records"] == 256


@pytest.mark.usefixtures("three")
def test_noise_is_drawn_afresh() -> None:
    one, two = (next(seed_learnwares()).specification for _ in range(2))
    assert one != two


@pytest.mark.parametrize("folder", ["no such folder", 3, ""])
def test_a_folder_that_is_none_is_refused(folder: object) -> None:
    with pytest.raises(ValueError, match="folder: expected a folder or None"):
        list(islice(seed_learnwares(folder), 1))  # type: ignore[arg-type]
