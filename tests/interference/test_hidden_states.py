"""What codes, noised states, quotients and their pages tell beside the noise of the prompts."""

import io
import json

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tacit.cli import run
from tacit.hidden_states.origin import HOLDERS
from tacit.releases import load
from tests.cli.small_model import CUT, WORDS, write_encoder, write_model, write_texts
from tests.hidden_states.networks import random_model

from .registry import tells_nothing_beside

COUNT, PLACE = 30, 7
RANDOM = np.random.default_rng(8)
OWN = [" ".join(RANDOM.choice(WORDS, RANDOM.integers(2, 8))) for _ in range(COUNT)]
PUBLIC = [" ".join(RANDOM.choice(WORDS, RANDOM.integers(2, 8))) for _ in range(90)]
# what stands in one line in the place of a usual prompt
RECORDS = {
    "longest": b"w1 w2 w3 w4 w5 w6 w7 w8 w9",
    "over the context": b" ".join([b"w1 w2"] * 40),
    "blank": b"",
    "white": b"  \t ",
    "duplicate": OWN[3].encode(),
    "public": PUBLIC[4].encode(),
    "composed": "w1 caf\u00e9".encode(),
    "decomposed": "w1 cafe\u0301".encode(),
    "no Unicode": b"w1 \xff\xfe w2",
}
SOME = ("longest", "over the context", "blank", "duplicate", "public")


def prompts(record: bytes | None = None) -> dict[str, bytes]:
    """Return a file of prompts, one line of which is replaced."""
    lines = [text.encode() for text in OWN]
    if record is not None:
        lines[PLACE] = record
    return {"own.txt": b"\n".join(lines) + b"\n"}


def same_public_part(pair) -> None:
    """What may be published of the holder's JSON is the same, whatever the secret is."""
    one, other = (json.loads(each.files["j.json"]) for each in (pair.first, pair.second))
    assert one["provenance"]["data_fingerprint"] != other["provenance"]["data_fingerprint"]
    assert load(one).public().to_dict() == load(other).public().to_dict()


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory):
    """A model, an encoder, public prompts and what was fitted on them."""
    place = tmp_path_factory.mktemp("public")
    write_model(place / "model", seed=0, first="w2")
    write_encoder(place / "encoder", seed=0)
    write_texts(place / "text.txt", seed=1)
    (place / "public.txt").write_text("\n".join(PUBLIC) + "\n", encoding="utf-8")
    np.save(place / "public.npy", np.random.default_rng(0).normal(size=(200, 6)))
    for arguments in (
        ("hidden", "fit", place / "public.npy", "--parts", "2", "--codewords", "4",
         "--out", place / "product.safetensors"),
        ("hidden", "fit", place / "public.npy", "--stages", "2", "--codewords", "4",
         "--out", place / "stages.safetensors"),
        ("hidden", "codebook", "--layer", "1", "--codewords", "4", "--model", place / "model",
         "--texts", place / "text.txt", *CUT, "--bank", "50", "--calibration", "100",
         "--out", place / "behaviour.safetensors"),
        ("hidden", "fit", "--encoder", place / "encoder", "--public-texts", place / "public.txt",
         "--codewords", "2", "--out", place / "encoder.safetensors"),
    ):  # fmt: skip
        assert run([str(one) for one in arguments]) == 0
    flags = ("--model", str(place / "model"), "--public-texts", str(place / "public.txt"))
    return place, (*flags, "--prompts", "own.txt", "--layer", "1")


@tells_nothing_beside("hidden encode", "hidden-codes")
@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("book", ["behaviour", "encoder"])
def test_a_store_of_encoded_prompts_tells_its_codes_alone(interference, given, book, name):
    command = ["hidden", "encode", "--prompts", "own.txt", "--codebook",
               given[0] / f"{book}.safetensors", "--out", "codes.npy", "--json", "j.json",
               "--ledger", "ledger.sqlite", "--secret", "s", "--no-budget"]  # fmt: skip
    if name == "longest":
        command += ["--epsilon", "1.0"]
    pair = interference.commands(command, prompts(), prompts(RECORDS[name]))
    pair.assert_equal(holder={"ledger.sqlite", "j.json"}, holder_terminal=True)
    same_public_part(pair)
    codes = np.load(io.BytesIO(pair.first.files["codes.npy"]))
    assert len(codes) == COUNT


