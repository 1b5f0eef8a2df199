"""The commands that fit, encode and decode, in this process."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from tacit.cli.hidden.embeddings import divided  # noqa: E402
from tacit.hidden_states import (  # noqa: E402
    Codebook,
    ProductCodebook,
    ResidualCodebook,
    VectorQuantizer,
)
from tacit.models import load, load_encoder  # noqa: E402
from tacit.text import number_up  # noqa: E402
from tests.cli.small_model import (  # noqa: E402
    CUT,
    WORDS,
    write_encoder,
    write_model,
    write_texts,
)
from tests.cli_runner import Tacit, refused  # noqa: E402

ROWS = np.random.default_rng(0).normal(size=(1500, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Public and own vectors, a product codebook of them, and a codebook of behaviours."""
    from tacit.cli import run

    place = tmp_path_factory.mktemp("codec")
    np.save(place / "public.npy", ROWS[:1000])
    np.save(place / "own.npy", ROWS[1000:])
    np.save(place / "wide.npy", np.ones((5, 16), np.float32))
    write_model(place / "model", seed=0, first="w2")
    write_model(place / "other", seed=1)
    write_encoder(place / "encoder", seed=0)
    write_encoder(place / "another", seed=1)
    write_texts(place / "text.txt", seed=1)
    chosen = np.random.default_rng(5)
    lines = [" ".join(chosen.choice(WORDS, chosen.integers(1, 9))) for _ in range(60)]
    (place / "prompts.txt").write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    for arguments in (
        ("hidden", "fit", place / "public.npy", "--parts", "4", "--codewords", "16",
         "--out", place / "product.safetensors"),
        ("hidden", "codebook", "--layer", "1", "--codewords", "8", "--model", place / "model",
         "--texts", place / "text.txt", *CUT, "--bank", "100", "--calibration", "400",
         "--out", place / "behaviour.safetensors"),
        ("hidden", "fit", "--encoder", place / "encoder", "--public-texts", place / "text.txt",
         "--codewords", "8", "--out", place / "encoder.safetensors"),
    ):  # fmt: skip
        assert run([str(argument) for argument in arguments]) == 0
    return place


def test_vectors_are_fitted_encoded_gated_and_decoded(
    tacit: Tacit, folder: Path, tmp_path: Path
) -> None:
    book, codes = folder / "product.safetensors", tmp_path / "codes.safetensors"
    loaded = ProductCodebook.load(book)
    nats = float(np.log(loaded.sizes).sum())
    done = tacit("hidden", "encode", folder / "own.npy", "--codebook", book, "--out", codes,
                 "--json", tmp_path / "codes.json")  # fmt: skip
    assert done.code == 0, done.err
    assert "500 codes, one a row" in done.out
    for file in (codes, tmp_path / "codes.json"):
        assert tacit("gate", file, "--max-information", nats + 1e-6).code == 0
        assert tacit("gate", file, "--max-information", nats - 1e-6).code == 1
    for file in (codes, tmp_path / "codes.json"):
        shown = tacit("show", file)
        assert shown.code == 0, shown.err
        assert "500 codes" in shown.out
    back = tmp_path / "back.npy"
    done = tacit("hidden", "decode", codes, "--codebook", book, "--out", back, "--json", "-")
    assert done.code == 0, done.err
    assert json.loads(done.out)["guarantees"][0]["nats"] == pytest.approx(nats)
    expected = loaded.decode(loaded.assign(ROWS[1000:])).numpy()
    assert (np.load(back) == expected).all()
    refused(tacit("hidden", "decode", codes, "--codebook", book, "--out", back), "--force")
    assert tacit(
        "hidden", "decode", codes, "--codebook", book, "--out", back, "--force"
    ).code == 0  # fmt: skip


