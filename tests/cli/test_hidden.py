"""The commands on hidden states, in this process, on a small random model written to disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from tests.cli.small_model import CUT, write_model, write_texts  # noqa: E402
from tests.cli_runner import Tacit, in_process, refused  # noqa: E402


@pytest.fixture
def tacit(capsys: pytest.CaptureFixture[str]) -> Tacit:
    return in_process(capsys)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """A model and texts, as flags."""
    folder = tmp_path_factory.mktemp("given")
    write_model(folder / "model", seed=0)
    write_texts(folder / "text.txt", seed=1)
    return ("--model", str(folder / "model"), "--texts", str(folder / "text.txt"), *CUT)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_an_audit_writes_a_report_and_strict_json(
    tacit: Tacit, given: tuple[str, ...], tmp_path: Path
) -> None:
    report = tmp_path / "out.html"
    sizes = ("--bank", "300", "--calibration", "600", "--prompts", "100")
    limits = ("--max-attack", "0.9", "--min-agreement", "0.1", "--codewords", "8,16")
    asked = ("audit", "model", "--layer", "1", *given, *sizes, *limits)
    done = tacit(*asked, "--report", report, "--json", "-", "--points", tmp_path / "p.jsonl")
    assert done.code == 0, done.err
    content = json.loads(done.out)
    assert content["kind"] == "hidden-audit"
    assert len(content["points"]) == (tmp_path / "p.jsonl").read_text().count("\n")
    page = report.read_text(encoding="utf-8")
    assert "<h1>Store" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    path = tmp_path / "audit.json"
    path.write_text(done.out, encoding="utf-8")
    assert tacit("gate", path, "--max-attack", "0.9").code == 0
    assert tacit("gate", path, "--max-attack", "0.0001").code == 1


def test_a_release_holds_no_clean_state_and_is_attacked(
    tacit: Tacit, given: tuple[str, ...], tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    sizes = ("--bank", "100", "--calibration", "300")
    noisy, clean = tmp_path / "noisy.safetensors", tmp_path / "clean.safetensors"
    done = tacit(
        "hidden", "release", "--layer", "1", *given, *sizes, "--kl-budget", "0.01",
        "--out", noisy, "--clean", clean, "--json", "-",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert json.loads(done.out)["guarantee"]["type"] == "RenyiDP"
    states, truth = load_file(noisy)["states"], load_file(clean)["states"]
    assert states.shape == truth.shape
    assert not (states == truth).all(dim=1).any()
    found = tacit("hidden", "attack", noisy, "--layer", "1", *given, *sizes, "--json", "-")
    assert found.code == 0, found.err
    assert json.loads(found.out)["top1"] > 0.5
    alone = tmp_path / "alone"
    alone.mkdir()
    tacit("hidden", "release", "--layer", "1", *given, *sizes, "--out", alone / "n.safetensors")
    assert [path.name for path in alone.iterdir()] == ["n.safetensors"]


def test_geometry_sweep_and_codebook_speak_json(
    tacit: Tacit, given: tuple[str, ...], tmp_path: Path
) -> None:
    measured = tacit(
        "hidden", "geometry", "--layer", "1", *given, "--calibration", "300", "--json", "-"
    )
    assert measured.code == 0, measured.err
    assert len(json.loads(measured.out)["spectrum"]) == 16
    sizes = ("--bank", "200", "--calibration", "300")
    swept = tacit(
        "hidden", "sweep", "--layers", "1", "--mechanisms", "isotropic,argmax", "--kl-budgets",
        "0.1", "--codewords", "8", "--prompts", "80", *given, *sizes, "--json", "-",
    )  # fmt: skip
    assert swept.code == 0, swept.err
    # noise is read in three ways, the likeliest token in two
    assert len(json.loads(swept.out)) == 5
    out = tmp_path / "book.safetensors"
    fitted = tacit(
        "hidden", "codebook", "--layer", "1", "--codewords", "8", "--metric", "euclidean",
        "--out", out, *given, *sizes, "--json", "-",
    )  # fmt: skip
    assert fitted.code == 0, fitted.err
    assert json.loads(fitted.out)["success"]["success"] <= 8 / 200 + 1e-12
    assert out.exists()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("hidden", "geometry", "--layer", "1", "--texts", "missing.txt"), ("--texts", "missing")),
        (("hidden", "geometry", "--layer", "one"), ("--layer",)),
        (("hidden", "geometry", "--layer", "1", "--wrong", "2"), ("--wrong",)),
        (("hidden", "geometry", "--layer", "1", "--calibration", "0"), ("--calibration",)),
        (("hidden", "sweep", "--layers", "1,x"), ("--layers",)),
        (("audit", "model", "--layer", "1", "--codewords", "a"), ("--codewords",)),
        (
            ("hidden", "release", "--layer", "1", "--kl-budget", "nan", "--out", "x.safetensors"),
            ("--kl-budget",),
        ),
        (("hidden", "release", "--layer", "1", "--out", "no/such/folder"), ("--out",)),
        (("hidden", "attack", "missing.safetensors", "--layer", "1"), ("missing",)),
        (("audit", "model", "--layer", "1", "--max-attack", "nan"), ("max_attack",)),
        (("audit", "model", "--layer", "1", "--protocol", "C"), ("protocol",)),
        (("audit", "model", "--layer", "1", "--report", "no/such/x.html"), ("--report",)),
    ],
)
def test_bad_input_is_one_sentence(
    tacit: Tacit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...], parts: tuple[str, ...],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    refused(tacit(*arguments), *parts)
    assert list(tmp_path.iterdir()) == []


def test_a_layer_the_model_lacks_is_refused(tacit: Tacit, given: tuple[str, ...]) -> None:
    refused(tacit("hidden", "geometry", "--layer", "9", *given, "--calibration", "50"), "layer")