@tells_nothing_beside("hidden encode", "hidden-codes")
@pytest.mark.parametrize("ending", [".safetensors", ".npy", ".parquet"])
@pytest.mark.parametrize("row", [np.nan, np.inf, 1e300, 0.0, "repeated"])
@pytest.mark.parametrize("book", ["product", "stages"])
def test_a_store_of_encoded_vectors_tells_its_codes_alone(interference, given, ending, row, book):
    def stored(changed: bool) -> dict[str, bytes]:
        rows = np.random.default_rng(1).normal(size=(COUNT, 6))
        if changed:
            rows[PLACE] = rows[0] if row == "repeated" else row
        content = io.BytesIO()
        np.save(content, rows)
        return {"own.npy": content.getvalue()}

    command = ["hidden", "encode", "own.npy", "--codebook", given[0] / f"{book}.safetensors",
               "--out", f"codes{ending}", "--json", "j.json"]  # fmt: skip
    pair = interference.commands(command, stored(False), stored(True))
    pair.assert_equal(holder={"j.json"})
    same_public_part(pair)


@tells_nothing_beside("hidden codebook")
@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("metric", ["euclidean", "behaviour"])
def test_a_codebook_is_the_same_whatever_the_bank_is(interference, given, metric, name):
    command = ["hidden", "codebook", *given[1], "--metric", metric, "--codewords", "3",
               "--least-cell", "2", "--out", "book.safetensors", "--json", "j.json"]  # fmt: skip
    pair = interference.commands(command, prompts(), prompts(RECORDS[name]))
    pair.assert_equal(holder={"j.json"}, holder_terminal=True, released=False)
    one, other = (json.loads(each.files["j.json"]) for each in (pair.first, pair.second))
    # what is guaranteed is no statistic of the secret; what is counted in it says so
    differ = {key for key in one if one[key] != other[key]}
    assert differ <= {"origin", "counted"}


@tells_nothing_beside("hidden release", "hidden-states")
@pytest.mark.parametrize("name", SOME)
def test_noised_states_tell_nothing_beside_the_noise(interference, given, name):
    command = ["hidden", "release", *given[1], "--out", "mine.safetensors", "--publish",
               "theirs.safetensors", "--clean", "clean.safetensors", "--json",
               "j.json"]  # fmt: skip
    pair = interference.commands(command, prompts(), prompts(RECORDS[name]))
    holder = {"mine.safetensors", "clean.safetensors", "j.json"}
    pair.assert_equal(holder=holder, holder_terminal=True)
    same_public_part(pair)


@tells_nothing_beside("hidden quotient", "hidden-quotients")
@pytest.mark.parametrize("name", SOME)
def test_noised_quotients_tell_nothing_beside_the_noise(interference, given, name):
    command = ["hidden", "quotient", *given[1], "--epochs", "1", "--out", "q.safetensors",
               "--release-out", "r.safetensors", "--json", "j.json"]  # fmt: skip
    pair = interference.commands(command, prompts(), prompts(RECORDS[name]))
    pair.assert_equal(holder={"j.json"}, holder_terminal=True)
    same_public_part(pair)
    assert json.loads(pair.first.files["j.json"])["details"]["rows"] == COUNT
    again = ["hidden", "quotient", *given[1], "--epochs", "1", "--out", "q.safetensors",
             "--json", "j.json"]  # fmt: skip
    pair = interference.commands(again, prompts(), prompts(RECORDS[name]))
    pair.assert_equal(holder={"j.json"}, holder_terminal=True, released=False)


@tells_nothing_beside("hidden encode", "hidden quotient", "hidden release")
def test_a_dry_run_and_a_refusal_are_the_same(interference, given):
    first, second = prompts(), prompts(RECORDS["blank"])
    encode = ["hidden", "encode", "--prompts", "own.txt", "--codebook",
              given[0] / "behaviour.safetensors", "--out", "c.npy", "--dry-run"]  # fmt: skip
    pair = interference.commands([*encode, "--json", "j.json"], first, second)
    pair.assert_equal(released=False, holder_terminal=True)
    command = ["hidden", "quotient", *given[1], "--epochs", "1", "--out", "q.safetensors",
               "--release-out", "r.safetensors", "--dry-run", "--json", "j.json"]  # fmt: skip
    pair = interference.commands(command, first, second)
    pair.assert_equal(released=False, holder_terminal=True)
    refused = ["hidden", "release", *given[1], "--out", "x.safetensors", "--bank", "0"]
    interference.commands(refused, first, second).assert_equal(released=False)


