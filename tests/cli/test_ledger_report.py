"""``tacit ledger report``: what was released, what is left, who may still be asked."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from tacit.ledger import Ledger
from tacit.report import ledger_report
from tests.cli_runner import Tacit, refused
from tests.ledger.guarantees import nats


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    book = Ledger(path)
    book.set_budget("customers", mi_budget=1.0)
    book.set_budget("payroll", mi_budget=0.25)
    for secret, cost in (("customers", 0.5), ("payroll", 0.25)):
        with book.reserve(secret, nats(cost), f"mean of {secret}") as reservation:
            reservation.mark_drawn()
            reservation.commit({})
    # nothing is drawn: cancelled
    with book.reserve("customers", nats(0.5), "=2+3") as reservation:
        reservation.cancel()
    return path


def test_a_page_and_a_table_say_who_may_still_be_asked(
    place: Path, tmp_path: Path, tacit: Tacit
) -> None:
    names = tmp_path / "names.csv"
    names.write_text('payroll,"Wages, 2026"\n')
    page, table = tmp_path / "q.html", tmp_path / "q.csv"
    done = tacit("ledger", "report", "--ledger", place, "--names", names,
                 "--report", page, "--csv", table)  # fmt: skip
    assert done.code == 0, done.err
    assert "2 releases about 2 secrets; nothing is left of Wages, 2026." in done.out
    text = page.read_text()
    assert "<strong>no</strong>" in text
    assert "Wages, 2026" in text
    assert "holder" in text
    assert "holder" in done.out
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert [(row["secret"], row["name"], row["counts"]) for row in rows] == [
        ("customers", "customers", "yes"),
        ("payroll", "Wages, 2026", "yes"),
        ("customers", "customers", "no"),
    ]
    # no spreadsheet runs a description
    assert rows[2]["release"] == "'=2+3"
    refused(tacit("ledger", "report", "--ledger", place, "--csv", table), "--force replaces it")


def test_a_time_and_months(place: Path, tacit: Tacit) -> None:
    book = Ledger(place)
    assert len(ledger_report(book, since="2020-01-01").entries) == 3
    later = ledger_report(book, since="2999-01-01")
    assert later.entries == ()
    assert later.headline.startswith("0 releases about 0 secrets since 2999-01-01")
    today = book.entries()[0].time[:10]
    assert len(ledger_report(book, since="2020-01-01", until=today).entries) == 3
    assert ledger_report(book, until="2020-01-01").entries == ()
    # the day itself is included, however ISO 8601 spells it
    assert len(ledger_report(book, until=today.replace("-", "")).entries) == 3
    # what is spent is all there ever was
    assert [account.spent.nats for account in later.secrets] == [0.5, 0.25]
    month = book.entries()[0].time[:7]
    assert f">{month}</h2>" in ledger_report(book).to_html("month")
    shown = tacit("ledger", "report", "--ledger", place, "--by", "month")
    assert shown.code == 0


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--since", "soon"), "--since: expected a day"),
        (("--until", "soon"), "--until: expected a day"),
        (("--names", "{names}"), "--names: the ledger holds no secret 'custmers'"),
        (("--names", "missing.csv"), "--names: cannot read"),
        (("--by", "week"), "--by"),
        (("--report", "{ledger}"), "twice"),
    ],
)
def test_what_cannot_be_is_refused(
    place: Path, tmp_path: Path, tacit: Tacit, flags: tuple[str, ...], sentence: str
) -> None:
    names = tmp_path / "names.csv"
    names.write_text("custmers,Us\n")
    given = [flag.format(names=names, ledger=place) for flag in flags]
    refused(tacit("ledger", "report", "--ledger", place, *given), sentence)


def test_a_page_says_what_it_does_not_list(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.report.ledger.MOST_LISTED", 1)
    page = ledger_report(Ledger(place)).to_html()
    assert "The 2 older releases of this time stand in the table alone." in page
    assert page.count("mean of") == 0
