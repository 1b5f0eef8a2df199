"""What ``tacit statistic`` says where something is not as it takes it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli_runner import Tacit, refused
from tests.forks import forked_tacit

CITIES = ("Bern", "Oslo", "Paris")


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    lines = [f"{18 + 7 * i % 60},{CITIES[i % 3]},{i % 3}" for i in range(120)]
    path.write_text("\n".join(["age,city,region", *lines]) + "\n")
    return path


def asked(path: Path, *more: str) -> tuple[str, ...]:
    return ("statistic", str(path), "--no-attack", *more)


def test_a_module_of_the_folder_is_not_found_by_a_query_that_names_none(
    tacit: Tacit, people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(people.parent)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one not in ("", folder)])
    query = ("--query", "histogram:age:18,50,80", "--success", "0.6")
    assert tacit(*asked(people, *query, "--dry-run")).code == 0
    # a folder of data may hold a file that is called as a library is
    assert folder not in sys.path
    (people.parent / "mine_of_ages.py").write_text("def f(rows): return rows.mean(axis=0)\n")
    query = ("--query", "mine_of_ages:f", "--columns", "age", "--success", "0.6")
    tacit(*asked(people, *query, "--dry-run"))
    assert folder in sys.path


def test_a_success_below_guessing_blind_is_said_to_be_so(tacit: Tacit, people: Path) -> None:
    more = ("--columns", "age", "--query", "mean", "--sampling-rate", "1/3", "--success", "0.6")
    done = tacit(*asked(people, *more))
    refused(done, "more than 0.6667, which guessing blind is right")


def test_pairs_along_a_column_of_texts(tacit: Tacit, people: Path) -> None:
    more = ("--columns", "age", "--query", "mean", "--success", "0.6", "--pairs", "column:city")
    refused(tacit(*asked(people, *more)), "--category city")
    done = tacit(*asked(people, *more, "--category", "city"))
    assert done.code == 0, done.err
    assert "levels of city" not in done.out
    refused(tacit(*asked(people, *more[:-1], "column:")), "column:NAME")


def test_a_certificate_names_declared_levels_alone(tacit: Tacit, people: Path) -> None:
    page = people.with_name("certificate.html")
    more = ("--columns", "age,city", "--query", "mean by city", "--success", "0.6")
    more = (*more, "--certificate", str(page), "--force")
    assert tacit(*asked(people, *more, "--category", "city")).code == 0
    text = page.read_text()
    assert "city has 3 levels" in text
    assert not any(city in text for city in CITIES)
    assert tacit(*asked(people, *more, "--category", "city=Bern,Oslo,Paris")).code == 0
    assert "0 = Bern, 1 = Oslo, 2 = Paris" in page.read_text()


def test_a_comparison_leaves_out_the_promise_that_cannot_be_made(
    tacit: Tacit, people: Path
) -> None:
    done = tacit(
        *("statistic", "compare", str(people), "--columns", "age,region", "--success", "0.6"),
        *("--query", "mean by region", "--bounds", "age=0:120", "--no-attack"),
        *("--simulations", "60"),
    )
    assert done.code == 0, done.err
    assert "the promise about the table is left out: levels:" in done.out
    assert "rows matched" in done.out


def test_what_a_query_warns_of_is_one_sentence(people: Path) -> None:
    # no two ages are the same, so that every draw moves the mean
    people.write_text("\n".join(["age", *(str(18 + i * i / 100) for i in range(120))]) + "\n")
    people.with_name("warning_query.py").write_text(
        "import warnings\n"
        "def middle(rows):\n"
        "    warnings.warn(f'the first is {rows[0, 0]}')\n"
        "    return rows.mean(axis=0)\n"
    )
    more = ("--columns", "age", "--query", "warning_query:middle", "--success", "0.6")
    more = (*asked(people, *more), "--simulations", "50", "--workers", "1")
    done = forked_tacit(*more, cwd=people.parent)
    assert done.code == 0, done.err
    told = [line for line in done.err.splitlines() if "warn" in line]
    assert told == [
        "tacit: query: warning_query:middle warned on simulated rows "
        "(UserWarning, warning_query.py:3)"
    ]
