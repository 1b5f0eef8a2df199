"""No command writes over a file that it reads, and no output over what Tacit did not write."""

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tacit import Ledger
from tacit.cli.output import new_file, refuse_inputs
from tests.cli_runner import Tacit, refused

TEXT = "w1 w2 w3\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with prompts, public texts, vectors and a folder of texts."""
    for name in ("own.txt", "public.txt", "book.safetensors", "points.jsonl", "data.csv"):
        (tmp_path / name).write_text(TEXT)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text(TEXT)
    (tmp_path / "link.safetensors").symlink_to(tmp_path / "own.txt")
    os.link(tmp_path / "own.txt", tmp_path / "hard.safetensors")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("written", ["--out", "--json", "--report", "--publish", "--clean"])
@pytest.mark.parametrize(
    ("command", "has"),
    [
        (("hidden", "release", "--layer", "1"), ("--out", "--json", "--publish", "--clean")),
        (("hidden", "codebook", "--layer", "1"), ("--out", "--json")),
        (("hidden", "quotient", "--layer", "1"), ("--out", "--json")),
        (("hidden", "features", "--layer", "1"), ("--out", "--json", "--report")),
        (("hidden", "geometry", "--layer", "1"), ("--json",)),
        (("hidden", "sweep", "--layers", "1"), ("--json",)),
        (("hidden", "trajectory", "--layer", "1"), ("--json",)),
        (("hidden", "encode", "--codebook", "book.safetensors"), ("--out", "--json")),
        (("hidden", "fit", "--encoder", "e"), ("--out", "--json")),
        (("audit", "model", "--layer", "1"), ("--json", "--report")),
        (("attack", "invert", "--layer", "1"), ("--json", "--report")),
    ],
)
def test_prompts_and_public_texts_are_never_written_over(
    tacit: Tacit, place: Path, command: tuple[str, ...], has: tuple[str, ...], written: str
) -> None:
    if written not in has:
        return
    read = ("--public-texts", "public.txt")
    if command[1] not in ("fit",):
        read = ("--prompts", "own.txt", *(() if command[1] == "encode" else read))
    needed = () if "--out" not in has or written == "--out" else ("--out", "new.safetensors")
    for flag, path in zip(read[::2], read[1::2], strict=True):
        for name in {
            path,
            *(("hard.safetensors", "link.safetensors") if path == "own.txt" else ()),
        }:
            done = tacit(*command, *read, written, name, *needed, "--force")
            refused(done, "another file", *(() if command[1] == "encode" else (flag,)))
    assert {path.read_text() for path in place.rglob("*.txt")} == {TEXT}


def test_a_file_of_a_folder_that_is_read_is_an_input(tacit: Tacit, place: Path) -> None:
    done = tacit("hidden", "geometry", "--layer", "1", "--texts", "texts", "--json",
                 "texts/a.txt", "--force")  # fmt: skip
    refused(done, "--json", "--texts")


@pytest.mark.parametrize(
    "command",
    [("statistic", "data.csv", "--query", "mean"), ("show", "data.csv"), ("gate", "data.csv"),
     ("classifier", "data.csv"), ("hidden", "attack", "data.csv"),
     ("specification", "show", "data.csv")],
)  # fmt: skip
def test_the_file_that_other_commands_read_is_an_input(
    tacit: Tacit, place: Path, command: tuple[str, ...]
) -> None:
    done = tacit(*command, "--json", "data.csv", "--force")
    assert done.code == 2
    assert (place / "data.csv").read_text() == TEXT


@pytest.mark.parametrize("more", [(), ("--explain",)])
@pytest.mark.parametrize("written", ["table.csv", "other.csv"])
def test_a_table_of_a_select_is_an_input(
    tacit: Tacit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str,
    more: tuple[str, ...],
) -> None:  # fmt: skip
    pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text("who,age\n1,2\n")
    os.link(tmp_path / "table.csv", tmp_path / "other.csv")
    done = tacit("sql", "SELECT COUNT(*) FROM t", "--table", "t=table.csv", "--person", "who",
                 "--epsilon", "1", "--json", written, "--force", *more)  # fmt: skip
    refused(done, "--json", "another file")
    assert (tmp_path / "table.csv").read_text() == "who,age\n1,2\n"


def test_what_is_new_or_of_another_name_may_be_written(place: Path) -> None:
    assert new_file("--out", "new.json", force=False) == (place / "new.json").resolve()
    own = (place / "own.txt").resolve()
    refuse_inputs("--out", own, {"--out": "own.txt", "--prompts": "public.txt", "--x": None})
    with pytest.raises(ValueError, match="--out: expected another file than --prompts"):
        refuse_inputs("--out", own, {"--prompts": "own.txt"})


def test_a_ledger_is_replaced_by_nothing(place: Path, tacit: Tacit) -> None:
    book = place / "ledger.db"
    Ledger(book)
    kept = book.read_bytes()
    asked = ("account", "laplace", "--scale", 1, "--json", book)
    refused(tacit(*asked, "--force"), "--json", "a database of SQLite as a ledger is")
    assert book.read_bytes() == kept
    # what only begins like one is replaced
    (place / "near.json").write_bytes(kept[:15])
    assert tacit(*asked[:-1], "near.json", "--force").code == 0


@pytest.mark.parametrize(
    "content",
    [json.dumps([{"model": "m"}]), '{"key": "mine"}', "a text", TEXT + "more", '{"key": "0123"}'],
)
def test_a_file_that_is_no_table_of_points_is_left_as_it_is(tmp_path: Path, content: str) -> None:
    from tacit.hidden_states.audit.points import PointTable

    path = tmp_path / "week.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="out: "):
        PointTable(path)
    assert path.read_text() == content


@pytest.mark.parametrize("cut", ["{", '{"ke', '{"key": "0a', '{"key": "%s", "mod' % ("0" * 24)])
def test_a_line_that_was_cut_off_is_dropped(tmp_path: Path, cut: str) -> None:
    from tacit.hidden_states.audit.points import PointTable

    path = tmp_path / "points.jsonl"
    path.write_text(cut)
    assert len(PointTable(path)) == 0
    assert path.read_text() == ""
