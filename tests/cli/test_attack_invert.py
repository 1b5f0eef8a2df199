"""``tacit attack invert``: evidence with a page and a gate, on a small random model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from tacit.cli import run  # noqa: E402
from tests.cli.small_model import small_inputs, write_texts  # noqa: E402
from tests.cli_runner import Tacit, refused  # noqa: E402


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    folder = tmp_path_factory.mktemp("given")
    flags = small_inputs(folder)
    write_texts(folder / "public.txt", seed=2)
    return (
        "attack", "invert", "--layer", "1", "--steps", "2", "--measured", "8",
        "--calibration", "200", "--public-texts", str(folder / "public.txt"), *flags,
    )  # fmt: skip


@pytest.fixture(scope="module")
def without_steps(given: tuple[str, ...]) -> tuple[str, ...]:
    place = given.index("--steps")
    return given[:place] + given[place + 2 :]


@pytest.mark.parametrize("mechanism", ["clean", "isotropic", "behaviour-codes"])
def test_the_evidence_has_a_page_and_passes_or_fails_the_gate(
    tacit: Tacit, given: tuple[str, ...], tmp_path: Path, mechanism: str
) -> None:
    path, page = tmp_path / "inverted.json", tmp_path / "inverted.html"
    done = tacit(*given, "--mechanism", mechanism, "--codewords", "8", "--json", path,
                 "--report", page)  # fmt: skip
    assert done.code == 0, done.err
    content = json.loads(path.read_text("utf-8"))
    share = content["details"]["recovery"]["token_accuracy"]
    assert 0.0 <= share["value"] <= 1.0
    assert (content["details"]["measured_kl"] == 0.0) == (mechanism == "clean")
    assert "Nothing is guaranteed" in page.read_text("utf-8")
    assert tacit("gate", path, "--max-inversion", "1").code == 0
    assert tacit("gate", path, "--max-inversion", str(0.99 * share["high"])).code == 1
    assert tacit("show", path).code == 0
    share["high"] = share["value"]
    path.write_text(json.dumps(content), "utf-8")
    refused(tacit("gate", path, "--max-inversion", "1"), "release")


@pytest.mark.parametrize(
    ("flags", "title"),
    [
        (("--mechanism", "pca(4)"), "pca(4)"),
        (("--mechanism", "rotation", "--known-pairs", "3"), "rotation, 3 known pairs"),
    ],
)
def test_what_is_stored_without_noise_is_read_by_who_adapts(
    tacit: Tacit, given: tuple[str, ...], tmp_path: Path, flags: tuple[str, ...], title: str
) -> None:
    path = tmp_path / "inverted.json"
    done = tacit(*given, *flags, "--json", path)
    assert done.code == 0, done.err
    content = json.loads(path.read_text("utf-8"))
    assert content["method"] == title
    assert (content["details"]["measured_kl"] < 1e-6) == title.startswith("rotation")
    assert tacit("show", path).code == 0


@pytest.mark.parametrize(
    ("flags", "attacker"),
    [
        (("--kind", "forward", "--steps", "2"), "learned decoder of all positions, first token"),
        (("--kind", "at-once", "--steps", "2"), "learned network of all positions, all tokens"),
        (("--mechanism", "isotropic", "--steps", "2"), "learned decoder of all positions, first"),
        (("--mechanism", "behaviour-codes", "--steps", "2"), "learned decoder of all positions"),
        (("--mechanism", "pca(4)", "--steps", "2"), "learned decoder of all positions, first"),
        (("--kind", "training-free"), "training-free decoder of trajectories"),
        (("--kind", "training-free", "--mechanism", "isotropic"), "training-free decoder"),
        (("--kind", "training-free", "--mechanism", "codes"), "training-free decoder"),
    ],
)
def test_releases_of_all_positions_have_a_page_and_pass_the_gate(
    tacit: Tacit,
    without_steps: tuple[str, ...],
    tmp_path: Path,
    flags: tuple[str, ...],
    attacker: str,
) -> None:
    path, page = tmp_path / "inverted.json", tmp_path / "inverted.html"
    done = tacit(*without_steps, "--positions", "all", *flags, "--codewords", "8", "--json", path,
                 "--report", page)  # fmt: skip
    assert done.code == 0, done.err
    content = json.loads(path.read_text("utf-8"))
    assert content["details"]["attacker"].startswith(attacker)
    assert content["details"]["positions"] == "all"
    assert "of all positions of layer 1" in content["title"]
    assert "the released states of all its positions" in content["secret"]
    assert "all positions" in page.read_text("utf-8")
    assert tacit("show", path).code == 0
    assert tacit("gate", path, "--max-inversion", "1").code == 0


def test_prompts_of_several_lengths_have_no_trajectories(
    tacit: Tacit, given: tuple[str, ...], tmp_path: Path
) -> None:
    rest = list(given)
    place = rest.index("--public-texts") + 1
    for name, flag in (("prompts", "--texts"), ("public", "--public-texts")):
        words = Path(rest[rest.index(flag) + 1]).read_text("utf-8").split()
        starts = range(0, min(len(words) - 4, 2000), 4)
        lines = [" ".join(words[start : start + 2 + start % 3]) for start in starts]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines), "utf-8")
    rest[place] = str(tmp_path / "public.txt")
    for flag in ("--texts", "--length"):
        place = rest.index(flag)
        del rest[place : place + 2]
    path = tmp_path / "prompts.txt"
    done = tacit(*rest, "--prompts", path, "--positions", "all")
    assert done.code == 2
    assert (
        "--positions: expected prompts of one length where all positions are attacked" in done.err
    )


def test_clean_states_of_all_positions_are_read_whole(
    tacit: Tacit, without_steps: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "inverted.json"
    done = tacit(*without_steps, "--positions", "all", "--kind", "training-free", "--json", path)
    assert done.code == 0, done.err
    content = json.loads(path.read_text("utf-8"))
    assert content["details"]["recovery"]["exact"]["value"] == 1.0
    assert tacit("gate", path, "--max-inversion", "0.99").code == 1
    # of the last state alone it would have another title
    content["details"]["positions"] = "last"
    path.write_text(json.dumps(content), "utf-8")
    refused(tacit("gate", path, "--max-inversion", "1"), "release")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("mechanism", 5, "mechanism: expected text"),
        ("mechanism", None, "mechanism: expected text"),
        ("attacker", {}, "attacker: expected text"),
        ("length", 2, "recovery: expected at most length, 2, positions"),
        ("release", 5, "release: expected the fields of FixedRelease"),
        ("training", [], "training: expected the fields of InverterTraining"),
    ],
)
def test_malformed_evidence_is_named(
    tacit: Tacit, evidence: str, tmp_path: Path, field: str, value: object, words: str
) -> None:
    path = tmp_path / "malformed.json"
    content = json.loads(evidence)
    content["details"][field] = value
    path.write_text(json.dumps(content), "utf-8")
    refused(tacit("gate", path, "--max-inversion", "1"), words)
    refused(tacit("show", path), words)


@pytest.fixture(scope="module")
def evidence(given: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("evidence") / "inverted.json"
    assert run([*given, "--json", str(path)]) == 0
    return path.read_text("utf-8")


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("positions", ["last", "all"])
def test_a_codebook_that_was_stored_is_attacked_as_it_is(
    tacit: Tacit, given: tuple[str, ...], tmp_path: Path, parts: int, positions: str
) -> None:
    from tacit.hidden_states import Codebook, CodebookFit, ProductCodebook, ProductFit

    rows = torch.randn(400, 16, generator=torch.Generator().manual_seed(0))
    usual = {"rng": 0, "progress": False}
    book = (
        Codebook.fit(rows, CodebookFit(size=6, least_cell=1), **usual)
        if parts == 1
        else ProductCodebook.fit(rows, ProductFit(parts=2, size=4), **usual)
    )
    file, path = book.save(tmp_path / "book.safetensors"), tmp_path / "inverted.json"
    flags = (*given, "--codebook", str(file), "--positions", positions)
    done = tacit(*flags, "--json", path)
    assert done.code == 0, done.err
    content = json.loads(path.read_text("utf-8"))
    assert content["details"]["release"]["codebook"] == book.digest
    assert content["title"].startswith("codes of a ")
    assert content["details"]["measured_kl"] > 0.0
    refused(tacit(*flags, "--mechanism", "codes"), "--codebook")


def test_a_codebook_of_another_layer_or_width_is_refused(
    tacit: Tacit, given: tuple[str, ...], tmp_path: Path
) -> None:
    from dataclasses import replace

    from tacit.hidden_states import Codebook, CodebookFit
    from tacit.hidden_states.origin import Origin

    rows = torch.randn(400, 16, generator=torch.Generator().manual_seed(0))
    book = Codebook.fit(rows, CodebookFit(size=6, least_cell=1), rng=0, progress=False)
    origin = Origin(
        model="another", model_digest="0" * 64, layer=1, calibration_size=400,
        calibration_digest="1" * 64,
    )  # fmt: skip
    file = replace(book, origin=origin).save(tmp_path / "other.safetensors")
    refused(tacit(*given, "--codebook", str(file)), "codebook: it is of layer 1 of another")
    narrow = Codebook.fit(rows[:, :8], CodebookFit(size=6, least_cell=1), rng=0, progress=False)
    file = narrow.save(tmp_path / "narrow.safetensors")
    refused(tacit(*given, "--codebook", str(file)), "codebook: expected states of 16 numbers")
    refused(tacit(*given, "--codebook", str(tmp_path / "none.safetensors")), "none.safetensors")


def test_a_release_that_no_inverter_was_run_on_does_not_pass() -> None:
    from tacit.gate import Policy, check_release
    from tacit.releases import Release

    release = Release(kind="x", title="t", secret="s", method="m", guarantees=(), details=None,
                      reproducible=False)  # fmt: skip
    result = check_release(release, Policy(max_inversion=0.5))
    assert not result.passed
    assert "no inverter was run" in result.checks[0].sentence


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--kind", "sideways"), "--kind"),
        (("--mechanism", "loud"), "mechanism"),
        (("--minutes", "1"), "--steps: expected this or minutes"),
        (("--measured", "1"), "--measured"),
        (("--mechanism", "pca(x)"), "--mechanism: expected a number"),
        (("--mechanism", "pca(0)"), "--mechanism: dimension: expected an integer >= 1"),
        (("--mechanism", "rotation", "--known-pairs", "-1"), "--known-pairs"),
        (("--mechanism", "rotation", "--known-pairs", "201"), "--known-pairs"),
        (("--known-pairs", "3"), "--known-pairs: expected only beside rotation"),
        (("--positions", "some"), "--positions"),
        (("--positions", "all", "--rescore"), "--rescore: expected only beside positions last"),
        (("--kind", "training-free"), "--kind: expected training-free beside positions all"),
        (
            ("--positions", "all", "--kind", "training-free"),
            "--steps: expected none beside kind training-free",
        ),
    ],
)
def test_bad_flags_are_refused(
    tacit: Tacit, given: tuple[str, ...], flags: tuple[str, ...], words: str
) -> None:
    refused(tacit(*given, *flags), words)


def without_public(given: tuple[str, ...]) -> tuple[str, ...]:
    place = given.index("--public-texts")
    return given[:place] + given[place + 2 :]


def test_without_public_texts_the_attacker_learns_from_the_rest_of_the_texts(
    tacit: Tacit, given: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "inverted.json"
    done = tacit(*without_public(given), "--json", path)
    assert done.code == 0, done.err
    content = json.loads(path.read_text("utf-8"))
    assert content["details"]["training"]["texts"] == "the rest of the texts"
    assert any("the rest of the texts" in note for note in content["notes"])
    assert "the rest of the texts" in done.out


def test_prompts_that_the_attacker_learnt_from_are_left_out(
    tacit: Tacit, given: tuple[str, ...]
) -> None:
    same = [*without_public(given), "--public-texts", given[given.index("--texts") + 1]]
    done = tacit(*same)
    assert done.code == 2
    assert "--public-texts: the same texts as --texts" in done.err
    assert "expected at least 2 prompts that do not stand in the public stream" in done.err


def test_the_evidence_says_which_release_was_attacked(
    tacit: Tacit, given: tuple[str, ...], tmp_path: Path
) -> None:
    held = {}
    for budget in ("0.1", "1"):
        path = tmp_path / f"{budget}.json"
        done = tacit(*given, "--mechanism", "isotropic", "--kl-budget", budget, "--json", path)
        assert done.code == 0, done.err
        held[budget] = json.loads(path.read_text("utf-8"))
        assert held[budget]["title"].startswith(f"isotropic, K = {budget}, of layer 1")
        assert held[budget]["details"]["release"]["K"] == float(budget)
    digests = {content["details"]["release"]["covariance"] for content in held.values()}
    assert len(digests) == 2
    path = tmp_path / "codes.json"
    tacit(*given, "--mechanism", "codes", "--codewords", "8", "--json", path)
    # cells that hold too few prompts are merged: what is told is what there is
    assert 2 <= json.loads(path.read_text("utf-8"))["details"]["release"]["C"] <= 8


def test_fewer_codes_than_asked_for_are_not_attacked(tacit: Tacit, given: tuple[str, ...]) -> None:
    refused(tacit(*given, "--mechanism", "codes", "--codewords", "201"), "--codewords")
