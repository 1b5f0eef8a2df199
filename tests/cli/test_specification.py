"""``tacit specification``: made of pictures and texts, paid for, shown, compared, refused."""

import csv
import json

import numpy as np
import pytest

pytest.importorskip("torch")

from tacit import Ledger
from tacit.gate import Policy, check_release
from tacit.specifications import read_specification
from tests.cli_runner import refused

COUNT = 24


@pytest.fixture
def pictures(tmp_path):
    """Two kinds of pictures: bars across and bars down, in noise."""
    rng, labels = np.random.default_rng(0), np.arange(COUNT) % 2
    images = rng.integers(0, 60, size=(COUNT, 28, 28))
    for place, label in enumerate(labels):
        start = int(rng.integers(4, 20))
        held = images[place] if label else images[place].T
        held[start : start + 4] += 180
    place = tmp_path / "bars.npz"
    np.savez(place, inputs=images.astype(np.uint8), labels=labels, numbers=np.eye(2)[labels])
    return place


@pytest.fixture
def texts(tmp_path):
    place = tmp_path / "notes.csv"
    with place.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["note", "kind"])
        for number in range(COUNT):
            rows.writerow([f"def value_{number} return it", ["code", "prose"][number % 2]])
    return place


def test_a_task_finds_its_model(tacit, pictures, tmp_path):
    files = {name: tmp_path / f"{name}.safetensors" for name in ("model", "task", "turned")}
    book = tmp_path / "book.db"
    made = tacit("specification", "make", pictures, "--classes", "across,down", "--out",
                 files["model"], "--epsilon", 4, "--label", "numbers", "--ledger", book,
                 "--secret", "bars", "--json", tmp_path / "whole.json")  # fmt: skip
    assert made.code == 0, made
    assert "ε = 4" in made.out
    assert "what may be published is model.safetensors and model.json" in " ".join(made.out.split())
    assert Ledger(book).spent("bars").gaussian["replace one record"] > 0
    beside = json.loads((tmp_path / "model.json").read_text())
    assert check_release(beside, Policy(max_success=0.99)).passed
    whole = json.loads((tmp_path / "whole.json").read_text())
    assert beside["details"] == whole["details"]
    assert whole["provenance"]["data_rows"] == COUNT
    assert beside["provenance"] is None
    for name, classes in (("task", "across,down"), ("turned", "down,across")):
        bare = tacit("specification", "make", pictures, "--classes", classes, "--out", files[name],
                     "--label", "numbers", "--task", "--unprotected")  # fmt: skip
        assert bare.code == 0, bare
        assert "none of it may be published" in " ".join(bare.out.split())
    shown = tacit("specification", "show", files["model"], "--json", "-")
    told = json.loads(shown.out)
    assert told["revision"] == read_specification(files["model"]).revision
    assert "certified" in shown.err
    found = tacit("specification", "compare", files["task"], files["turned"], files["model"],
                  "--json", "-")  # fmt: skip
    ranked = json.loads(found.out)
    expected = read_specification(files["task"]).cosine(read_specification(files["model"]))
    by_name = {match["name"]: match["similarity"] for match in ranked["matches"]}
    assert by_name[str(files["model"])] == pytest.approx(expected)
    assert by_name[str(files["turned"])] < 0
    assert ranked["compared"] == 2


def test_texts_of_a_table_are_described(tacit, texts, tmp_path):
    place = tmp_path / "notes.safetensors"
    made = tacit("specification", "make", texts, "--inputs", "note", "--label", "kind",
                 "--classes", "code,prose", "--backbone", "tacit/small", "--epsilon", 2,
                 "--out", place)  # fmt: skip
    assert made.code == 0, made
    assert read_specification(place).guarantees[2].epsilon <= 2


def test_a_dry_run_writes_nothing(tacit, pictures, tmp_path):
    place = tmp_path / "model.safetensors"
    made = tacit("specification", "make", pictures, "--classes", 2, "--epsilon", 1, "--out", place,
                 "--dry-run")  # fmt: skip
    assert made.code == 0, made
    assert "in each of 48 numbers" in made.out
    assert "one deviation of the noise is" in made.out
    assert not place.exists()


def test_a_seed_is_told_of(tacit, pictures, tmp_path):
    place = tmp_path / "model.safetensors"
    made = tacit("specification", "make", pictures, "--classes", 2, "--epsilon", 1, "--out", place,
                 "--insecure-seed", 1)  # fmt: skip
    assert made.code == 0
    assert "none of it may be published" in made.out
    assert read_specification(place).guarantees == ()
    assert not check_release(
        json.loads(place.with_suffix(".json").read_text()), Policy(max_success=1)
    ).passed


def test_a_file_that_is_none_is_named(tacit, tmp_path):
    none, text = tmp_path / "none.safetensors", tmp_path / "text.safetensors"
    text.write_text("no specification", encoding="utf-8")
    refused(tacit("specification", "show", none), f"tacit: {none}: no such file")
    refused(tacit("specification", "compare", text, none), f"tacit: {text}: expected")


