"""What axe-core finds on every kind of page, wide and narrow, light and dark, and its weight.

``npm install axe-core``, then ``python -m benchmarks.accessibility`` with the path of its
``axe.min.js``; further arguments are files or addresses to look at in place of the pages made here.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tests.chromium import chromium
from tests.dock.learnwares import card, files, keep, specification
from tests.dock.running import running
from tests.releases.files import MAKERS, real

from tacit import Effort, Ledger, Rows, Table, privatize
from tacit.releases import Provenance, Release
from tacit.report import ledger_report, render_certificate, render_report
from tacit_lab.comparison import compare
from tacit_lab.comparison.page import render_comparison

LOOKS = ((1280, "light"), (390, "dark"), (320, "light"))
LARGEST = 300_000
RUN = "axe.run(document, {resultTypes: ['violations']})"
OVER = "document.documentElement.scrollWidth - window.innerWidth"
WEIGHT = "new Blob([document.documentElement.outerHTML]).size"


def main() -> int:
    """Look at every page; return 1 where something is serious, too wide or too heavy."""
    axe, given = Path(sys.argv[1]).read_text(encoding="utf-8"), sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        wrong = 0
        for name, address in looked_at(Path(folder), given):
            for width, scheme in LOOKS:
                wrong += look(browser, axe, name, address, width, scheme)
    print("nothing serious" if not wrong else f"{wrong} serious")
    return bool(wrong)


def looked_at(folder: Path, given: list[str]) -> Iterator[tuple[str, str]]:
    """Give every page by a name and its address, the dock being served meanwhile."""
    if given:
        for one in given:
            yield one, one if "://" in one else Path(one).resolve().as_uri()
        return
    for name, html in pages(folder):
        place = folder / f"{name}.html"
        place.write_text(html, encoding="utf-8")
        yield name, place.as_uri()
    with running(folder / "dock") as served:
        for seed in range(3):
            told = card(f"Digits {seed}", ("mnist", f"part{seed}"), "image")
            kept = keep(served.store, {**files(specification(seed)), "card": told}, key=str(seed))
        own = f"/learnwares/{kept['id']}"
        for path in ("/", "/search", "/submit", own, f"{own}/withdraw", "/nowhere"):
            yield f"dock {path}", served.url + path


def pages(folder: Path) -> Iterator[tuple[str, str]]:
    """Give the pages that are files: reports, certificates, a ledger's, a comparison."""
    for name in MAKERS:
        release = Release.from_dict(real(name))
        yield f"report-{name}", render_report(release)
        if not release.withheld:
            yield f"certificate-{name}", render_certificate(release)
    rows = np.random.default_rng(0).normal(size=(60, 2))
    book = Ledger(folder / "ledger.db")
    privatize("mean", rows, Rows(success=0.6), ledger=book, secret="rows", no_budget=True)
    yield "ledger", ledger_report(book).to_html()
    table = Table(success=0.6, bounds=[(-5.0, 5.0)] * 2)
    found = compare("mean", rows, table, Effort(simulations=60, trials=100))
    yield "comparison", render_comparison(found, Provenance(command="tacit statistic compare"))


def look(browser: Any, axe: str, name: str, address: str, width: int, scheme: str) -> int:
    """Print what is wrong with one page, and return how many findings are serious."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True
    )
    page = context.new_page()
    page.goto(address)
    # what is folded away is read as well
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    page.evaluate(axe)
    found, over = page.evaluate(RUN)["violations"], page.evaluate(OVER)
    weight = page.evaluate(WEIGHT)
    context.close()
    told = [(one["impact"], f"{one['id']} ×{len(one['nodes'])} {one['nodes'][0]['html'][:120]}")
            for one in found]  # fmt: skip
    if over > 0:
        told.append(("serious", f"{over} px wider than the window"))
    if weight > LARGEST:
        told.append(("serious", f"{weight:,} bytes"))
    for impact, text in told:
        print(f"{name} {width} {scheme}: {impact}: {text}")
    return sum(impact in ("serious", "critical") for impact, _ in told)


if __name__ == "__main__":
    sys.exit(main())
