"""What a file was made with is filled in from it, and anything else is refused by its flag."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from safetensors import safe_open  # noqa: E402

from tacit import codec  # noqa: E402
from tacit.hidden_states import Codebook, Origin  # noqa: E402
from tacit.releases import load_rows  # noqa: E402
from tests.cli.small_model import CUT, write_model, write_texts  # noqa: E402
from tests.cli_runner import Tacit, refused  # noqa: E402

SIZES = ("--bank", "100", "--calibration", "300")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, two texts, and a release whose noise hides nothing."""
    place = tmp_path_factory.mktemp("made")
    write_model(place / "model", seed=0)
    write_model(place / "other", seed=1)
    write_texts(place / "text.txt", seed=1)
    write_texts(place / "others.txt", seed=2)
    return place


@pytest.fixture(scope="module")
def made(folder: Path) -> Path:
    from tacit.cli import run

    out = folder / "noisy.safetensors"
    arguments = (
        "hidden", "release", "--layer", "1", "--model", folder / "model", "--texts",
        folder / "text.txt", *CUT, *SIZES, "--kl-budget", "0.001", "--out", out,
        "--clean", folder / "clean.safetensors", "--publish", folder / "public.safetensors",
    )  # fmt: skip
    assert run([str(argument) for argument in arguments]) == 0
    return out


def test_an_attack_needs_the_file_alone(tacit: Tacit, made: Path) -> None:
    done = tacit("hidden", "attack", made, "--json", "-")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["attack"]["success"]["value"] > 0.9
    assert (found["about"], found["digest"]) == load_rows(made).digests[0]
    assert found["measured"]["top10"] >= found["attack"]["success"]["value"]


def test_the_gate_judges_an_attack_with_the_release_that_it_is_on(
    tacit: Tacit, made: Path, folder: Path, tmp_path: Path
) -> None:
    path, page = tmp_path / "attack.json", tmp_path / "attack.html"
    assert tacit("hidden", "attack", made, "--json", path, "--report", page).code == 0
    content = json.loads(path.read_text())
    success = content["attack"]["success"]
    # its page is the release's, with the attack; tacit show reads its file
    assert f"{content['attack']['name']}" in page.read_text("utf-8")
    shown = tacit("show", path)
    assert f"{success['value']:.1%} of the time" in shown.out
    assert content["digest"][:12] in shown.out
    top = success["high"]
    gate = ("gate", made, "--max-attack")
    alone = tacit(*gate, "1")
    assert alone.code == 1
    assert "no attack was run" in alone.out
    assert tacit(*gate, "1", path).code == 0
    assert tacit(*gate, str(top - 1e-6), path).code == 1
    # the published file has the same states and no origin
    assert tacit("gate", path, folder / "public.safetensors", "--max-attack", "1").code == 0
    path.write_text(json.dumps({**content, "digest": "0" * 64}))
    other = tacit(*gate, "1", path, "--json", "-")
    assert other.code == 2
    (_, refusal) = json.loads(other.out)["releases"]
    assert "000000000000…, which no release given beside it has" in refusal["refusal"]
    refused(tacit("gate", path, "--max-attack", "1"), "which no release given beside it has")
    for wrong in ({**success, "value": 2.0}, {**success, "low": 0.4, "value": 0.5, "high": 0.5}):
        attack = {**content["attack"], "success": wrong}
        path.write_text(json.dumps({**content, "attack": attack}))
        refused(tacit("gate", path, "--max-attack", "1"), "attack.success")


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--seed", "2"),
        ("--bank", "101"),
        ("--calibration", "301"),
        ("--layer", "2"),
        ("--length", "5"),
        ("--model", "other"),
        ("--texts", "others.txt"),
    ],
)
def test_a_flag_that_differs_is_refused_by_its_name(
    tacit: Tacit, folder: Path, made: Path, flag: str, value: str
) -> None:
    given = str(folder / value) if flag in ("--model", "--texts") else value
    outcome = tacit("hidden", "attack", made, flag, given)
    # notes on the prompts may stand before the sentence
    sentence = outcome.err.splitlines(keepends=True)[-1]
    refused(replace(outcome, err=sentence), flag, made.name)


@pytest.fixture(scope="module")
def of_prompts(folder: Path) -> Path:
    """A release of prompts in a column, and files of the same form with others."""
    from tacit.cli import run

    for name, texts in (("own", "text.txt"), ("public", "others.txt")):
        lines = [" ".join(line.split()[:7]) for line in (folder / texts).read_text().splitlines()]
        rows = [json.dumps({"question": line, "prompt": line}) for line in lines]
        (folder / f"{name}.jsonl").write_text("\n".join(rows))
        (folder / f"{name}-less.jsonl").write_text("\n".join(rows[1:]))
    out = folder / "prompts.safetensors"
    arguments = (
        "hidden", "release", "--layer", "1", "--model", folder / "model", "--prompts",
        folder / "own.jsonl", "--column", "question", "--longest", "8", "--public-texts",
        folder / "public.jsonl", *SIZES, "--kl-budget", "0.001", "--out", out,
    )  # fmt: skip
    assert run([str(argument) for argument in arguments]) == 0
    return out


