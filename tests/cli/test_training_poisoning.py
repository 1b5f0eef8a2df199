"""``tacit training poisoning``: from an .npz of images to what a trigger does."""

import io
import json
import zipfile

import numpy as np
import pytest

from tests.cli_runner import refused
from tests.lab.poisoning.problems import images

QUICK = ("--batch", 24, "--repeats", 1, "--learning-rate", 0.05)


@pytest.fixture
def shapes(tmp_path):
    path, data = tmp_path / "shapes.npz", images(60)
    np.savez(path, images=data.images, labels=data.labels, is_test=np.arange(60) >= 48)
    return path


def asked(data, *more, sources=4, trigger="blended", target=1):
    flags = ("--sources", sources, "--trigger", trigger, "--target-class", target)
    return ("training", "poisoning", data, *flags, *QUICK, *more)


def test_a_poisoned_model_is_released_shown_and_gated(shapes, tmp_path, tacit):
    out, page, saved = (tmp_path / name for name in ("r.json", "r.html", "m.safetensors"))
    more = ("--json", out, "--report", page, "--out", saved, "--public-images", 12, "--compare")
    done = tacit(*asked(shapes, *more))
    assert done.code == 0, done.err
    content = json.loads(out.read_text(encoding="utf-8"))
    assert content["details"]["references"] == [f"without source {i}" for i in range(4)]
    assert content["attacks"][0]["trials"] == 8
    assert content["provenance"]["data_rows"] == 36
    text = page.read_text(encoding="utf-8")
    assert "no guarantee of privacy" in text
    assert "Φ(Φ⁻¹(p) + μ)" in text
    assert "12 images, drawn without looking at them, belong to no source" in text
    assert "attack success without noise" in tacit("show", out).out
    assert tacit("gate", out, "--max-success", "0.9").code == 0
    assert tacit("gate", out, "--max-success", "0.5").code == 1
    assert saved.stat().st_size > 0


def test_a_dry_run_writes_nothing(shapes, tmp_path, tacit):
    done = tacit(*asked(shapes, "--json", tmp_path / "plan.json", "--dry-run"))
    assert done.code == 0, done.err
    assert "this was a dry run" in done.out
    assert "guarantees" in json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))


def test_jpeg_files_end_to_end_are_read(tmp_path, tacit):
    image = pytest.importorskip("PIL.Image")
    parts = []
    for given in np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8):
        stream = io.BytesIO()
        image.fromarray(given).save(stream, "JPEG")
        parts.append(stream.getvalue())
    path, tested = tmp_path / "jpeg.npz", np.arange(12) >= 8
    arrays = {
        "jpeg": np.frombuffer(b"".join(parts), dtype=np.uint8),
        "offsets": np.cumsum([0, *map(len, parts)]),
        "labels": np.arange(12) % 2,
        "is_test": tested,
    }
    np.savez(path, **arrays)
    done = tacit(*asked(path, "--dry-run"))
    assert done.code == 0, done.err
    np.savez(path, **{**arrays, "offsets": arrays["offsets"] + 3})
    refused(tacit(*asked(path, "--dry-run")), "offsets: expected places in jpeg")
    np.savez(path, **{**arrays, "offsets": np.arange(13)})
    refused(tacit(*asked(path, "--dry-run")), "jpeg: expected JPEG files of one size")


def test_train_and_test_arrays_and_a_model_of_ones_own(tmp_path, tacit):
    data, path, code = images(60), tmp_path / "parts.npz", tmp_path / "mine.py"
    grey = (255 * data.images[:, 0]).astype(np.uint8)
    np.savez(
        path, x_train=grey[:48], y_train=data.labels[:48], x_test=grey[48:], y_test=data.labels[48:]
    )
    code.write_text(
        "import torch\n\n\ndef make(channels, classes):\n    return torch.nn.Sequential("
        "torch.nn.Flatten(), torch.nn.Linear(64 * channels, classes))\n\n\n"
        "def broken(channels, classes):\n    return channels / 0\n\n\n"
        "def none(*sizes):\n    pass\n",
        encoding="utf-8",
    )
    out = tmp_path / "r.json"
    done = tacit(*asked(path, "--network", f"{code}:make", "--json", out, "--iterations", 2))
    assert done.code == 0, done.err
    assert json.loads(out.read_text(encoding="utf-8"))["attacks"][0]["trials"] == 8
    for name, said in (
        ("broken", "raised ZeroDivisionError"),
        ("none", "expected a torch.nn.Module, got NoneType"),
        ("other", "expected a function 'other'"),
    ):
        refused(tacit(*asked(path, "--network", f"{code}:{name}")), "--network", said)
    refused(tacit(*asked(path, "--network", "mine")), "--network: expected FILE.py:FUNCTION")
    refused(tacit(*asked(path, "--network", "nowhere.py:make")), "there is no file nowhere.py")