PAGES = {
    "audit model": ["--bank", "20", "--measured", "5", "--kl-budgets", "1", "--codewords", "4",
                    "--max-attack", "1", "--min-agreement", "0"],
    "attack invert": ["--measured", "20", "--steps", "2", "--calibration", "60"],
}  # fmt: skip


@tells_nothing_beside("audit model", "attack invert", "hidden-audit", "hidden-inversion")
@pytest.mark.parametrize("name", ["longest", "blank", "public"])
@pytest.mark.parametrize("command", PAGES)
def test_a_page_about_prompts_is_the_holders_and_names_none(interference, given, command, name):
    public = ("--public-texts", given[0] / "text.txt")
    asked = [*command.split(), *given[1][:2], *public, *given[1][4:], *PAGES[command], "--report",
             "page.html", "--json", "j.json"]  # fmt: skip
    pair = interference.commands(asked, prompts(), prompts(RECORDS[name]))
    pair.assert_equal(holder={"page.html", "j.json"}, holder_terminal=True, released=False)
    assert pair.first.code == 0, pair.first.err
    said = "".join(
        each.files[file].decode() for each in (pair.first, pair.second) for file in each.files
    )
    for content in (prompts()["own.txt"], prompts(RECORDS[name])["own.txt"]):
        from tacit.models.texts.corpus import digest

        told = digest(content.decode())
        assert told not in said
        assert told[:12] not in said


@tells_nothing_beside("hidden trajectory")
def test_generation_by_codes_is_the_holders(interference, given):
    command = ["hidden", "trajectory", "--layer", "1", "--model", given[0] / "model", "--texts",
               "own.txt", "--public-texts", given[0] / "text.txt", "--length", "4", "--steps", "2",
               "--codewords", "4", "--bank", "8", "--calibration", "40", "--json",
               "j.json", "--report", "page.html"]  # fmt: skip
    pair = interference.commands(command, prompts(), prompts(RECORDS["over the context"]))
    pair.assert_equal(holder={"j.json", "page.html"}, holder_terminal=True, released=False)


@tells_nothing_beside("hidden encode", "hidden-codes")
def test_a_planted_public_prompt_and_which_of_two_prompts_it_was_are_not_told(given, tmp_path):
    """Every byte but the codes and their digest is the same whichever prompt it was."""
    headers = set()
    planted = (PUBLIC[4].encode(), PUBLIC[50].encode())
    for record in (None, RECORDS["longest"], RECORDS["blank"], *planted):
        (tmp_path / "own.txt").write_bytes(prompts(record)["own.txt"])
        out, side = tmp_path / "codes.npy", tmp_path / "codes.npy.json"
        asked = ("hidden", "encode", "--prompts", tmp_path / "own.txt", "--codebook",
                 given[0] / "behaviour.safetensors", "--out", out, "--force")  # fmt: skip
        assert run([str(one) for one in asked]) == 0
        content = json.loads(side.read_text())
        released = [content.pop("rows"), content["release"].pop("created")]
        text = json.dumps(content, sort_keys=True)
        for one in released:
            text = text.replace(one, "")
        headers.add((text, out.stat().st_size))
    assert len(headers) == 1


@tells_nothing_beside("hidden-features")
def test_a_study_of_features_publishes_nothing(interference):
    from tacit.hidden_states import measure_features
    from tests.hidden_states.features.test_study import coder_of
    from tests.hidden_states.features.test_study import prompts as prompts_of

    model, public = random_model("gpt2"), prompts_of(20, seed=1)
    coder = coder_of(model, 40)
    first = prompts_of(20, seed=2)
    second = first.clone()
    second[PLACE] = 0

    def published(bank):
        study = measure_features(model, 2, coder, bank, public, edited=2, rng=0)
        return study.published()

    pair = interference.calls(published, first, second)
    pair.assert_equal(released=False)
    assert json.loads(pair.first.returned) == {"withheld": HOLDERS}