def test_vectors_are_summed_of_stages(tacit: Tacit, folder: Path, tmp_path: Path) -> None:
    """The command fits what the estimator does, and says the bits asked and the bits kept."""
    book, codes = tmp_path / "book.safetensors", tmp_path / "codes.safetensors"
    done = tacit("hidden", "fit", folder / "public.npy", "--stages", "3", "--codewords", "64",
                 "--beam", "8", "--seed", "5", "--out", book, "--json",
                 tmp_path / "fit.json")  # fmt: skip
    assert done.code == 0, done.err
    told = json.loads((tmp_path / "fit.json").read_text())
    loaded = ResidualCodebook.load(book)
    assert told["sizes"] == list(loaded.sizes)
    assert told["asked_bits"] == 18.0
    assert told["kept_bits"] == loaded.kept_bits == pytest.approx(np.log2(loaded.sizes).sum())
    assert told["guarantee"]["nats"] == pytest.approx(np.log(loaded.sizes).sum())
    assert max(loaded.sizes) <= 64
    kept = " · ".join(str(size) for size in loaded.sizes)
    assert f"{kept} of the 3 × 64 asked for" in done.out
    assert f"{number_up(loaded.kept_bits, 4)} kept of the 18 asked for" in done.out
    public = np.load(folder / "public.npy")
    coder = VectorQuantizer(64, stages=3, beam=8, random_state=5).fit(
        public[divided(len(public), 100_000, 5)[0]]
    )
    assert coder.codebook_.digest == loaded.digest == told["digest"]
    done = tacit("hidden", "encode", folder / "own.npy", "--codebook", book, "--out", codes)
    assert done.code == 0, done.err
    said = f"{number_up(loaded.kept_bits, 4)} bits of the 18 asked for"
    assert said in " ".join(done.out.split())
    nats = float(np.log(loaded.sizes).sum())
    assert tacit("gate", codes, "--max-information", nats + 1e-6).code == 0
    assert tacit("gate", codes, "--max-information", nats - 1e-6).code == 1
    back = tmp_path / "back.npy"
    done = tacit("hidden", "decode", codes, "--codebook", book, "--out", back)
    assert done.code == 0, done.err
    own = np.load(folder / "own.npy")
    assert (np.load(back) == loaded.decode(loaded.encode(own)).numpy()).all()
    other = ("hidden", "fit", folder / "public.npy", "--out", tmp_path / "no.safetensors")
    refused(tacit(*other, "--stages", "2", "--parts", "2"), "--stages", "not both")
    refused(tacit(*other, "--stages", "0"), "--stages")
    refused(tacit(*other, "--stages", "2", "--beam", "0"), "--beam")
    refused(tacit(*other, "--stages", "2", "--codewords", "5000"), "--codewords")
    assert not (tmp_path / "no.safetensors").exists()