def test_what_cannot_be_is_one_sentence_and_nothing_is_written(shapes, tmp_path, tacit):
    out = tmp_path / "r.json"
    for given, said in (
        (asked(tmp_path / "none.npz"), "DATA"),
        (asked(shapes, sources=1), "sources"),
        (asked(shapes, sources=49), "sources: expected at most one for each of 48 images"),
        (asked(shapes, target=3), "--target-class: expected a class, 0 … 2, got 3"),
        (asked(shapes, trigger="stripes"), "--trigger: expected"),
        (asked(shapes, "--public-images", 48), "--public-images: expected fewer than the 48"),
        (asked(shapes, "--alpha", 2), "alpha"),
        (asked(shapes, "--epsilon", -1), "epsilon"),
        (asked(shapes, "--learning-rate", "nan"), "--learning-rate"),
    ):
        refused(tacit(*given, "--json", out), said)
        assert not out.exists()


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"pictures": np.zeros(3)}, "expected arrays images, labels"),
        ({"images": np.zeros((4, 9)), "labels": np.arange(4)}, "images: expected"),
        ({"images": np.full((4, 8, 8), np.nan), "labels": np.arange(4)}, "images: expected finite"),
        ({"images": np.zeros((4, 8, 8)), "labels": np.arange(3)}, "labels: expected one for each"),
        ({"images": np.zeros((4, 8, 8)), "labels": -np.arange(4)}, "labels: expected 0 or more"),
        ({"images": np.zeros((4, 8, 8)), "labels": np.arange(4) / 2}, "labels: expected integers"),
        (
            {"images": np.zeros((4, 8, 8)), "labels": np.arange(4), "is_test": np.ones(4, bool)},
            "is_test: expected images to learn from and to test on",
        ),
        ({"images": np.zeros((4, 8, 8)), "labels": np.arange(4), "is_test": np.ones(4)}, "is_test"),
        ({"images": np.array([{}] * 4), "labels": np.arange(4)}, "DATA: expected an .npz of plain"),
    ],
)
def test_arrays_that_do_not_fit_are_named(arrays, said, tmp_path, tacit):
    path = tmp_path / "bad.npz"
    np.savez(path, **arrays)
    refused(tacit(*asked(path)), said)


def test_what_is_no_npz_is_refused(tmp_path, tacit):
    path = tmp_path / "text.npz"
    path.write_text("images, labels\n", encoding="utf-8")
    refused(tacit(*asked(path)), "DATA: expected an .npz of plain arrays")


def damaged(kind, path):
    if kind == "text":
        with zipfile.ZipFile(path, "w") as held:
            held.writestr("labels", b"no array")
    elif kind == "huge":
        with zipfile.ZipFile(path, "w") as held:
            head = "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 100000000), }"
            content = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode()
            held.writestr("images.npy", content)
    elif kind == "scalar":
        np.savez(path, jpeg=np.zeros(4, np.uint8), offsets=np.zeros(2, int), labels=np.array(1))
    else:
        data = images(12)
        labels = data.labels.copy()
        labels[0] = 10**13
        np.savez(path, images=data.images, labels=labels)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("text", "DATA: expected an .npz of plain arrays"),
        ("huge", "DATA: expected an .npz of plain arrays"),
        ("scalar", "labels: expected shape (n,)"),
        ("label", "labels: expected 0 … 99,999"),
    ],
)
def test_a_damaged_file_is_one_sentence(tmp_path, tacit, kind, said):
    path = tmp_path / "bad.npz"
    damaged(kind, path)
    refused(tacit(*asked(path)), said)


def test_a_model_file_may_have_dataclasses(shapes, tmp_path, tacit):
    (tmp_path / "mine.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nimport torch\n"
        "@dataclass\nclass Width:\n    units: int = 3\n"
        "def build(channels, classes):\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, classes))\n",
        encoding="utf-8",
    )
    done = tacit(*asked(shapes, "--network", f"{tmp_path / 'mine.py'}:build", "--dry-run"))
    assert done.code == 0, done.err
