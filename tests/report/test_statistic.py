"""The report: what it says first, what its figures show, and that it is one safe, whole file."""

from __future__ import annotations

import copy
import json
import math
import re
from dataclasses import replace
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import Draw, Effort, load, privatize
from tacit.covariance import Dense, Isotropic
from tacit.measured import Interval
from tacit.pages import NARROW, WIDE, SuccessPlot, success_figure, verdict
from tacit.releases import Provenance, Release
from tacit.releases.loading import read_checked
from tacit.report import render_report, write_report
from tacit.statistics.draws.page import variance_figure
from tacit.text import beside, percent_up, significant, significant_up, superscript
from tests.accessible import unbracketed

VOID_ELEMENTS = {"meta", "line", "rect", "circle", "polyline", "wbr", "br"}
PROVENANCE = Provenance(
    command="tacit statistic table.csv --query mean",
    data_name="table.csv",
    data_fingerprint="sha256:00",
    data_rows=60,
    data_columns=("a", "b", "c"),
)


@pytest.fixture(scope="module")
def release() -> Release[Any]:
    scales = np.array([1.0, 10.0, 0.1])
    pool = np.random.default_rng(5).normal(size=(60, 3)) * scales + 3.0
    effort = Effort(simulations=200, trials=400, workers=1)
    drawn = privatize("mean+std", pool, Draw(success=0.6), effort, columns=("a", "b", "c"))
    return replace(drawn, provenance=PROVENANCE)


@pytest.fixture
def content(release: Release[Any]) -> dict[str, Any]:
    return copy.deepcopy(release.to_dict())