def test_prompts_are_encoded_by_the_model_that_the_codebook_names(
    tacit: Tacit, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "codes.npy"
    book = folder / "behaviour.safetensors"
    done = tacit("hidden", "encode", "--prompts", folder / "prompts.txt", "--codebook", book,
                 "--out", out, "--releases", "2", "--json", "-")  # fmt: skip
    assert done.code == 0, done.err
    content = json.loads(done.out)
    loaded, model = Codebook.load(book), load(folder / "model")
    assert content["details"]["promise"]["releases"] == 2
    provenance = content["provenance"]
    assert (provenance["data_rows"], len(provenance["data_fingerprint"])) == (61, 64)
    assert provenance["data_name"].endswith("prompts.txt")
    assert content["guarantees"][0]["nats"] == pytest.approx(2 * np.log(loaded.size))
    codes = np.load(out)[:, 0]
    lines = (folder / "prompts.txt").read_text().splitlines()[:60]
    # a code for every line: the last one is empty, and has the token that texts start with
    assert len(codes) == 61
    for code, text in zip(codes.tolist(), [*lines, ""], strict=True):
        tokens = torch.tensor([[2, *(model.encode(text) if text else [])]])
        (states, logits), *_ = model.passes(tokens, [1])
        assert loaded.assign(states[1], behaviours=logits)[0] == code
    said = (tmp_path / "codes.npy.json").read_text()
    assert not [word for word in lines if word in said]


def test_texts_are_encoded_by_the_encoder_that_the_codebook_names(
    tacit: Tacit, folder: Path, tmp_path: Path
) -> None:
    book, out = folder / "encoder.safetensors", tmp_path / "codes.npy"
    loaded, encoder = Codebook.load(book), load_encoder(folder / "encoder")
    assert loaded.calibration == 240
    done = tacit("hidden", "encode", "--prompts", folder / "prompts.txt", "--codebook", book,
                 "--out", out)  # fmt: skip
    assert done.code == 0, done.err
    lines = (folder / "prompts.txt").read_text().splitlines()
    assert lines[-1] == ""
    alone = [loaded.assign(encoder.encode([text]))[0] for text in lines]
    assert np.load(out)[:, 0].tolist() == alone
    for file in (out, out.with_name("codes.npy.json")):
        gate = ("gate", file, "--max-factor")
        assert tacit(*gate, loaded.size).code == 0
        assert tacit(*gate, loaded.size - 1).code == 1
    codes = np.load(out)
    codes[3] = (codes[3] + 1) % loaded.size
    np.save(out, codes)
    refused(tacit("gate", out, "--max-factor", loaded.size), "not those that were certified")


@pytest.mark.parametrize("book", ["product", "encoder"])
def test_codes_are_randomised_whatever_the_number_of_parts(
    tacit: Tacit, folder: Path, tmp_path: Path, book: str
) -> None:
    out = tmp_path / "codes.npy"
    source = ("--prompts", folder / "prompts.txt") if book == "encoder" else (folder / "own.npy",)
    done = tacit("hidden", "encode", *source, "--codebook", folder / f"{book}.safetensors",
                 "--out", out, "--epsilon", "1.5", "--near", "2")  # fmt: skip
    assert done.code == 0, done.err
    held = json.loads(out.with_name("codes.npy.json").read_text())["release"]["guarantees"]
    assert [entry.get("epsilon") for entry in held] == [None, None, 1.5]
    assert tacit("gate", out, "--max-nats", "1.5").code == 0
    assert tacit("gate", out, "--max-nats", "0.1").code == 1


def test_what_decoded_codes_are_good_for_is_said_with_how_many_cells_are_left(
    tacit: Tacit, folder: Path, tmp_path: Path
) -> None:
    done = tacit("hidden", "fit", "--encoder", folder / "encoder", "--public-texts",
                 folder / "text.txt", "--codewords", "100", "--out", tmp_path / "book.safetensors",
                 "--json", tmp_path / "book.json")  # fmt: skip
    assert done.code == 0, done.err
    content = json.loads((tmp_path / "book.json").read_text())
    assert content["sizes"][0] < 100
    assert f"{content['sizes'][0]} of the 100 asked for" in done.out
    assert content["use"]["stored"] == 60
    assert -1 <= content["use"]["rank_correlation"]["value"] <= 1
    assert 10 / 59 < content["use"]["recall"]["value"] <= 1
    assert "recall at 10" in done.out
    assert content["origin"]["flags"] == {"pooling": "mean", "normalise": False}


def test_prompts_of_a_folder_and_of_a_column_have_the_codes_of_the_lines(
    tacit: Tacit, folder: Path, tmp_path: Path
) -> None:
    lines = (folder / "prompts.txt").read_text().splitlines()[:60]
    (tmp_path / "lines").mkdir()
    for number, text in enumerate(lines):
        (tmp_path / "lines" / f"{number:03}.txt").write_text(text + "\n")
    rows = "".join(json.dumps({"id": i, "question": text}) + "\n" for i, text in enumerate(lines))
    (tmp_path / "rows.jsonl").write_text(rows)
    found = []
    for source, more in (
        (folder / "prompts.txt", ()),
        (tmp_path / "lines", ()),
        (tmp_path / "rows.jsonl", ("--column", "question")),
    ):
        out = tmp_path / "codes.npy"
        done = tacit("hidden", "encode", "--prompts", source, *more, "--codebook",
                     folder / "behaviour.safetensors", "--out", out, "--force")  # fmt: skip
        assert done.code == 0, done.err
        found.append(np.load(out).tolist())
    assert found[0][:60] == found[1] == found[2]
    asked = ("--prompts", folder / "prompts.txt", "--codebook", folder / "behaviour.safetensors")
    done = tacit("hidden", "encode", *asked, "--longest", "4", "--out", out, "--force")
    assert done.code == 0, done.err
    cut = np.load(out).tolist()
    assert len(cut) == len(found[0])
    for code, text, kept in zip(found[0], lines, cut, strict=False):
        assert code == kept or len(text.split()) >= 4
    assert "are cut there" in " ".join(done.err.split())
    assert "1 of 61 lines hold no text" in " ".join(done.err.split())


def test_a_dry_run_writes_nothing_and_a_ledger_is_spent_from(
    tacit: Tacit, folder: Path, tmp_path: Path
) -> None:
    book, out = folder / "product.safetensors", tmp_path / "codes.npy"
    asked = ("hidden", "encode", folder / "own.npy", "--codebook", book, "--out", out)
    done = tacit(*asked, "--dry-run", "--json", "-")
    assert done.code == 0, done.err
    assert json.loads(done.out)["guarantees"]
    assert list(tmp_path.iterdir()) == []
    ledger = tmp_path / "ledger.db"
    refused(tacit(*asked, "--ledger", ledger), "--secret")
    budget = ("--ledger", ledger, "--secret", "rows", "--mi-budget", "20")
    assert tacit("ledger", "budget", *budget).code == 0
    spend = ("--ledger", ledger, "--secret", "rows")
    done = tacit(*asked, *spend)
    assert done.code == 0, done.err
    assert "spent" in done.out
    assert f"what may be published is {out}" in done.out
    refused(tacit(*asked, *spend, "--force"), "budget")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("own.npy", "--prompts", "prompts.txt"), ("--prompts", "exactly one")),
        ((), ("--prompts", "exactly one")),
        (("none.npy",), ("no such file",)),
        (("own.npy", "--out", "codes.csv"), ("--out", "ending")),
        (("own.npy", "--out", "own.npy", "--force"), ("--out", "another file")),
        (("own.npy", "--codebook", "public.npy"), ("public.npy",)),
        (("wide.npy", "--codebook", "behaviour.safetensors"), ("give prompts",)),
        (("own.npy", "--codebook", "behaviour.safetensors"), ("16 columns",)),
        (("--prompts", "prompts.txt"), ("--prompts", "codebook of a model")),
        (("own.npy", "--releases", "0"), ("releases",)),
        (("own.npy", "--epsilon", "0"), ("epsilon",)),
        (("own.npy", "--epsilon", "1", "--near", "16"), ("near",)),
        (("own.npy", "--near", "2"), ("near",)),
        (("own.npy", "--column", "x"), ("--column",)),
        (("own.npy", "--layer", "1"), ("--layer", "made with none")),
        (("own.npy", "--model", "model"), ("--model",)),
        (
            ("--prompts", "prompts.txt", "--codebook", "behaviour.safetensors", "--model", "other"),
            ("--model", "another one"),
        ),
        (
            ("--prompts", "prompts.txt", "--codebook", "behaviour.safetensors", "--layer", "2"),
            ("--layer", "made with 1"),
        ),
        (
            ("--prompts", "prompts.txt", "--codebook", "behaviour.safetensors", "--chat-template"),
            ("--chat-template", "made with False"),
        ),
        (
            (
                "--prompts",
                "prompts.txt",
                "--codebook",
                "behaviour.safetensors",
                "--dtype",
                "stored",
            ),
            ("--dtype", "made with float32"),
        ),
        (
            ("--prompts", "prompts.txt", "--codebook", "behaviour.safetensors", "--encoder", "e"),
            ("--encoder", "model's layer"),
        ),
        (
            ("--prompts", "prompts.txt", "--codebook", "encoder.safetensors", "--model", "model"),
            ("--model", "encoder's"),
        ),
        (
            ("--prompts", "prompts.txt", "--codebook", "encoder.safetensors", "--pooling", "cls"),
            ("--pooling", "made with mean"),
        ),
        (
            (
                "--prompts",
                "prompts.txt",
                "--codebook",
                "encoder.safetensors",
                "--encoder",
                "another",
            ),
            ("--encoder", "another one"),
        ),
        (("own.npy", "--encoder", "encoder"), ("--encoder", "beside --prompts")),
        (
            ("--prompts", "none.txt", "--codebook", "behaviour.safetensors"),
            ("--prompts", "no such file or folder"),
        ),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    tacit: Tacit, folder: Path, monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...], parts: tuple[str, ...],
) -> None:  # fmt: skip
    monkeypatch.chdir(folder)
    before = sorted(path.name for path in folder.iterdir())
    given = [*arguments]
    for flag, value in (("--codebook", "product.safetensors"), ("--out", "codes.safetensors")):
        if flag not in given:
            given += [flag, value]
    refused(tacit("hidden", "encode", *given), *parts)
    assert sorted(path.name for path in folder.iterdir()) == before


