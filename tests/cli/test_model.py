"""``tacit model train``: a folder that every command takes, from one line."""

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.cli_runner import refused

SIZES = ("--width", 16, "--depth", 2, "--heads", 2, "--context", 8, "--batch", 4,
         "--vocabulary", 270, "--steps", 2)  # fmt: skip


@pytest.fixture
def text(tmp_path):
    place = tmp_path / "text.txt"
    place.write_text("".join(f"Sentence {i % 31} says {i % 7}.\n" for i in range(300)), "utf-8")
    return place


def test_a_model_with_a_split_state_is_trained_and_loads(tacit, tmp_path, text):
    from tacit.models import load

    out, told = tmp_path / "model", tmp_path / "told.json"
    found = tacit(
        "model", "train", text, "--out", out, *SIZES, "--architecture", "split-memory",
        "--trunk-width", 4, "--jacobian", 0.001, "--depletion", 0.1, "--json", told,
    )  # fmt: skip
    assert found.code == 0, found.err
    assert "perplexity" in found.out
    assert load(out).network.config.trunk_width == 4
    recipe = json.loads(told.read_text("utf-8"))
    names = [(each["name"], each["layers"]) for each in recipe["penalties"]]
    assert names == [("jacobian", [1]), ("margin-depletion", [1])]
    again = tacit("model", "train", text, "--out", out, *SIZES)
    refused(again, "out: expected a folder that does not exist yet")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--jacobian", 0.1), "--jacobian: expected --architecture split-memory"),
        (("--jacobian", -1), "--jacobian: expected a finite number >= 0"),
        (("--probe-layers", "1"), "--probe-layers: expected --jacobian or --depletion beside it"),
        (("--architecture", "rnn"), "--architecture: expected one of"),
        (("--precision", "double"), "--precision: expected one of"),
        (("--preset", "phone"), "--preset: expected one of"),
        (("--depletion", 1, "--probe-layers", "9"), "penalties: expected layers 1 … 2, got 9"),
        (("--minutes", 1), "--steps: expected at most one of steps, passes and minutes"),
    ],
)
def test_bad_flags_get_a_sentence_and_write_nothing(tacit, tmp_path, text, flags, words):
    out = tmp_path / "model"
    refused(tacit("model", "train", text, "--out", out, *SIZES, *flags), words)
    assert not out.exists()


def test_the_same_command_gives_the_same_model_whatever_the_clock_says(
    tacit, tmp_path, text, monkeypatch
):
    """A clock that jumps decides nothing: neither the precision nor a weight."""
    import random
    import time

    digests, source = [], random.Random(1)
    for name in ("one", "other"):
        out, told = tmp_path / name, tmp_path / f"{name}.json"
        assert tacit("model", "train", text, "--out", out, *SIZES, "--json", told).code == 0
        digests.append((out / "model.safetensors").read_bytes())
        monkeypatch.setattr(time, "perf_counter", lambda: 1e6 * source.random())
    assert digests[0] == digests[1]
    out, told = tmp_path / "float", tmp_path / "float.json"
    asked = tacit(
        "model", "train", text, "--out", out, *SIZES, "--precision", "float32", "--json", told
    )
    assert asked.code == 0
    assert json.loads(told.read_text("utf-8"))["precision"] == "float32"
