"""Where commands write, whatever they are told to replace, and who reads their output."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tacit.design import isotropic
from tacit.hidden_states import Differences
from tacit.hidden_states import release as release_states
from tacit.releases import save_rows
from tacit.releases.stores import write_rows
from tests.cli_runner import QUICK, Tacit, refused, write_table
from tests.forks import command as command_of
from tests.forks import forked


@pytest.fixture
def stored(tmp_path: Path, tacit: Tacit) -> Path:
    path = tmp_path / "out.json"
    flags = ("--columns", "a,b", "--query", "mean", "--success", "0.6", "--no-attack", *QUICK)
    assert tacit("statistic", write_table(tmp_path), *flags, "--json", path).code == 0
    return path


def test_no_command_replaces_the_release_it_reads(stored: Path, tacit: Tacit) -> None:
    before = stored.read_bytes()
    for command in (("show",), ("gate", "--max-success", "0.6")):
        refused(tacit(*command, stored, "--json", stored, "--force"), "another file than RELEASE")
    assert stored.read_bytes() == before


def test_no_command_replaces_the_ledger_it_opens(tmp_path: Path, tacit: Tacit) -> None:
    ledger, data = tmp_path / "ledger.db", write_table(tmp_path)
    budget = ("ledger", "budget", "--ledger", ledger, "--secret", "a", "--mi-budget", "1")
    assert tacit(*budget).code == 0
    onto = ("--json", ledger, "--force")
    for command in (budget, ("ledger", "show", "--ledger", ledger)):
        refused(tacit(*command, *onto), "another file than --ledger")
    refused(tacit("ledger", "verify", "--ledger", ledger, *onto), "another file than --ledger")
    named = ("ledger", "budget", "--ledger", ledger, "--data", data, "--mi-budget", "1")
    refused(tacit(*named, "--json", data, "--force"), "another file than --data")
    assert tacit("ledger", "verify", "--ledger", ledger).code == 0


def test_two_outputs_are_two_files(tmp_path: Path, tacit: Tacit) -> None:
    same = tmp_path / "same.svg"
    both = ("--plot", same, "--json", same)
    refused(tacit("account", "gaussian", "--noise-std", "1", *both), "another file than --plot")
    model = ("audit", "model", "--layer", "1", "--report", same)
    refused(tacit(*model, "--points", same), "another file than --report")
    for command, other in (("release", "--json"), ("codebook", "--out")):
        flags = ("--layer", "1", "--out", same, "--json", same)
        refused(tacit("hidden", command, *flags), f"another file than {other}")
    assert not same.exists()


def test_only_json_goes_to_standard_output(tmp_path: Path, tacit: Tacit) -> None:
    flags = ("--columns", "a,b", "--query", "mean", "--success", "0.6", *QUICK, "--report", "-")
    refused(tacit("statistic", write_table(tmp_path), *flags), "--report: expected a file, got -")


def test_what_show_writes_is_shown_again(stored: Path, tmp_path: Path, tacit: Tacit) -> None:
    form = tmp_path / "form.json"
    first = tacit("show", stored, "--json", form)
    assert first.code == 0
    assert json.loads(form.read_text()) == json.loads(tacit("show", form, "--json", "-").out)
    assert tacit("show", form).out == first.out.rpartition("json ")[0]


def test_stored_states_are_shown(tmp_path: Path, tacit: Tacit) -> None:
    states = np.zeros((3, 2))
    noisy = release_states(states, isotropic([1.0, 1.0], 4.0), Differences(listed=[[2.0, 0.0]]))
    save_rows(noisy, tmp_path / "states.safetensors")
    outcome = tacit("show", tmp_path / "states.safetensors")
    assert outcome.code == 0
    assert "3 noisy states of width 2" in outcome.out
    refused(tacit("show", tmp_path / "none.safetensors"), "no such file")


@pytest.mark.parametrize(
    "command", [("--help",), ("account", "gaussian", "--noise-std", "1"), ("show",)]
)
def test_a_reader_that_went_away_is_no_crossed_threshold(
    stored: Path, command: tuple[str, ...]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    arguments = (*command, str(stored), "--json", "-") if command == ("show",) else command
    try:
        done = forked(lambda: command_of(*arguments), stdout=writing)
    finally:
        os.close(writing)
    assert done.returncode == 141, done.stderr
    assert "Traceback" not in done.stderr


def test_a_page_and_a_file_of_rows_are_verified_by_the_release_in_them(
    tacit: Tacit, tmp_path: Path
) -> None:
    data = write_table(tmp_path)
    page, rows = tmp_path / "page.html", tmp_path / "rows.npy"
    made = tacit(
        "statistic", data, "--query", "mean", "--columns", "a", "--protect", "table",
        "--bounds", "a=0:1", "--success", "0.6", "--no-attack", "--report", page,
    )  # fmt: skip
    assert made.code == 0, made.err
    states = np.random.default_rng(1).normal(size=(4, 2))
    noisy = release_states(states, isotropic([1.0, 1.0], 4.0), Differences(listed=[[2.0, 0.0]]))
    save_rows(noisy, rows)
    done = tacit("verify", page)
    assert (done.code, done.out.splitlines()[0]) == (0, f"{page}: holds"), done
    assert "and not what its words say" in done.out
    assert tacit("verify", rows).out.startswith(f"{rows}: ")
    answer = json.loads(tacit("verify", page, "--json", "-").out)
    assert (answer[0]["file"], answer[0]["word"]) == (str(page), "holds")


def test_a_file_that_says_more_than_its_proof_never_begins_with_holds(
    tacit: Tacit, tmp_path: Path
) -> None:
    path = tmp_path / "account.json"
    assert (
        tacit("account", "gaussian", "--noise-std", "1", "--delta", "1e-5", "--json", path).code
        == 0
    )
    assert tacit("verify", path).out.startswith(f"{path}: holds\n")
    path.write_text(json.dumps({**json.loads(path.read_text()), "statement": "Nothing is learnt."}))
    done = tacit("verify", path)
    assert done.code == 1
    assert done.out.startswith(f"{path}: only the proof in it holds\n")
    assert "the rest of the file disagrees with what was checked" in done.out
    path.write_text("no account")
    done = tacit("verify", path)
    assert done.code == 2
    assert done.out.splitlines()[1].startswith(f"{path}: nothing of it was checked: FILE: it is")


def piped(content: str) -> str:
    """Return the path of a pipe that holds a content, and can be read once."""
    reader, writer = os.pipe()
    os.write(writer, content.encode())
    os.close(writer)
    return f"/dev/fd/{reader}"


def test_of_a_pipe_what_is_checked_and_what_is_compared_are_one(stored: Path, tacit: Tacit) -> None:
    whole = json.loads(stored.read_text())
    assert tacit("verify", piped(json.dumps(whole))).code == 0
    assert tacit("gate", piped(json.dumps(whole)), "--max-success", "0.6").code == 0
    assert tacit("show", piped(json.dumps(whole))).code == 0
    lower = [{**held, "success": 0.51} for held in whole["guarantees"][:1]]
    edited = {**whole, "guarantees": [*lower, *whole["guarantees"][1:]]}
    # of another format nothing is compared, and a field twice is read in two ways
    other, twice = (
        {**edited, "format": "tacit.other"},
        json.dumps(whole).replace("{", '{"a": 1, ', 1),
    )
    for content in (json.dumps(edited), json.dumps(other), twice.replace("{", '{"a": 2, ', 1)):
        done = tacit("verify", piped(content))
        assert done.code, done.out
        assert not any(line.endswith(": holds") for line in done.out.splitlines()[:1])


def test_a_page_of_many_openings_is_refused_at_once(tmp_path: Path, tacit: Tacit) -> None:
    opening, page = '<script type="application/json" id="tacit-release">', tmp_path / "page.html"
    # sought from each to the end these would be ten billion characters
    for text, found in ((opening * 20_000, "more"), (opening + "{}", "none"), ("", "none")):
        page.write_text(text)
        refused(
            tacit("gate", page, "--max-success", "0.6"), f"the JSON of one release, got {found}"
        )


def test_a_file_of_other_rows_is_not_what_its_proof_is_of(tmp_path: Path, tacit: Tacit) -> None:
    states, path = np.random.default_rng(1).normal(size=(4, 2)), tmp_path / "rows.npy"
    noisy = release_states(states, isotropic([1.0, 1.0], 4.0), Differences(listed=[[2.0, 0.0]]))
    layout = noisy.details.layout
    write_rows("out", path, [states.astype(layout.dtype)], layout, lambda _: noisy)
    done = tacit("verify", path)
    assert (done.code, "not those that were released" in done.out) == (1, True), done
