"""Pages of promises about rows and tables, certificates and comparisons: what they say and hide."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from tacit import Effort, Rows, Table, privatize
from tacit.pages import NARROW, WIDE
from tacit.pages.numbers import epsilon_at, number_lines
from tacit.pages.strength import assumed
from tacit.releases import Number, Provenance, Release
from tacit.releases.showing import HALF
from tacit.report import render_certificate, render_report, write_certificate
from tacit.statistics import Query
from tacit.statistics.page import noise_figure
from tacit.text import whole_beside
from tacit_lab.comparison import compare
from tacit_lab.comparison.page import render_comparison
from tests.accessible import unbracketed

PROVENANCE = Provenance(
    command="tacit statistic table.csv",
    data_name="table.csv",
    data_fingerprint="sha256:beef",
    data_rows=61,
)
BOUNDS = [(-5.0, 5.0), (-5.0, 5.0)]
VOID_ELEMENTS = {"meta", "line", "rect", "circle", "polyline", "wbr", "br"}


def rows() -> Any:
    return np.random.default_rng(5).normal(size=(61, 2)) + 1.0


@pytest.fixture(
    scope="module",
    params=[Rows(success=0.6), Table(success=0.6, bounds=BOUNDS)],
    ids=["rows", "table"],
)
def release(request: pytest.FixtureRequest) -> Release[Any]:
    effort = Effort(trials=200)
    drawn = privatize("mean+std", rows(), request.param, effort, columns=("a", "b"))
    return replace(drawn, provenance=PROVENANCE)


class Balanced(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [name for name, _ in attrs if name in ("src", "href") or name[:2] == "on"]
        if tag not in VOID_ELEMENTS:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def plain(page: str) -> str:
    """The page without its style and its JSON."""
    return re.sub(r"<(style|script).*?</\1>", "", page, flags=re.S)


def test_the_page_says_what_is_promised_and_what_is_not(release: Release[Any]) -> None:
    page = render_report(release)
    assert Balanced(page).loads == []
    text = unbracketed(plain(page)).replace("&#39;", "'").replace("<wbr>", "")
    assert "60%: the most often anyone can be right about" in text
    for number in release.numbers or ():
        assert number.name in text
    for line in assumed(release):
        assert line in text
    by_rows = release.kind == "statistic-rows"
    assert ("with sampling" in text) == by_rows
    assert ("What the noise costs" in text) == by_rows
    assert "evidence, not a guarantee." in text


def test_a_certificate_has_nothing_that_was_measured(release: Release[Any]) -> None:
    page = render_certificate(release)
    assert Balanced(page).loads == []
    assert release.attacks
    text = plain(page)
    for word in ("beef", "likelihood ratio", "strongest attack", 'most_exposed": 1'):
        assert word not in page
    for number in release.numbers or ():
        assert whole_beside(number.value, number.half_width()) in text
    if release.kind == "statistic-table":
        # the size of the table as a number of its own, not digits of a noisy one
        assert not re.search(r"(?<![\d.,])61(?![\d.,])", text)


def test_no_certificate_for_what_guarantees_nothing(tmp_path: Any) -> None:
    seeded = privatize("mean", rows(), Rows(success=0.6), Effort(trials=0), rng=1)
    path = tmp_path / "c.html"
    with pytest.raises(ValueError, match="No guarantee"):
        write_certificate(seeded, path)
    assert not path.exists()
    assert "No guarantee" in render_report(seeded)


def test_a_hostile_name_stays_text() -> None:
    evil = '<img src=x onerror=alert(1)>"</script>'
    named = privatize(Query("mean", (evil, "b")), rows(), Rows(success=0.6), Effort(trials=0))
    for page in (render_report(named), render_certificate(named)):
        assert Balanced(page).loads == []
        assert "<img" not in page


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_noise_is_drawn_where_its_axis_says(width: int) -> None:
    numbers = tuple(
        Number(name=f"n{place}", value=1.0, error=error, sampling=1.0)
        for place, error in enumerate((0.25, 0.5, 2.0))
    )
    svg = str(noise_figure(numbers, width=width))
    bars = [
        float(x2) - float(x1)
        for x1, x2 in re.findall(r'class="bound" x1="([\d.]+)" y1="[\d.]+" x2="([\d.]+)"', svg)
    ]
    assert np.allclose(np.array(bars) / bars[0], [1.0, 2.0, 8.0], rtol=1e-3)
    assert noise_figure((Number(name="n", value=1.0, error=0.1),), width=width) is None


def test_numbers_are_said_with_both_intervals() -> None:
    known = Number(name="a", value=10.0, error=1.0, sampling=2.0)
    assert number_lines([known]) == ["a = 10.0 ± 2.0 (with sampling ± 4.4) (" + HALF + ")"]
    assert number_lines([Number(name="b", value=3.0, error=0.0)]) == [
        "b = 3 exactly (" + HALF + ")"
    ]


def test_epsilon_is_one_that_holds() -> None:
    release = privatize("mean", rows(), Rows(mu=1.3), Effort(trials=0))
    private: Any = release.guarantees[1]
    for delta in (1e-3, 1e-9):
        epsilon = epsilon_at(private, delta)
        assert private.approximate(epsilon).delta <= delta
        assert private.approximate(0.99 * epsilon).delta > delta


def test_the_comparison_shows_every_promise_and_attack() -> None:
    effort = Effort(simulations=60, trials=200, workers=1)
    found = compare("mean", rows(), Table(success=0.7, bounds=BOUNDS), effort, rng=1)
    page = render_comparison(found, PROVENANCE)
    assert Balanced(page).loads == []
    assert page.count('class="noise-point"') == 2 * len(found.results) == 8
    assert page.count('class="measured-open"') == 8
    for result in found.results:
        assert result.hides in page
        assert result.success <= 0.7 + 1e-9
        for attack in result.attacks:
            assert attack.success.low <= 0.7
    table = found.results[3]
    assert table.rows == 61
    assert table.sampling == pytest.approx(found.results[0].unit)