class Structure(HTMLParser):
    """Checks that elements close in order; collects headings and everything that could load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[tuple[str, str]] = []
        self.headings: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href", "data", "action", "srcset") or name.startswith("on"):
                self.loads.append((name, value or ""))
        if tag not in VOID_ELEMENTS:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data)


def structure(page: str) -> Structure:
    found = Structure()
    found.feed(page)
    found.close()
    assert found.open == []
    return found


def embedded(page: str) -> Any:
    text = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S)
    assert text is not None
    return json.loads(text.group(1))


def test_the_verdict_comes_first_and_names_bound_and_attack(release: Release[Any]) -> None:
    page = structure(render_report(release))
    found = re.fullmatch(
        "Guessing blind: 50%. Our strongest attack: ([0-9.]+) ± [0-9.]+%. That is so if all an "
        "attacker knows of the secret is that one of 200 equally likely candidates was drawn.",
        verdict(release).conditions,
    )
    assert page.headings[0] == (
        "60%: the most often anyone can be right about whether one row was drawn."
    )
    assert found is not None
    assert found[0] in unbracketed(render_report(release))
    assert abs(float(found[1]) - 100 * release.attacks[0].success.value) < 0.0501
    assert page.headings[1:] == [
        "What was released",
        "Guaranteed and measured",
        "Where the noise goes",
        "How the bound follows",
        "The promise",
        "What attacks reached",
        "What it does not hide",
        "What is assumed",
        "How it was made",
    ]


def test_the_page_loads_nothing(release: Release[Any]) -> None:
    page = render_report(release)
    assert structure(page).loads == []
    without_namespace = page.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?://|url\(|@import|<link|<iframe|<img", without_namespace)


def test_the_embedded_json_is_the_release(release: Release[Any]) -> None:
    found = embedded(render_report(release))
    assert found == release.to_dict()
    assert load(found).guarantees == release.guarantees


def test_names_and_commands_cannot_inject(release: Release[Any]) -> None:
    evil = '</script><script>alert("x")</script><img src=x onerror=alert(1)>\u2028'
    numbers = release.numbers
    assert numbers is not None
    hostile = replace(
        release,
        title=evil,
        numbers=replace(numbers, names=(evil, *numbers.names[1:])),
        provenance=Provenance(command=evil, data_name=evil, data_columns=(evil,)),
    )
    page = render_report(hostile)
    assert structure(page).loads == []
    assert page.count("<script") == 1
    assert "<img" not in page
    assert embedded(page)["numbers"]["names"][0] == evil


def test_everything_promised_is_on_the_page(release: Release[Any]) -> None:
    page = render_report(release)
    for held in release.guarantees:
        for sentence in (held.describe(), *held.assumptions):
            assert sentence in page.replace("&#39;", "'").replace("&#34;", '"')
    for text in ("operating system entropy", "logarithmic axis", "Keep this page with the data"):
        assert text in page
    assert np.__version__ in page
    assert PROVENANCE.command in page


def test_a_seeded_release_says_that_it_has_no_guarantee(content: dict[str, Any]) -> None:
    content["reproducible"], content["seed"] = True, 7
    del content["proof"]
    page = render_report(content)
    assert structure(page).headings[0].startswith("No guarantee: ")
    assert "the seed 7" in page
    assert "operating system entropy: this draw" not in page
    assert "guaranteed: at most" not in page
    assert verdict(load(content)).success == 1.0


def test_an_attack_above_the_bound_overrules_it(content: dict[str, Any]) -> None:
    content["attacks"][0]["success"].update(value=0.72, low=0.7, high=0.77)
    found = verdict(read_checked(content).release)
    assert found.kind == "contradicted"
    assert found.sentence.startswith("Do not release this")


def test_without_an_attack_the_page_says_so(content: dict[str, Any]) -> None:
    content["attacks"] = []
    content["details"]["most_exposed"] = None
    page = render_report(content)
    assert "No attack on it was run" in page
    assert "strongest attack" not in page
    assert 'class="measured"' not in page.split("Where the noise goes")[0]


def test_an_edited_success_is_refused(content: dict[str, Any]) -> None:
    content["guarantees"][0]["success"] = 0.501
    with pytest.raises(ValueError, match="success"):
        render_report(content)


def numbers(svg: str, pattern: str) -> list[tuple[float, ...]]:
    return [tuple(map(float, found.groups())) for found in re.finditer(pattern, svg)]


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_bound_and_the_attack_stand_where_the_axis_says(
    release: Release[Any], width: int
) -> None:
    bound, attack = release.success(release.membership), release.attacks[0]
    assert attack.worst is not None
    rows: tuple[tuple[str, Interval], ...] = (
        ("attack, every trial", attack.success),
        ("attack, worst record", attack.worst),
    )
    plot = SuccessPlot(task=attack.task, bound=bound, prior=0.5, void=False, rows=rows)
    svg = str(success_figure(plot, width=width))
    ticks = numbers(svg, r'class="tick" x="([\d.]+)"[^>]*>([\d.]+)%')
    pixels, shares = np.array(ticks).T
    slope, offset = np.polyfit(shares / 100, pixels, 1)
    line = numbers(svg, r'<line class="bound" x1="([\d.]+)"')
    points = numbers(svg, r'<circle class="measured-point" cx="([\d.]+)"')
    assert line[0][0] == pytest.approx(slope * bound + offset, abs=0.05)
    expected = [measured.value for _, measured in rows]
    assert [p[0] for p in points] == pytest.approx([slope * e + offset for e in expected], abs=0.05)
    ends = numbers(svg, r'<line class="measured" x1="([\d.]+)" y1="[\d.]+" x2="([\d.]+)"')
    interval = (attack.success.low, attack.success.high)
    assert ends[0] == pytest.approx([slope * e + offset for e in interval], abs=0.05)
    # the page draws this figure
    assert svg in render_report(release)


@pytest.mark.parametrize("bound", [0.51, 0.6, 0.8, 1.0])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_no_label_leaves_the_figure(bound: float, width: int) -> None:
    rows = (("attack, worst record", Interval(value=0.64, low=0.538, high=0.734)),)
    task = "which of two neighbouring inputs (add or remove one record) was used"
    plot = SuccessPlot(task=task, bound=bound, prior=0.5, void=True, rows=rows)
    svg = str(success_figure(plot, width=width))
    labels = re.findall(r'<text class="[^"]*" x="([\d.]+)"[^>]*text-anchor="(\w+)">([^<]*)', svg)
    assert len(labels) >= 6
    for x, anchor, words in labels:
        share = {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
        # a character of these fonts is 6.4 pixels wide on average
        left = float(x) - share * 6.4 * len(words)
        assert left >= 0, words
        assert left + 6.4 * len(words) <= width, words


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_variances_stand_where_the_log_axis_says(width: int) -> None:
    noise, output = np.array([100.0, 10.0, 1.0]), np.array([50.0, 0.5, 0.001])
    svg = str(variance_figure(output, noise, width=width))
    plain = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    ticks = re.findall(r'class="tick" x="[\d.]+" y="([\d.]+)"[^>]*>10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)<', svg)
    heights = np.array([float(y) - 4 for y, _ in ticks])
    powers = np.array([float(power.translate(plain)) for _, power in ticks])
    slope, offset = np.polyfit(powers, heights, 1)
    steps = re.search(r'<polyline class="bound" points="([^"]+)"', svg)
    assert steps is not None
    drawn = [float(pair.split(",")[1]) for pair in steps.group(1).split()][::2]
    assert drawn == pytest.approx([slope * p + offset for p in (2, 1, 0)], abs=0.1)
    circles = numbers(svg, r'<circle class="measured-point" cx="[\d.]+" cy="([\d.]+)"')[:3]
    values = [math.log10(v) for v in (50.0, 0.5, 0.001)]
    assert [c[0] for c in circles] == pytest.approx([slope * v + offset for v in values], abs=0.1)


def test_bounds_and_measurements_share_neither_colour_nor_mark(release: Release[Any]) -> None:
    page = render_report(release)
    style = page.split("</style>")[0]
    for scheme in (style.split("@media")[0], style.split("@media")[1]):
        colours = dict(re.findall(r"--(bound|measured): (#\w+);", scheme))
        assert colours["bound"] != colours["measured"]
    assert '<circle class="bound' not in page
    assert '<polyline class="measured' not in page


@pytest.mark.parametrize(
    ("noise", "output"),
    [([0.5], [0.1]), ([3.0], [3.0]), ([1.0, 0.0], [1.0, 0.0]), ([1.0] * 900, [2.0] * 900)],
)
def test_figures_of_few_many_and_silent_directions(noise: list[float], output: list[float]) -> None:
    for width in (WIDE, NARROW):
        svg = variance_figure(np.array(output), np.array(noise), width=width)
        assert svg is not None
        assert "nan" not in svg
        assert "inf" not in svg


def test_a_constant_output_has_no_noise_to_draw() -> None:
    release = privatize(
        lambda rows: np.ones(2), np.eye(8), Draw(success=0.6), Effort(simulations=20, workers=1)
    )
    assert variance_figure(np.zeros(2), np.zeros(2), width=WIDE) is None
    page = render_report(release)
    assert "no noise is added" in page
    structure(page)


def widened(release: Release[Any], count: int, covariance: Any) -> Release[Any]:
    """Return the release with so many numbers, each with noise of variance 1."""
    assert release.numbers is not None
    ones = np.ones(count)
    numbers = replace(
        release.numbers,
        names=tuple(f"out{index}" for index in range(count)),
        values=ones,
        errors=ones,
        sampling=None,
    )
    details = release.details
    design = replace(details.design, covariance=covariance)
    details = replace(details, design=design, output_mean=ones, output_variance=ones)
    return replace(release, numbers=numbers, details=details)


def test_many_outputs_fold_away(release: Release[Any]) -> None:
    page = render_report(widened(release, 50, Isotropic(variance=1.0, dim=50)))
    assert "<summary>34 more numbers</summary>" in page
    structure(page)


def test_a_page_does_not_carry_a_heavy_release(release: Release[Any]) -> None:
    matrix = np.where(np.eye(600, dtype=bool), 1.0, 0.00123456789)
    page = render_report(widened(release, 600, Dense(matrix)))
    assert len(page) < 1_000_000
    assert "<script" not in page
    assert "leaves out the JSON of the release" in page
    structure(page)


def test_the_file_is_written_whole_or_not_at_all(
    release: Release[Any], content: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    assert write_report(release, path) == path.resolve()
    before = path.read_text(encoding="utf-8")
    del content["guarantees"]
    with pytest.raises(ValueError, match=re.escape("guarantees")):
        write_report(content, path)
    assert path.read_text(encoding="utf-8") == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_unwritable_paths_get_a_sentence(release: Release[Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such folder"):
        write_report(release, tmp_path / "none" / "report.html")
    with pytest.raises(ValueError, match="folder or device"):
        write_report(release, tmp_path)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ValueError, match="expected a folder"):
        write_report(release, file / "report.html")
    file.chmod(0o400)
    with pytest.raises(ValueError, match="read-only"):
        write_report(release, file)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda c: c["numbers"].pop("names"), "release.numbers: expected the fields"),
        (lambda c: c["numbers"].update(values=[1.0]), "numbers"),
        (lambda c: c.update(reproducible="no"), "release.reproducible"),
        (lambda c: c["guarantees"].pop(), "states the nats"),
        (lambda c: c["attacks"][0]["success"].update(value=1.5), "attacks[0].success"),
        (lambda c: c["attacks"][0]["success"].update(low=0.6, high=0.5), "attacks[0].success"),
        (lambda c: c["details"].update(pool_rows=0), "pool_rows"),
        (lambda c: c["details"].update(candidates=0), "candidates"),
        (lambda c: c["details"].update(output_variance=["x"] * 6), "output_variance"),
    ],
)
def test_what_is_not_a_release_is_refused(
    content: dict[str, Any], change: Any, sentence: str
) -> None:
    change(content)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        render_report(content)


@given(st.floats(min_value=0.0, max_value=1.0))
@settings(derandomize=True, max_examples=300)
def test_a_printed_bound_is_never_below_the_bound(value: float) -> None:
    printed = Decimal(percent_up(value)[:-1]) / 100
    assert printed >= Decimal(repr(value))
    assert printed - Decimal(repr(value)) <= Decimal("0.001")


@given(st.floats(min_value=1e-12, max_value=1e12))
@settings(derandomize=True, max_examples=300)
def test_printed_nats_are_never_below_the_nats(value: float) -> None:
    plain = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    text = re.sub(r" × 10(.*)$", lambda m: "e" + m.group(1).translate(plain), significant_up(value))
    assert float(text.replace(",", "")) >= value * (1 - 1e-15)
    assert float(text.replace(",", "")) <= value * 1.0101


def test_numbers_are_printed_to_the_digits_they_carry() -> None:
    assert percent_up(0.55) == "55.0%"
    assert percent_up(0.5500001) == "55.1%"
    assert beside(5.843333, 0.0123) == "5.843"
    assert beside(-0.31, 1.7) == "−0.3"
    assert beside(123456.0, 1000.0) == "123,500"
    assert beside(2.0, 0.0) == "2.00000"
    assert significant(0.0) == "0"
    assert significant(1.5e-9) == "1.50 × 10⁻⁹"
    assert superscript(-10) == "⁻¹⁰"


def test_the_page_shows_what_the_exact_information_replaced(release: Release[Any]) -> None:
    held = [replace(one, evidence="statistical", confidence=0.999) for one in release.guarantees]
    design = replace(release.details.design, confidence=0.999)
    details = replace(release.details, design=design, gaussian_information=0.654, noise_saved=0.321)
    text = render_report(replace(release, guarantees=tuple(held), details=details))
    for words in ("budget asked for", "with probability 0.999", "0.654 nats", "32.1%"):
        assert words in text


def test_without_a_confidence_the_bound_holds_always(release: Release[Any]) -> None:
    text = render_report(release)
    assert "always" in text
    assert "replaced" not in text