def test_states_of_another_layer_are_refused(tacit: Tacit, folder: Path, tmp_path: Path) -> None:
    clean = {}
    given = ("--model", folder / "model", "--texts", folder / "text.txt", *CUT)
    for layer in ("1", "2"):
        clean[layer] = tmp_path / f"clean-{layer}.safetensors"
        done = tacit("hidden", "release", "--layer", layer, *given, "--bank", "100",
                     "--calibration", "300", "--out", tmp_path / f"noisy-{layer}.safetensors",
                     "--clean", clean[layer])  # fmt: skip
        assert done.code == 0, done.err
    book = tmp_path / "book.safetensors"
    done = tacit("hidden", "codebook", "--layer", "1", "--metric", "euclidean", "--codewords", "8",
                 "--out", book, *given, "--bank", "100", "--calibration", "300")  # fmt: skip
    assert done.code == 0, done.err
    encode = ("hidden", "encode", "--codebook", book, "--out", tmp_path / "codes.npy")
    refused(tacit(*encode, clean["2"]), "--codebook", "layer 2")
    refused(tacit(*encode, clean["1"], "--layer", "2"), "--layer")
    from safetensors.numpy import save_file

    strange = tmp_path / "strange.safetensors"
    for about in ({"tacit": "[]"}, {"tacit": "3"}, {"tacit": "{"}, {"origin": '{"a": 1}'}):
        save_file({"states": np.ones((3, 16), np.float32)}, strange, about)
        refused(tacit(*encode, strange), "STATES", "no origin that can be read")
    assert tacit(*encode, clean["1"]).code == 0
    noisy = tmp_path / "noisy-1.safetensors"
    outcome = tacit(*encode, noisy, "--column", "states", "--force")
    assert outcome.code == 0, outcome.err
