"""``tacit hidden features`` in this process, on a small random model written to disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from tacit.hidden_states import FeatureStudy, Transcoder  # noqa: E402
from tests.cli.small_model import small_inputs  # noqa: E402
from tests.cli_runner import Tacit, refused  # noqa: E402

SIZES = ("--bank", "30", "--calibration", "60", "--scored", "30")
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
    content = json.loads(told.read_text("utf-8"))
    del content["provenance"]
    assert FeatureStudy.from_dict(content).bank == 30
    assert "certifies nothing" in page.read_text("utf-8")
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
        (("--reads", "attention"), "--reads: expected one of"),
        (("--threshold", "0"), "--threshold"),
        (("--bank", "3"), "--bank: expected an integer >= 4"),
    ):
        refused(tacit(*given, *flags), words)
