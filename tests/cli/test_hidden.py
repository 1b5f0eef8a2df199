"""The commands on hidden states, in this process, on a small random model written to disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from tacit.hidden_states.audit import sweep as tacit_sweep  # noqa: E402
from tests.cli.small_model import WORDS, small_inputs  # noqa: E402
from tests.cli_runner import Tacit, refused  # noqa: E402


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """A model and texts, as flags."""
    return small_inputs(tmp_path_factory.mktemp("given"))


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
    sizes = ("--bank", "300", "--calibration", "600", "--measured", "100")
    limits = ("--max-attack", "0.9", "--min-agreement", "0.1", "--codewords", "8,16")
    asked = ("audit", "model", "--layer", "1", *given, *sizes, *limits)
    more = ("--points", tmp_path / "p.jsonl", "--explain")
    done = tacit(*asked, "--report", report, "--json", "-", *more)
    assert done.code == 0, done.err
    # what the page folds away, a line a release and an attacker
    assert done.err.count("attack, top 1 ") == len((tmp_path / "p.jsonl").read_text().splitlines())
    assert "\nattacker" in done.err or done.err.startswith("attacker")
    content = json.loads(done.out)
    assert content["kind"] == "hidden-audit"
    assert len(content["details"]["points"]) == (tmp_path / "p.jsonl").read_text().count("\n")
    page = report.read_text(encoding="utf-8")
    assert '<p class="decision">Store' in page
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
    assert json.loads(done.out)["guarantees"][0]["type"] == "RenyiDP"
    # what --json writes is a release like any other
    told = tmp_path / "noisy.json"
    told.write_text(done.out, encoding="utf-8")
    assert "hidden-states" in tacit("show", told).out
    assert tacit("gate", told, "--max-attack", "0.9").code == 1
    states, truth = load_file(noisy)["states"], load_file(clean)["states"]
    assert states.shape == truth.shape
    assert not (states == truth).all(dim=1).any()
    found = tacit("hidden", "attack", noisy, "--layer", "1", *given, *sizes, "--json", "-")
    assert found.code == 0, found.err
    assert json.loads(found.out)["attack"]["success"]["value"] > 0.5
    alone = tmp_path / "alone"
    alone.mkdir()
    tacit("hidden", "release", "--layer", "1", *given, *sizes, "--out", alone / "n.safetensors")
    assert [path.name for path in alone.iterdir()] == ["n.safetensors"]


def test_geometry_sweep_and_codebook_speak_json(
    tacit: Tacit, given: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    mapped = tacit_sweep.parallel_map

    def counted(*given: object, **more: object) -> object:
        asked.append(more["workers"])
        return mapped(*given, **more)

    monkeypatch.setattr(tacit_sweep, "parallel_map", counted)
    pages = [tmp_path / name for name in ("geometry.html", "sweep.html")]
    measured = tacit(
        "hidden", "geometry", "--layer", "1", *given, "--calibration", "300", "--json", "-",
        "--report", pages[0],
    )  # fmt: skip
    assert measured.code == 0, measured.err
    facts = json.loads(measured.out)
    assert len(facts["spectrum"]) == 16
    assert 0 < facts["least_signal"] <= facts["least_signal_ridged"]
    assert f"M* = {facts['least_signal']:.3g} is the least" in measured.err
    sizes = ("--bank", "200", "--calibration", "300")
    swept = tacit(
        "hidden", "sweep", "--layers", "1", "--mechanisms", "isotropic,argmax", "--kl-budgets",
        "0.1", "--codewords", "8", "--measured", "80", *given, *sizes, "--workers", "2",
        "--json", "-", "--report", pages[1],
    )  # fmt: skip
    assert swept.code == 0, swept.err
    assert asked == [2]
    assert "read by whoever holds the release alone (protocol B)" in swept.err
    # noise is read in three ways, the likeliest token in two
    assert len(json.loads(swept.out)) == 6
    texts = [page.read_text("utf-8") for page in pages]
    assert "hold 95% of the Fisher information" in texts[0]
    assert texts[1].count("only the likeliest next token, not the state") == 2
    assert all("for the holder of the prompts" in text for text in texts)
    out = tmp_path / "book.safetensors"
    fitted = tacit(
        "hidden", "codebook", "--layer", "1", "--codewords", "8", "--metric", "euclidean",
        "--out", out, *given, *sizes, "--json", "-",
    )  # fmt: skip
    assert fitted.code == 0, fitted.err
    assert json.loads(fitted.out)["success"]["success"] <= 8 / 200 + 1e-12
    assert out.exists()


@pytest.fixture(scope="module")
def own(given: tuple[str, ...]) -> tuple[str, ...]:
    """The model, prompts of several lengths and public ones, as flags."""
    folder = Path(given[1]).parent
    draws = torch.Generator().manual_seed(5)
    for name, count in (("own.jsonl", 260), ("public.jsonl", 400)):
        lengths = torch.randint(2, 8, (count,), generator=draws).tolist()
        rows = [torch.randint(30, (n,), generator=draws).tolist() for n in lengths]
        texts = [" ".join(WORDS[i] for i in row) for row in rows]
        lines = [json.dumps({"id": i, "ask": text}) for i, text in enumerate([*texts, texts[0]])]
        (folder / name).write_text("\n".join(lines), encoding="utf-8")
    flags = ("--prompts", folder / "own.jsonl", "--public-texts", folder / "public.jsonl")
    return ("--model", given[1], *map(str, flags), "--column", "ask", "--seed", "1")


def test_an_audit_of_the_users_own_prompts(tacit: Tacit, own: tuple[str, ...]) -> None:
    limits = (
        "--max-attack",
        "1",
        "--max-gain",
        "0.9",
        "--min-agreement",
        "0.01",
        "--codewords",
        "8",
    )
    done = tacit("audit", "model", "--layer", "1", *own, *limits, "--kl-budgets", "0.1",
                 "--json", "-")  # fmt: skip
    assert done.code == 0, done.err
    content = json.loads(done.out)
    # a fifth of the distinct prompts is held out, and the others are the bank
    point = content["details"]["points"][0]
    bank, measured = point["bank"], point["prompts"]
    assert measured == (bank + measured) // 5
    assert 200 < bank + measured <= 260
    assert point["kl"]["value"] > 0
    assert content["details"]["length"] == 7
    assert content["details"]["calibration"] <= 400
    assert set(point) >= {"kl_median", "kl_95", "jensen_shannon", "top5"}
    assert {use["name"] for use in content["use"]} >= {"agreement", "top5", "kl"}
    said = " ".join(done.err.split())
    assert "Jensen–Shannon" in said
    assert f"on {measured} held-out prompts" in said
    assert "repeat others or are public, and are not attacked again" in said
    assert "of the sequences of 8 tokens in your prompts stand in the public texts too" in said
    assert content["provenance"]["data_name"].endswith("own.jsonl")


def test_columns_beside_the_prompts_are_guessed_and_gains_are_limited(
    tacit: Tacit, own: tuple[str, ...], tmp_path: Path
) -> None:
    from tacit.models import read_prompts

    tables = {}
    for name, place in (("own", own[3]), ("public", own[5])):
        texts = read_prompts(place, column="ask").texts
        rows = [f"{i},{'long' if len(text.split()) > 4 else 'short'},{text.split()[-1]}"
                for i, text in enumerate(texts)]  # fmt: skip
        tables[name] = tmp_path / f"{name}.csv"
        tables[name].write_text("\n".join(["row,size,end", *rows]) + "\n", encoding="utf-8")
    asked = ("audit", "model", "--layer", "2", *own, "--codewords", "8", "--kl-budgets", "0.1",
             "--max-attack", "1", "--min-agreement", "0.01", "--json", "-")  # fmt: skip
    both = ("--attributes", tables["own"], "--public-attributes", tables["public"])
    done = tacit(*asked, *both, "--max-gain", "1")
    assert done.code == 0, done.err
    content = json.loads(done.out)
    assert content["details"]["wish"]["max_gain"] == 1
    assert content["method"] != "none recommended"
    for guesses in (
        content["details"]["clean"],
        *(point["guesses"] for point in content["details"]["points"]),
    ):
        found = {(guess["task"], guess["weighed"]): guess for guess in guesses}
        for column in ("row", "size", "end"):
            assert {(column, True), (column, False)} <= set(found)
        # the column is the last token by its text: rows were matched with their prompts
        token = "the last token"
        for weighed in (True, False):
            assert found["end", weighed]["success"] == found[token, weighed]["success"]
    alone = tacit(*asked, "--attributes", tables["own"], "--max-gain", "0.001")
    assert alone.code == 0, alone.err
    content = json.loads(alone.out)
    tasks = [(guess["task"], guess["weighed"]) for guess in content["details"]["clean"]]
    assert ("end", False) in tasks
    assert ("end", True) not in tasks
    assert content["method"] == "none recommended"
    assert "read off the bank alone" in alone.err
    assert "by more than 0.1% points" in " ".join(alone.err.split())

    text = tables["own"].read_text(encoding="utf-8")
    short, other = tmp_path / "short.csv", tmp_path / "other.csv"
    short.write_text("\n".join(text.splitlines()[:-3]), encoding="utf-8")
    other.write_text(text.replace("size", "length"), encoding="utf-8")
    for more, said in (
        (("--attributes", short), "--attributes: expected a row for each of 261 prompts, got 258"),
        (
            (*both[:3], other),
            "--public-attributes: expected a row for each of 401 prompts, got 261",
        ),
    ):
        done = tacit(*asked, *more)
        assert (done.code, done.out) == (2, "")
        assert said in done.err
    refused(tacit(*asked, "--attributes", tmp_path / "none.csv"), "--attributes", "no such file")
    refused(tacit(*asked, *both[2:]), "--public-attributes", "beside --attributes")
    public = tables["public"]
    public.write_text(public.read_text(encoding="utf-8").replace("size", "length", 1))
    done = tacit(*asked, *both)
    assert (done.code, done.out) == (2, "")
    assert "--public-attributes: expected the columns of --attributes" in done.err


def test_a_prompt_is_measured_as_it_is_served(
    tacit: Tacit, own: tuple[str, ...], tmp_path: Path
) -> None:
    from tacit.models import load, read_prompts

    clean, noisy = tmp_path / "clean.safetensors", tmp_path / "noisy.safetensors"
    asked = ("hidden", "release", "--layer", "2", *own, "--bank", "9", "--out", noisy)
    done = tacit(*asked, "--clean", clean, "--kl-budget", "0.1")
    assert done.code == 0, done.err
    from safetensors.torch import load_file

    found = load_file(clean)["states"]
    model = load(own[1])
    texts = read_prompts(own[3], column="ask").texts[:12]
    alone = [model.states([model.encode(text)], 2)[0] for text in texts]
    torch.testing.assert_close(found, torch.stack(alone)[:9], rtol=0, atol=1e-4)
    measured = tacit("hidden", "geometry", "--layer", "1", *own, "--json", "-")
    assert measured.code == 0, measured.err
    assert json.loads(measured.out)["prefixes"] == 260


def test_public_texts_are_used_and_compared(
    tacit: Tacit, given: tuple[str, ...], tmp_path: Path
) -> None:
    out = ("--out", tmp_path / "b.safetensors", "--metric", "euclidean", "--codewords", "8")
    sizes = ("--bank", "100", "--calibration", "200")
    asked = ("hidden", "codebook", "--layer", "1", *given, *sizes, *out)
    done = tacit(*asked)
    assert done.code == 0, done.err
    assert "cut from --texts too" in " ".join(done.err.split())
    again = tacit(*asked, "--public-texts", given[3], "--length", "9", "--force")
    assert again.code == 0, again.err
    assert "cut from --texts too" not in " ".join(again.err.split())
    refused(tacit(*asked, "--public-texts", "none.txt", "--force"), "--public-texts", "none.txt")


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (("--texts", "."), ("--prompts", "--texts", "both")),
        (("--column", "nothing"), ("--prompts: line 1", "nothing")),
        (("--longest", "0"), ("--longest",)),
        (("--chat-template",), ("--chat-template", "has none")),
        (("--dtype", "int3"), ("dtype", "int3")),
    ],
)
def test_prompts_that_cannot_be_read_are_named(
    tacit: Tacit, own: tuple[str, ...], flags: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    refused(tacit("hidden", "sweep", "--layers", "1", *own, *flags), *parts)


def test_a_model_and_texts_are_refused_by_their_flags(tacit: Tacit, tmp_path: Path) -> None:
    few, empty = tmp_path / "few.txt", tmp_path / "empty"
    few.write_text("a few words, and no window of as many tokens")
    empty.mkdir()
    asked = ("audit", "model", "--layer", "1", "--report", tmp_path / "page.html")
    refused(tacit(*asked, "--model", tmp_path / "none"), "tacit: --model: cannot load")
    refused(tacit(*asked, "--texts", empty), "tacit: --texts: expected a .txt")
    both = ("--texts", few, "--public-texts", empty)
    refused(tacit(*asked, *both), "tacit: --public-texts: expected a .txt")
    found = tacit(*asked, "--texts", few)
    assert found.code == 2
    assert "tacit: --bank, --calibration, --measured: expected at most" in found.err


def test_a_prompt_that_is_too_long_is_cut_and_the_others_are_measured(
    tacit: Tacit, own: tuple[str, ...], tmp_path: Path
) -> None:
    long = tmp_path / "p.txt"
    rows = [f"w{i} w{i + 1} w{i + 2}" for i in range(25)]
    long.write_text("\n".join([*rows, " ".join(["w7"] * 12)]))
    asked = ("hidden", "sweep", "--layers", "1", "--model", own[1], "--prompts", long,
             "--mechanisms", "isotropic", "--public-texts", own[5])  # fmt: skip
    done = tacit(*asked, "--column", "ask")
    assert done.code == 0, done.err
    assert "1 of 26 prompts have more than 9 tokens, and are cut there" in " ".join(
        done.err.split()
    )
    refused(tacit(*asked, "--longest", "9"), "--public-texts: line 1", "'prompt' or 'text'")
    refused(tacit("hidden", "sweep", "--layers", "1", "--column", "x"), "--column: needs --prompts")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("hidden", "geometry", "--layer", "1", "--texts", "missing.txt"), ("--texts", "missing")),
        (("hidden", "geometry", "--layer", "one"), ("--layer",)),
        (("hidden", "geometry", "--layer", "1", "--wrong", "2"), ("--wrong",)),
        (("hidden", "geometry", "--layer", "1", "--calibration", "0"), ("--calibration",)),
        (("hidden", "sweep", "--layers", "1,x"), ("--layers",)),
        (("hidden", "sweep", "--layers", "1", "--workers", "0"), ("--workers", "1")),
        (("audit", "model", "--layer", "1", "--codewords", "a"), ("--codewords",)),
        (
            ("hidden", "release", "--layer", "1", "--kl-budget", "nan", "--out", "x.safetensors"),
            ("--kl-budget",),
        ),
        (("hidden", "release", "--layer", "1", "--out", "no/such/folder"), ("--out",)),
        (("hidden", "attack", "missing.safetensors", "--layer", "1"), ("missing",)),
        (("audit", "model", "--layer", "1", "--max-attack", "nan"), ("--max-attack",)),
        (("audit", "model", "--layer", "1", "--protocol", "C"), ("--protocol",)),
        (("audit", "model", "--layer", "1", "--max-gain", "0"), ("--max-gain",)),
        (
            ("audit", "model", "--layer", "1", "--attributes", __file__),
            ("--attributes", "beside --prompts"),
        ),
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
