"""Every page is read aloud, walked by the keyboard, and light enough for a phone."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from tacit import Effort, Ledger, Rows, Table, privatize
from tacit.releases import Provenance, Release
from tacit.report import ledger_report, render_certificate, render_report
from tacit_lab.comparison import compare
from tacit_lab.comparison.page import render_comparison
from tests.accessible import COLOURS, contrasts, cut_off, faults
from tests.releases.files import MAKERS, real

LARGEST = 300_000


@pytest.mark.parametrize("name", MAKERS)
def test_a_report_and_its_certificate(name: str) -> None:
    release = Release.from_dict(real(name))
    pages = [render_report(release)]
    if not release.withheld:
        pages.append(render_certificate(release))
    for page in pages:
        assert faults(page) == []
        assert cut_off(page) == []
        assert len(page.encode()) <= LARGEST


def test_the_page_of_a_ledger_and_of_a_comparison(tmp_path: Path) -> None:
    rows, book = np.random.default_rng(0).normal(size=(40, 2)), Ledger(tmp_path / "ledger.db")
    privatize("mean", rows, Rows(success=0.6), Effort(trials=0), ledger=book, secret="rows")
    table = Table(success=0.6, bounds={"x0": (-5.0, 5.0), "x1": (-5.0, 5.0)})
    found = compare("mean", rows, table, Effort(simulations=40, trials=0))
    pages = [ledger_report(book).to_html(by) for by in ("secret", "month")]
    for page in [*pages, render_comparison(found, Provenance(command="tacit"))]:
        assert faults(page) == []
        assert cut_off(page) == []
        assert len(page.encode()) <= LARGEST


@pytest.mark.parametrize(("package", "sheets"), [("tacit.pages", 3), ("tacit_dock.pages", 2)])
def test_text_stands_out_on_screens_light_and_dark_and_on_paper(package: str, sheets: int) -> None:
    folder = resources.files(package)
    sheet = folder / "page.css" if package == "tacit.pages" else folder / "static" / "page.css"
    found = contrasts(sheet.read_text("utf-8"))
    assert len({block for block, _ in found}) >= sheets
    assert {key: value for key, value in found.items() if value < COLOURS[key[1]]} == {}


def test_what_is_missing_is_found() -> None:
    page = "<html><body><h1>a</h1><h3></h3><svg></svg><th>x</th><input name='q'></body></html>"
    assert len(faults(page)) >= 7
    drawn = '<svg viewBox="0 0 100 9"><text x="90" y="1" text-anchor="{}">a label</text></svg>'
    assert cut_off(drawn.format("end")) == []
    assert cut_off(drawn.format("start")) == ["a label"]
    css = ":root { --page: #fff; --ink: #999; }"
    assert contrasts(css)["block 0", "ink"] < COLOURS["ink"]
