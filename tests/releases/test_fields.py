"""What a stored release carries is what its kind declares: nothing else rides along."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tacit.gate.consistency import consistent_form

from tacit.releases import Provenance, load
from tacit.releases.loading import READERS
from tests.releases.files import MAKERS, real

SECRET = "the prompts in clear"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


def objects(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every object of a file, by its path; of a list the first and the last."""
    if isinstance(content, dict):
        yield path
        for name, value in content.items():
            yield from objects(value, (*path, name))
    elif isinstance(content, list):
        for place in sorted({0, len(content) - 1} if content else ()):
            yield from objects(content[place], (*path, place))


def at(content: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        content = content[name]
    return content


@pytest.mark.parametrize("name", MAKERS)
def test_a_field_that_its_kind_has_not_is_refused_at_every_depth(name: str, folder: Path) -> None:
    stored = real(name, folder)
    told = Provenance.capture(
        "tacit statistic a.csv", data_columns=("a",), data_categories={"a": ("x", "y")}
    ).to_dict()
    stored["provenance"] = json.loads(json.dumps(told))
    load(stored)
    for path in objects(stored):
        for value in (SECRET, [SECRET], {"of": SECRET}):
            changed = copy.deepcopy(stored)
            at(changed, path)["smuggled"] = value
            for read in (load, consistent_form):
                with pytest.raises(ValueError, match=r"\w+: ") as refused:
                    read(changed)
                assert SECRET not in str(refused.value), path


def test_every_format_that_is_read_has_a_real_file(folder: Path) -> None:
    kinds = {real(name, folder).get("format", real(name, folder).get("kind")) for name in MAKERS}
    # those two certify nothing; their own tests write them
    assert set(READERS) - kinds == {"tacit.inversion", "tacit.features"}


@pytest.mark.parametrize("name", ["codes", "quotients"])
@pytest.mark.parametrize(
    "pair",
    [
        ["prompts", SECRET], ["length", "34"], ["model", SECRET], ["layer", SECRET], ["layer", 1],
        ["texts", "0" * 64], ["bank", "0" * 64], ["model", "0" * 64], ["model"], "model", None,
    ],
    ids=str,
)  # fmt: skip
def test_an_origin_is_of_public_parts_alone(name: str, pair: Any, folder: Path) -> None:
    stored = real(name, folder)
    assert {what for what, _ in stored["origin"]} >= {"model", "served", "layer", "calibration"}
    stored["origin"].append(pair)
    stored["form"]["digests"].append(pair)
    for read in (load, consistent_form):
        with pytest.raises(ValueError, match=r"\w+: ") as refused:
            read(stored)
        assert SECRET not in str(refused.value)