MAKE = {"--classes": "2", "--epsilon": "1", "--out": "out.safetensors"}


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"--classes": None}, ["classes: "]),
        ({"--classes": "1"}, ["--classes: "]),
        ({"--classes": "1,2"}, ["model_or_labels", "record 0"]),
        ({"--epsilon": None}, ["--epsilon: "]),
        ({"--epsilon": "0"}, ["--epsilon: "]),
        ({"--epsilon": "nan"}, ["--epsilon: "]),
        ({"--delta": "1"}, ["--delta: "]),
        ({"--out": "out.bin"}, ["--out", ".safetensors"]),
        ({"--out": "-"}, ["--out"]),
        ({"--out": "nowhere/out.safetensors"}, ["--out"]),
        ({"--out": "bars.npz"}, ["--out"]),
        ({"--inputs": "pixels"}, ["data: ", "pixels"]),
        ({"--label": "inputs"}, ["model_or_labels: "]),
        ({"--backbone": "tacit/large"}, ["tacit/large"]),
        ({"--backbone": "tacit/small"}, ["data: expected"]),
        ({"--objective": "both"}, ["--objective: "]),
        ({"--label-source": "outputs"}, ["--label-source: "]),
        ({"--objective": "scatter", "--steps": "2"}, ["--steps: --objective scatter has none"]),
        ({"--steps": "0"}, ["--steps: "]),
        ({"--clip": "0"}, ["--clip: "]),
        ({"--all-numbers": ""}, ["clip: expected a length chosen without looking"]),
        ({"--rank": "2"}, ["--rank", "--all-numbers"]),
        ({"--secret": "bars"}, ["--secret"]),
        ({"--ledger": "book.db"}, ["--secret: expected the name"]),
        ({"--insecure-seed": "-1"}, ["--insecure-seed"]),
        ({"--json": "out.json"}, ["--json"]),
        ({"--unprotected": ""}, ["--epsilon"]),
        (
            {"--unprotected": "", "--epsilon": None, "--certificate": "c.html"},
            ["--certificate: expected none beside --unprotected"],
        ),
    ],
)
def test_bad_flags_are_refused_and_write_nothing(tacit, pictures, changes, parts, monkeypatch):
    monkeypatch.chdir(pictures.parent)
    flags = {name: value for name, value in (MAKE | changes).items() if value is not None}
    before = sorted(pictures.parent.iterdir())
    words = [word for pair in flags.items() for word in pair if word]
    refused(tacit("specification", "make", "bars.npz", *words), *parts)
    assert sorted(pictures.parent.iterdir()) == before


def test_what_exists_is_kept_unless_forced(tacit, pictures, tmp_path):
    place = tmp_path / "model.safetensors"
    words = ["specification", "make", pictures, "--classes", 2, "--unprotected", "--out", place]
    assert tacit(*words).code == 0
    held = place.read_bytes()
    refused(tacit(*words), "--out", "--force")
    assert place.read_bytes() == held
    assert tacit(*words, "--force").code == 0


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x04.", b"\xff" * 100, None])
def test_files_that_are_none_are_refused(tacit, content, tmp_path):
    place = tmp_path / "file.safetensors"
    if content is not None:
        place.write_bytes(content)
    refused(tacit("specification", "show", place))
    refused(tacit("specification", "compare", place, place))
    (tmp_path / "file.npz").write_bytes(content or b"")
    refused(tacit("specification", "make", tmp_path / "file.npz", "--classes", 2, "--unprotected",
                  "--out", tmp_path / "out.safetensors"), "data: ")  # fmt: skip


def test_objects_in_an_npz_are_never_loaded(tacit, tmp_path):
    place = tmp_path / "objects.npz"
    np.savez(place, inputs=np.array([{"a": 1}] * 4, dtype=object), labels=np.arange(4) % 2)
    refused(tacit("specification", "make", place, "--classes", 2, "--unprotected", "--out",
                  tmp_path / "out.safetensors"), "data: ")  # fmt: skip


def test_other_spaces_are_refused_by_name(tacit, pictures, tmp_path):
    places = [tmp_path / "one.safetensors", tmp_path / "other.safetensors"]
    for place, more in zip(places, ([], ["--all-numbers", "--rank", 2]), strict=True):
        made = tacit("specification", "make", pictures, "--classes", 2, "--unprotected",
                     "--out", place, *more)  # fmt: skip
        assert made.code == 0
    refused(tacit("specification", "compare", *places), "models: ", "subspace")


def test_pictures_of_another_scale_say_theirs(tacit, tmp_path):
    datasets = pytest.importorskip("sklearn.datasets")
    digits = datasets.load_digits()
    place = tmp_path / "digits.npz"
    np.savez(place, inputs=digits.images[:100], labels=digits.target[:100])
    np.savez(tmp_path / "unit.npz", inputs=digits.images[:100] / 16, labels=digits.target[:100])
    make = ("specification", "make", "--classes", "10", "--unprotected", "--out")
    refused(tacit(*make, tmp_path / "a.safetensors", place), "data: ", "--max-pixel")
    refused(tacit(*make, tmp_path / "a.safetensors", place, "--max-pixel", "0"), "--max-pixel")
    refused(tacit(*make, tmp_path / "a.safetensors", place, "--max-pixel", "12"), "data: ")
    assert not (tmp_path / "a.safetensors").exists()
    assert tacit(*make, tmp_path / "a.safetensors", place, "--max-pixel", "16").code == 0
    assert tacit(*make, tmp_path / "b.safetensors", tmp_path / "unit.npz").code == 0
    one, other = (read_specification(tmp_path / f"{name}.safetensors") for name in "ab")
    assert one.inputs == "8 × 8"
    np.testing.assert_array_equal(one.vector, other.vector)
    table = tmp_path / "notes.csv"
    table.write_text("inputs,labels\na,0\nb,1\n")
    refused(tacit(*make, tmp_path / "c.safetensors", table, "--max-pixel", "16"), "--max-pixel")
