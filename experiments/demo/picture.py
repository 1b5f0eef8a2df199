"""Draw docs/images/report.svg: title, conditions and figure that lead the report of a release."""

from __future__ import annotations

import re
import sys
import textwrap
from dataclasses import replace
from html import escape, unescape
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory

import statistic

from tacit import Draw, Effort, privatize
from tacit.releases import Provenance
from tacit.report import write_report

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "report.svg"
WIDTH, MARGIN, LINE, LETTERS = 720, 36, 34, 50
SMALL, SMALL_LETTERS = 21, 92


def main() -> int:
    """Write the picture."""
    PICTURE.write_text(picture(page()), encoding="utf-8")
    print(PICTURE)
    return 0


def page() -> str:
    """Return the report of the demo's statistic."""
    columns, rows = statistic.iris()
    promise, effort = Draw(success=statistic.SUCCESS), Effort(simulations=4000)
    release = privatize(statistic.QUERY, rows, promise, effort, columns=columns)
    made = Provenance(command="", data_name="iris", data_rows=len(rows), data_columns=columns)
    with TemporaryDirectory() as folder:
        path = write_report(replace(release, provenance=made), Path(folder) / "report.html")
        return Path(path).read_text(encoding="utf-8")


def picture(html: str) -> str:
    """Return the page's headline above its first figure, in the page's own colours."""
    lines = textwrap.wrap(found_in(html, "h1"), LETTERS)
    below = textwrap.wrap(found_in(html, 'p class="conditions"'), SMALL_LETTERS)
    found = re.search(r"<svg[^>]*viewBox=\"0 0 (\d+) ([\d.]+)\".*?</svg>", html, re.DOTALL)
    if found is None:
        raise ValueError("the report has no figure")
    under = MARGIN + LINE * len(lines)
    top = under + SMALL * len(below) + MARGIN
    width = WIDTH - 2 * MARGIN
    tall = width * float(found[2]) / float(found[1])
    placed = f'<svg x="{MARGIN}" y="{top}" width="{width}" height="{tall:.2f}"'
    figure = found[0].replace("<svg", placed, 1)
    height = top + tall + MARGIN
    words = "\n".join(
        f'<text class="headline" x="{MARGIN}" y="{MARGIN - 8 + LINE * k}">{escape(line)}</text>'
        for k, line in enumerate(lines, 1)
    )
    words += "".join(
        f'\n<text class="conditions" x="{MARGIN}" y="{under + SMALL * k}">{escape(line)}</text>'
        for k, line in enumerate(below, 1)
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" \
font-size="13.5">
<style>{_style()}</style>
<rect width="100%" height="100%" style="fill: var(--page)"/>
{words}
{figure}
</svg>
"""


def found_in(html: str, tag: str) -> str:
    """Return the words of the first element that a page has of a tag."""
    found = re.search(rf"<{tag}>(.*?)</{tag.split()[0]}>", html, re.DOTALL)
    if found is None:
        raise ValueError(f"the report has no {tag}")
    return " ".join(unescape(re.sub(r"<[^>]+>", "", found[1])).split())


def _style() -> str:
    """The colours and the rules of figures of the page's own style sheet."""
    css = (resources.files("tacit.pages") / "page.css").read_text(encoding="utf-8")
    root = css[: css.index("}") + 1]
    rules = [line for line in css.splitlines() if line.startswith("svg .") or "svg text" in line]
    own = "svg { font-family: var(--sans); } .headline { font: 600 26px var(--serif); } "
    own += ".conditions { font: 14px var(--sans); fill: var(--quiet); }"
    return "\n".join([root.replace("color-scheme: light dark;", ""), *rules, own])


if __name__ == "__main__":
    sys.exit(main())
