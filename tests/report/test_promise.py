"""Pages of promises about rows and tables, certificates and comparisons: what they say and hide."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from tacit.releases.form import Number
from tacit.report.drawing import NARROW, WIDE
from tacit.report.numbers import epsilon_at, number_lines
from tacit.report.promise.figures import noise_figure

from tacit.releases import Provenance
from tacit.report import render_certificate, render_comparison, render_report, write_certificate
from tacit.statistics import NumbersRelease, compare, privatize
from tacit.text import beside

PROVENANCE = Provenance.capture(
    "tacit statistic table.csv", data_name="table.csv", data_fingerprint="sha256:beef", data_rows=61
)
BOUNDS = [(-5.0, 5.0), (-5.0, 5.0)]
VOID_ELEMENTS = {"meta", "line", "rect", "circle", "polyline", "wbr", "br"}


def rows() -> Any:
    return np.random.default_rng(5).normal(size=(61, 2)) + 1.0


@pytest.fixture(scope="module", params=["rows", "table"])
def release(request: pytest.FixtureRequest) -> NumbersRelease:
    more = {"bounds": BOUNDS} if request.param == "table" else {}
    return privatize(
        "mean+std", rows(), protect=request.param, success=0.6, columns=("a", "b"),
        attack_trials=200, progress=False, **more,
    )  # fmt: skip


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


def test_the_page_says_what_is_promised_and_what_is_not(release: NumbersRelease) -> None:
    page = render_report(release, PROVENANCE)
    assert Balanced(page).loads == []
    text = plain(page).replace("&#39;", "'").replace("<wbr>", "")
    assert "at most 60.0% of the time" in text
    for number in release.form.numbers:
        assert number.name in text
    for line in release.form.all_assumptions:
        assert line.removeprefix("not hidden: ") in text
    assert ("noise and sampling" in text) == (release.protect == "rows")
    assert ("What the noise costs" in text) == (release.protect == "rows")
    assert "An attack is evidence, not a guarantee." in text


def test_a_certificate_has_nothing_that_was_measured(release: NumbersRelease) -> None:
    page = render_certificate(release, PROVENANCE)
    assert Balanced(page).loads == []
    assert release.attack is not None
    text = plain(page)
    for word in ("beef", "likelihood ratio", "strongest we ran", "diagnostics"):
        assert word not in page
    for number in release.form.numbers:
        assert beside(number.value, number.error) in text
    if release.protect == "table":
        # the size of the table as a number of its own, not digits of a noisy one
        assert not re.search(r"(?<![\d.,])61(?![\d.,])", text)


def test_no_certificate_for_what_guarantees_nothing(tmp_path: Any) -> None:
    seeded = privatize("mean", rows(), success=0.6, rng=1, attack=False, progress=False)
    path = tmp_path / "c.html"
    with pytest.raises(ValueError, match="no guarantee"):
        write_certificate(seeded, path, PROVENANCE)
    assert not path.exists()
    assert "no guarantee" in render_report(seeded, PROVENANCE)


def test_a_hostile_name_stays_text() -> None:
    evil = '<img src=x onerror=alert(1)>"</script>'
    named = privatize("mean", rows(), success=0.6, names=(evil, "b"), attack=False, progress=False)
    for page in (render_report(named, PROVENANCE), render_certificate(named, PROVENANCE)):
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
    assert number_lines([known]) == ["a = 10.0 ± 2.0 (with sampling ± 4.4), ± 95%"]
    assert number_lines([Number(name="b", value=3.0, error=0.0)]) == ["b = 3.00000 exactly, ± 95%"]


def test_epsilon_is_one_that_holds() -> None:
    release = privatize("mean", rows(), mu=1.3, attack=False, progress=False)
    private: Any = release.guarantees[1]
    for delta in (1e-3, 1e-9):
        epsilon = epsilon_at(private, delta)
        assert private.approximate(epsilon).delta <= delta
        assert private.approximate(0.99 * epsilon).delta > delta


def test_the_comparison_shows_every_promise_and_attack() -> None:
    found = compare(
        "mean", rows(), success=0.7, bounds=BOUNDS, simulations=60, attack_trials=200, rng=1,
        workers=1, progress=False,
    )  # fmt: skip
    page = render_comparison(found, PROVENANCE)
    assert Balanced(page).loads == []
    assert page.count('class="noise-point"') == 2 * len(found.standings) == 8
    assert page.count('class="measured-open"') == 8
    for standing in found.standings:
        assert standing.hides in page
        assert standing.success <= 0.7 + 1e-9
        for attack in standing.attacks:
            assert attack.interval[0] <= 0.7
    table = found.standings[3]
    assert table.rows == 61
    assert table.sampling == pytest.approx(found.standings[0].unit)
