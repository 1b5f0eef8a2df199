"""``tacit hidden quotient`` in this process, on a small random model written to disk."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from tacit.hidden_states import PredictiveQuotient  # noqa: E402
from tacit.releases import load_rows  # noqa: E402
from tests.cli.small_model import small_inputs  # noqa: E402
from tests.cli_runner import Tacit, refused  # noqa: E402

DRAWN = ("--bank", "50", "--calibration", "120")
SIZES = (*DRAWN, "--epochs", "1")


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """A model and texts, as flags."""
    return ("hidden", "quotient", *small_inputs(tmp_path_factory.mktemp("given")))


def test_a_quotient_is_fitted_released_counted_shown_and_gated(
    tacit: Tacit, given: tuple[str, ...], tmp_path: Path
) -> None:
    book, out, released = (tmp_path / name for name in ("l.db", "q.safetensors", "z.safetensors"))
    assert (
        tacit("ledger", "budget", "--ledger", book, "--secret", "prompts", "--leakage", "5").code
        == 0
    )
    paying = ("--ledger", book, "--secret", "prompts", "--release-out", released)
    asked = (*given, "--layer", "1", *SIZES, "--dimension", "2", "--nats", "3")
    done = tacit(*asked, "--out", out, *paying, "--json", tmp_path / "z.json")
    assert done.code == 0, done.err
    assert "by at most 20.09 (" in done.out
    assert "an estimate from a sample, not a bound" in done.out
    assert "of 12 public prompts that were not fitted on" in done.out
    assert "told nothing" in done.out
    found = load_rows(released)
    held = PredictiveQuotient.load(out)
    assert found.details.quotients.shape == (50, 2)
    assert dict(found.digests)["quotient"] == held.digest
    assert not found.reproducible
    assert found.provenance is None
    assert tacit("show", released).code == 0
    for place in (released, tmp_path / "z.json"):
        assert tacit("gate", place, "--max-nats", "3").code == 0
        assert tacit("gate", place, "--max-nats", "2.9").code == 1
    # 5 nats were there, of which 3 are spent
    again = (*given, "--layer", "1", *DRAWN, "--fitted", out)
    refusal = tacit(*again, *paying[:-1], tmp_path / "more.safetensors")
    assert refusal.code == 2
    assert "prompts" in refusal.err
    assert not (tmp_path / "more.safetensors").exists()
    free = tacit(*again, "--release-out", tmp_path / "more.safetensors", "--json", "-")
    assert free.code == 0, free.err
    assert ["quotient", held.digest] in json.loads(free.out)["digests"]


def test_a_fit_alone_says_what_is_proven_and_what_is_estimated(
    tacit: Tacit, given: tuple[str, ...], tmp_path: Path
) -> None:
    done = tacit(
        *given, "--layer", "2", *SIZES, "--reads", "behaviours", "--measure", "information",
        "--nats", "2", "--out", tmp_path / "q.safetensors", "--json", "-",
    )  # fmt: skip
    assert done.code == 0, done.err
    content = json.loads(done.out)
    assert content["information"]["nats"] == pytest.approx(2.0, rel=1e-6)
    assert content["leakage"]["nats"] > 2.0
    assert "evidence" not in content["estimated"]
    assert PredictiveQuotient.load(tmp_path / "q.safetensors").reads == "behaviours"


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ((), "--out: "),
        (("--out", "q", "--fitted", "p"), "--out: "),
        (("--out", "q", "--dry-run"), "--release-out: "),
        (("--out", "q", "--dimension", "0"), "--dimension: "),
        (("--out", "q", "--nats", "-1"), "--nats: "),
        (("--out", "q", "--measure", "bits"), "--measure: "),
        (("--out", "q", "--reads", "tokens"), "--reads: "),
        (("--out", "q", "--release-out", "q"), "--out"),
        (("--fitted", "nothing.safetensors", "--release-out", "z"), "--fitted: "),
        (("--fitted", "p", "--nats", "0.5"), "--nats: expected none beside --fitted"),
        (("--fitted", "p", "--measure", "leakage"), "--measure: expected none beside --fitted"),
    ],
)
def test_bad_flags_write_nothing(
    tacit: Tacit, given: tuple[str, ...], tmp_path: Path, flags: tuple[str, ...], named: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    refused(tacit(*given, "--layer", "1", *DRAWN, *flags), named)
    assert list(tmp_path.iterdir()) == []


def test_another_layer_is_refused(tacit: Tacit, given: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "q.safetensors"
    assert tacit(*given, "--layer", "1", *SIZES, "--out", out).code == 0
    released = ("--release-out", tmp_path / "z.safetensors")
    done = tacit(*given, "--layer", "2", *DRAWN, "--fitted", out, *released)
    assert done.code == 2
    assert "is of layer 1 of" in done.err
    assert not released[1].exists()


def test_released_quotients_are_attacked_and_read(
    tacit: Tacit, given: tuple[str, ...], tmp_path: Path
) -> None:
    lines = [f"w{i % 30} w{(7 * i) % 30} w{(3 * i) % 29}" for i in range(40)] + ["", "w0 w0 w0"]
    own, public = tmp_path / "own.txt", tmp_path / "public.txt"
    own.write_text("\n".join(lines) + "\n")
    public.write_text("\n".join(f"w{i % 29} w{(5 * i) % 30}" for i in range(80)))
    fitted, out = tmp_path / "q.safetensors", tmp_path / "r.safetensors"
    done = tacit("hidden", "quotient", "--layer", "1", "--model", given[3], "--prompts", own,
                 "--public-texts", public, "--epochs", "2", "--nats", "12", "--out", fitted,
                 "--release-out", out)  # fmt: skip
    assert done.code == 0, done.err
    asked = ("hidden", "attack", out, "--fitted", fitted, "--prompts", own, "--json", "-")
    found = tacit(*asked)
    assert found.code == 0, found.err
    content = json.loads(found.out)
    # a prompt that repeats is one candidate, and every row is attacked
    attack = content["attack"]
    assert (attack["trials"], attack["prior"]) == (42, 1 / len({*lines}))
    assert (content["about"], content["digest"]) == load_rows(out).digests[0]
    assert attack["success"]["value"] > 2 / 41
    decoded = tmp_path / "d.npy"
    read = tacit("hidden", "decode", out, "--fitted", fitted, "--out", decoded)
    assert read.code == 0, read.err
    rows = PredictiveQuotient.load(fitted).distributions(load_rows(out).details.quotients)
    np.testing.assert_allclose(np.load(decoded), rows.numpy())
    refused(tacit("hidden", "attack", out, "--fitted", fitted), "--prompts")
    refused(tacit("hidden", "attack", out, "--fitted", own, "--prompts", own), "--fitted")
    refused(tacit("hidden", "decode", out, "--out", decoded, "--force"), "--codebook", "--fitted")
    for command in (("hidden", "decode", out, "--codebook", fitted, "--out", decoded, "--force"),
                    ("attack", "invert", "--layer", "1", "--model", given[3], "--codebook",
                     fitted)):  # fmt: skip
        refused(tacit(*command), "--codebook", "hidden attack RELEASED --fitted")
    short = tmp_path / "short.txt"
    short.write_text("w1\n")
    refused(tacit(*asked[:5], "--prompts", short), "--prompts", "42")