def test_an_attack_on_prompts_needs_the_file_alone(tacit: Tacit, of_prompts: Path) -> None:
    done = tacit("hidden", "attack", of_prompts, "--json", "-")
    assert done.code == 0, done.err
    assert json.loads(done.out)["attack"]["success"]["value"] > 0.9


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--prompts", "own-less.jsonl"),
        ("--public-texts", "public-less.jsonl"),
        ("--column", "prompt"),
        ("--longest", "9"),
        ("--chat-template", None),
        ("--dtype", "stored"),
        ("--held-out", "5"),
        ("--texts", "text.txt"),
        ("--model", "other"),
    ],
)
def test_a_flag_of_prompts_that_differs_is_refused_by_its_name(
    tacit: Tacit, folder: Path, of_prompts: Path, flag: str, value: str | None
) -> None:
    paths = ("--prompts", "--public-texts", "--texts", "--model")
    given = () if value is None else (str(folder / value) if flag in paths else value,)
    outcome = tacit("hidden", "attack", of_prompts, flag, *given)
    sentence = outcome.err.splitlines(keepends=True)[-1]
    refused(replace(outcome, err=sentence), flag, of_prompts.name)


def test_the_same_flags_and_copies_of_the_same_things_are_taken(
    tacit: Tacit, folder: Path, made: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder / "model", tmp_path / "copy")
    shutil.copy(folder / "text.txt", tmp_path / "copy.txt")
    done = tacit(
        "hidden", "attack", made, "--layer", "1", *CUT, *SIZES,
        "--model", tmp_path / "copy", "--texts", tmp_path / "copy.txt",
    )  # fmt: skip
    assert done.code == 0, done.err


def test_what_is_published_names_no_prompts_and_cannot_be_attacked(
    tacit: Tacit, folder: Path, made: Path
) -> None:
    public, mine = load_rows(folder / "public.safetensors"), load_rows(made)
    assert public.details.origin is public.provenance is None
    assert (public.details.states == mine.details.states).all()
    assert public == mine.public()
    digest = mine.details.origin.bank_digest
    assert digest.encode() not in (folder / "public.safetensors").read_bytes()
    refused(tacit("hidden", "attack", folder / "public.safetensors"), "does not say which model")


def test_the_files_of_states_are_releases_for_the_gate(tacit: Tacit, made: Path) -> None:
    outcome = tacit("gate", made, "--max-success", "0.5")
    assert outcome.code == 1
    assert "success" in outcome.out
    content = bytearray(made.read_bytes())
    content[-1] ^= 1
    broken = made.with_name("broken.safetensors")
    broken.write_bytes(bytes(content))
    refused(tacit("gate", broken, "--max-success", "0.5"), "not those that were certified")


def test_clean_states_a_codebook_and_an_audit_name_what_they_are_of(
    tacit: Tacit, folder: Path, made: Path, tmp_path: Path
) -> None:
    origin = load_rows(made).details.origin
    with safe_open(str(folder / "clean.safetensors"), "np") as file:
        clean = json.loads(file.metadata()["origin"])
    assert clean == codec.write(Origin, origin)
    given = ("--model", folder / "model", "--texts", folder / "text.txt", *CUT, *SIZES)
    book = tmp_path / "book.safetensors"
    done = tacit("hidden", "codebook", "--layer", "1", "--metric", "euclidean", "--codewords", "8",
                 "--out", book, *given, "--json", "-")  # fmt: skip
    assert done.code == 0, done.err
    loaded = Codebook.load(book)
    assert loaded.origin is not None
    assert loaded.origin.flags == {"dtype": "float32", "chat_template": False, "longest": None}
    # other sizes draw other windows
    drawn = {"calibration_digest": origin.calibration_digest}
    assert replace(loaded.origin, **drawn) == origin.public
    assert loaded.digest == json.loads(done.out)["digest"]
    assert (origin.bank_digest or "").encode() not in book.read_bytes()
    low, high = json.loads(done.out)["counted"]["calibration_membership"]["interval"]
    assert 0 <= low < high <= 1
    audited = tacit(
        "audit", "model", "--layer", "1", *given, "--codewords", "8", "--measured", "50",
        "--kl-budgets", "1", "--max-attack", "1", "--min-agreement", "0", "--json", "-",
    )  # fmt: skip
    assert audited.code == 0, audited.err
    content = json.loads(audited.out)
    made = dict(content["digests"])
    assert made["model"] == origin.model_digest
    # what is written about prompts names none of them, not even by a digest
    assert set(made) <= {"model", "served", "layer", "calibration", "longest"}
    assert (origin.bank_digest or "") not in audited.out
