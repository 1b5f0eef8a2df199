"""``tacit classifier``: the form alone gives it a page, a gate, a ledger entry and ten lines."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.cli.console import command_line
from tacit.ledger import Ledger
from tacit.pages.words import MOST_NUMBERS
from tacit.releases import load
from tests.cli_runner import Tacit, refused

BOUND = "0.3"


def embedded(page: str) -> Any:
    """The release in the JSON of a page."""
    found = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    source = np.random.default_rng(0)
    labels = np.arange(60) % 3
    logits = 4 * np.eye(3)[labels] + source.normal(size=(60, 3))
    path = tmp_path / "logits.csv"
    table = np.column_stack([logits, labels])
    np.savetxt(path, table, delimiter=",", header="a,b,c,label", comments="")
    return path


def test_a_release_is_stored_shown_and_gated(data: Path, tmp_path: Path, tacit: Tacit) -> None:
    out, page, book = tmp_path / "r.json", tmp_path / "r.html", tmp_path / "book.db"
    done = tacit(
        *("classifier", data, "--label", "label", "--success", BOUND, "--rows", "3,5"),
        *("--json", out, "--report", page, "--ledger", book, "--secret", "inputs"),
    )
    assert done.code == 0, done.err
    release = load(out)
    assert release.kind == "classifier"
    assert release.details.logits.shape == (2, 3)
    assert release.membership.success <= float(BOUND)
    assert Ledger(book).spent("inputs").nats >= 2 * release.information
    text = page.read_text(encoding="utf-8")
    assert "the queried input" in text
    assert "the label of the queried input" in text
    shown = tacit("show", out).out.splitlines()
    # the verdict and further numbers aside
    assert len([row for row in shown[1:] if not row.startswith(" ")]) <= 11
    assert any("accuracy" in row for row in shown)
    assert tacit("gate", out, "--max-success", "1").code == 0
    assert tacit("gate", out, "--max-success", BOUND).code == 1  # the label is guessed more often


def test_a_dry_run_draws_and_writes_nothing(data: Path, tmp_path: Path, tacit: Tacit) -> None:
    book = tmp_path / "book.db"
    done = tacit("classifier", data, "--mi-budget", "1", "--dry-run", "--ledger", book)
    assert done.code == 0, done.err
    assert "logit[3] ±" in done.out
    assert "nothing: this was a dry run" in done.out
    assert not book.exists()


def test_many_logits_are_told_in_short(data: Path, tacit: Tacit) -> None:
    done = tacit("classifier", data, "--mi-budget", "1", "--rows", "1,2,3,4", "--no-attack")
    assert done.code == 0, done.err
    released = [row for row in done.out.splitlines() if "logit[" in row]
    assert sum(row.count(" = ") for row in released) == MOST_NUMBERS
    assert " more (± is a 95% half-width" in released[-1]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--label", "none"], "--label: expected one of the columns"),
        (["--rows", "1;2"], "--rows: expected row numbers"),
        (["--rows", "99"], "--rows: expected indices 0 to 59"),
        (["--secret", "s"], "--secret: expected --ledger"),
    ],
)
def test_bad_flags(data: Path, tacit: Tacit, flags: list[str], words: str) -> None:
    refused(tacit("classifier", data, "--mi-budget", "1", *flags), words)


def test_a_certificate_holds_what_is_public(data: Path, tmp_path: Path, tacit: Tacit) -> None:
    page = tmp_path / "public.html"
    done = tacit(
        *("classifier", data, "--label", "label", "--success", BOUND, "--rows=3,5"),
        *("--certificate", page, "--no-attack"),
    )
    assert done.code == 0, done.err
    text = page.read_text(encoding="utf-8")
    assert "the queried input from its row alone" in text
    assert "All 2 rows tell at most" in text
    assert "row 2, logit[2]" in text.replace("<wbr>", "")
    published = embedded(text)
    for name in ("design", "accuracy_clean", "fano", "output_variance"):
        assert published["details"][name] is None, name
    for name in ("attacks", "use", "remarks", "provenance", "seed"):
        assert not published[name], name
    assert "--rows" not in text
    refused(
        tacit(
            "classifier", data, "--mi-budget", "1", "--insecure-seed", "1", "--certificate", page
        ),
        "--certificate: expected no --insecure-seed",
    )


def test_a_long_list_is_in_the_json_of_its_certificate(
    data: Path, tmp_path: Path, tacit: Tacit
) -> None:
    page = tmp_path / "public.html"
    source = np.random.default_rng(1)
    table = np.column_stack([4 * np.eye(3)[np.arange(90) % 3] + source.normal(size=(90, 3))])
    np.savetxt(data, table, delimiter=",", header="a,b,c", comments="")
    assert tacit("classifier", data, "--mi-budget", "1", "--certificate", page).code == 0
    text = page.read_text(encoding="utf-8")
    assert "in the JSON of this page" in text
    assert text.count("row 1, logit") == 0
    assert np.shape(embedded(text)["details"]["logits"]) == (90, 3)


@pytest.mark.parametrize("given", [["--rows", "3,5"], ["--rows=3,5"]])
def test_which_inputs_stand_in_no_command_that_is_kept(
    monkeypatch: pytest.MonkeyPatch, given: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tacit", "classifier", "a.csv", *given, "--mi-budget", "1"])
    told = command_line(("--rows",))
    assert "3,5" not in told
    assert told == f"tacit classifier a.csv {given[0].partition('=')[0]}" + (
        "=... --mi-budget 1" if "=" in given[0] else " ... --mi-budget 1"
    )
