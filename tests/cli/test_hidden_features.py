"""``tacit hidden features`` in this process, on a small random model written to disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from tacit.hidden_states import Transcoder  # noqa: E402
from tacit.releases import load  # noqa: E402
from tests.cli.small_model import small_inputs  # noqa: E402
from tests.cli_runner import Tacit, refused  # noqa: E402

SIZES = ("--bank", "30", "--calibration", "60", "--measured", "30")
TRAINED = ("--features", "48", "--active", "6", "--steps", "20")


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """A model and texts, as flags."""
    flags = small_inputs(tmp_path_factory.mktemp("given"))
    return ("hidden", "features", *flags, "--layer", "1", *SIZES)


def test_features_are_trained_measured_shown_and_never_pass_a_gate_on_information(
    tacit: Tacit, given: tuple[str, ...], tmp_path: Path
) -> None:
    out, page, told = (tmp_path / name for name in ("f.safetensors", "f.html", "f.json"))
    done = tacit(*given, *TRAINED, "--out", out, "--report", page, "--json", told)
    assert done.code == 0, done.err
    assert "certifies nothing" in done.out
    assert Transcoder.load(out).size == 48
    study = load(told)
    assert study.details.bank == 30
    assert study.provenance.data_rows == 30
    assert "certifies nothing" in page.read_text("utf-8")
    assert "Nothing is guaranteed." in page.read_text("utf-8")
    assert "recommended" not in page.read_text("utf-8")
    assert "nothing was drawn that may be published" in page.read_text("utf-8")
    assert tacit("show", told).code == 0
    assert tacit("gate", told, "--max-success", "0.5").code != 0
    again = tacit(*given, "--transcoder", out)
    assert again.code == 0, again.err


def test_flags_that_contradict_each_other_are_refused(
    tacit: Tacit, given: tuple[str, ...], tmp_path: Path
) -> None:
    missing = tmp_path / "none.safetensors"
    for flags, words in (
        (("--transcoder", missing), "cannot read"),
        (("--transcoder", missing, "--steps", "3"), "--transcoder: expected no"),
        (("--transcoder", missing, "--active", "3"), "training beside it, got --active"),
        (("--transcoder", missing, "--preset", "gpu"), "training beside it, got --preset"),
        (("--features", "16"), "--active: expected at most the features there are, 16, got 32"),
        (("--features", "0"), "--features: expected an integer in [1, ∞)"),
        (("--reads", "attention"), "--reads: expected one of"),
        (("--threshold", "0"), "--threshold"),
        (("--bank", "3"), "--bank: expected an integer >= 4"),
    ):
        refused(tacit(*given, *flags), words)
    # four features a number of the state, known once the model is loaded
    many = tacit(*given, "--active", "65")
    assert many.code == 2
    assert "--active: expected at most the features there are, 64, got 65" in many.err


def test_a_study_of_other_kinds_is_refused_by_show_and_gate(
    tacit: Tacit, given: tuple[str, ...], tmp_path: Path
) -> None:
    told = tmp_path / "f.json"
    done = tacit(*given, *TRAINED, "--json", told)
    assert done.code == 0, done.err
    content = json.loads(told.read_text("utf-8"))
    for name, junk in (("named", 5), ("replaced", {}), ("state", [1]), ("scores", None)):
        changed = {**content, "details": {**content["details"], name: junk}}
        told.write_text(json.dumps(changed), "utf-8")
        for command in (("show", told), ("gate", told, "--max-success", "0.5")):
            refused(tacit(*command), "expected")


def test_a_file_with_a_scalar_for_a_bias_is_refused(
    tacit: Tacit, given: tuple[str, ...], tmp_path: Path
) -> None:
    from safetensors.torch import save_file

    path = tmp_path / "scalar.safetensors"
    held = {"W_enc": torch.zeros(4, 16), "b_enc": torch.tensor(1.0), "W_dec": torch.zeros(4, 16),
            "b_dec": torch.zeros(16)}  # fmt: skip
    save_file(held, path)
    refused(tacit(*given, "--transcoder", path), "--transcoder: expected b_enc of 1 dimension")
