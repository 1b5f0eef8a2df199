"""``tacit session``: several questions, one budget, from a file and as they are typed."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tacit import Ledger
from tacit.cli.statistic.session import read_question
from tests.cli_runner import Tacit, refused

BOUNDS = ("--protect", "table", "--bounds", "age=0:100,income=0:60")


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    lines = [f"{18 + 7 * i % 60},{i},{('Bern', 'Oslo')[i % 2]}" for i in range(60)]
    path.write_text("\n".join(["age,income,city", *lines]) + "\n")
    return path


def asked(people: Path, *lines: str, more: tuple[str, ...] = BOUNDS) -> tuple[str, ...]:
    file = people.with_name("questions.txt")
    file.write_text("\n".join(lines) + "\n")
    out = ("--json", str(people.with_name("answers.json")), "--force")
    return ("session", str(people), "--success", "0.6", "--questions", str(file), *out, *more)


def test_answers_are_charged_and_kept_and_the_budget_holds(tacit: Tacit, people: Path) -> None:
    kept, book = people.with_name("kept.json"), people.with_name("ledger.db")
    more = (*BOUNDS, "--columns", "age,income", "--path", str(kept))
    more = (*more, "--ledger", str(book), "--secret", "people")
    lines = ("# a week", "price std share=0.5", "mean share=0.25", "sum by age:0,40,100 share=0.5")
    done = tacit(*asked(people, *lines, more=more))
    assert done.code == 0, done.err
    assert "25.0% of the budget after 2 answers" in done.out
    stored = json.loads(people.with_name("answers.json").read_text())
    assert len(stored["answers"]) == len(stored["spends"]) == 2
    charged = Ledger(book).spent("people").gaussian
    assert sum(charged.values()) == pytest.approx(sum(one**2 for one in stored["spends"]) ** 0.5)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    # taken up again, it has what was left; what was answered before a refusal is written
    done = tacit(*asked(people, "std share=0.2", "std share=0.2", more=more))
    assert (done.code, done.err.count("question 2: spend: expected at most")) == (2, 1)
    stored = json.loads(people.with_name("answers.json").read_text())
    assert len(stored["answers"]) == 3
    assert sum(one**2 for one in stored["spends"]) <= stored["budget"] ** 2


def test_a_column_that_is_grouped_by_is_read_unnamed(tacit: Tacit, people: Path) -> None:
    more = ("--columns", "age,income", "--category", "city=Bern,Oslo", *BOUNDS)
    done = tacit(*asked(people, "mean by city share=0.5", more=more))
    assert done.code == 0, done.err
    assert "Bern" in done.out


def test_a_dry_run_charges_nothing_and_leaves_no_file(tacit: Tacit, people: Path) -> None:
    kept = people.with_name("kept.json")
    more = ("--columns", "age,income", *BOUNDS, "--path", str(kept), "--dry-run")
    done = tacit(*asked(people, "mean share=0.9", "sum spend=0.3", more=more))
    assert done.code == 0, done.err
    assert "100.0% of the budget after 0 answers" in done.out
    assert not kept.exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("mean", "expected QUERY"),
        ("share=0.5", "expected QUERY"),
        ("mean share=0.5 error=1", "expected QUERY"),
        ("mean share=half", "a number for share"),
        ("mean share=1 share=1", "share stands twice"),
    ],
)
def test_a_line_without_a_price_is_refused_before_anything(
    tacit: Tacit, people: Path, line: str, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        read_question(line)
    done = tacit(*asked(people, "mean share=0.1", line, more=("--columns", "age,income", *BOUNDS)))
    refused(done, "--questions: ")
    assert not people.with_name("answers.json").exists()


def test_a_line_is_a_query_and_what_may_be_given_for_it() -> None:
    found = read_question("price least-squares by city error=5 target=income")
    assert (found.query, dict(found.price)) == ("least-squares by city", {"error": 5.0})
    assert (found.target, found.only) == ("income", True)
