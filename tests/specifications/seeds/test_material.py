"""The data at hand: developers' and users' records apart, transforms, folders that hold nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tacit.specifications.seeds import material
from tacit.specifications.seeds.material import DataSet, cut, digits, docstring_set, materials


@pytest.fixture(scope="module", autouse=True)
def read_once() -> Iterator[None]:
    """Read the docstrings of the packages here once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(material, "docstring_set", cache(docstring_set))
        yield


def test_a_users_records_are_none_of_the_developers() -> None:
    made = cut(digits(), (3, 5), "plain")
    mine = {record.tobytes() for record in made.inputs}
    theirs = {record.tobytes() for record in made.user_inputs}
    assert len(mine & theirs) <= 1  # of 1,797 digits two are the same picture at most
    assert np.bincount(made.labels).tolist() == [np.sum(made.labels == 0)] * 2
    assert np.bincount(made.user_labels).tolist() == [50, 50]


def test_labels_follow_the_order_of_the_classes() -> None:
    data_set = digits()
    first, second = cut(data_set, (3, 5), "plain"), cut(data_set, (5, 3), "plain")
    assert first.names == ("3", "5")
    assert second.names == ("5", "3")
    rows = {record.tobytes(): label for record, label in zip(first.inputs, first.labels)}  # noqa: B905
    for record, label in zip(second.inputs, second.labels, strict=True):
        assert rows[record.tobytes()] == 1 - label


def test_transforms_undo_themselves() -> None:
    data_set = digits()
    plain = cut(data_set, (0, 1), "plain").inputs
    assert np.allclose(1 - cut(data_set, (0, 1), "inverted").inputs, plain)
    assert np.array_equal(np.rot90(cut(data_set, (0, 1), "turned").inputs, 3, (2, 3)), plain)
    assert np.array_equal(cut(data_set, (0, 1), "mirrored").inputs[:, :, ::-1], plain)


def test_no_docstring_names_its_package() -> None:
    data_set = material.docstring_set()
    for text, number in zip(data_set.inputs, data_set.classes, strict=True):
        assert data_set.names[number] not in text


def test_a_class_with_few_records_bounds_all() -> None:
    classes = np.array([0] * 90 + [1] * 70)
    data_set = DataSet(
        "digits", "text", "none", "none", ("a", "b"), [str(i) for i in range(160)], classes
    )
    made = cut(data_set, (0, 1), "plain")
    assert np.bincount(made.labels).tolist() == [20, 20]


def test_a_folder_that_holds_none_of_the_sets_adds_nothing(tmp_path: Path) -> None:
    here = [made.name for made in materials(None)]
    assert [made.name for made in materials(tmp_path)] == here
    assert len(set(here)) == len(here) == 20


@pytest.mark.parametrize("name", ["mnist"])
def test_a_folder_with_mnist_adds_its_tasks(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (2000, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / f"{name}.npz", x_train=pictures, y_train=np.arange(2000) % 10)
    added = [made for made in materials(tmp_path) if made.source == name]
    assert [made.names for made in added] == [
        ("3", "8"), ("1", "4", "7"), ("0", "2", "5", "6", "9"),
    ]  # fmt: skip
    assert added[0].inputs.shape[1:] == (3, 32, 32)
