"""The report: what it says first, what its figures show, and that it is one safe, whole file."""

from __future__ import annotations

import copy
import json
import math
import re
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tacit.report.drawing import NARROW, WIDE
from tacit.report.statistic.figures import success_plot, variance_figure
from tacit.report.statistic.words import success_bound, verdict
from tacit.report.success import success_figure

from tacit.releases import Provenance
from tacit.report import read_release, render_report, write_report
from tacit.statistics import StatisticRelease, privatize
from tacit.text import beside, percent_up, significant, significant_up, superscript

VOID_ELEMENTS = {"meta", "line", "rect", "circle", "polyline", "wbr", "br"}
PROVENANCE = Provenance.capture(
    "tacit statistic table.csv --query mean",
    data_name="table.csv",
    data_fingerprint="sha256:00",
    data_rows=60,
    data_columns=("a", "b", "c"),
)


@pytest.fixture(scope="module")
def release() -> StatisticRelease:
    scales = np.array([1.0, 10.0, 0.1])
    pool = np.random.default_rng(5).normal(size=(60, 3)) * scales + 3.0
    return privatize(
        "mean+std",
        pool,
        success=0.6,
        simulations=200,
        attack_trials=400,
        columns=("a", "b", "c"),
        workers=1,
        progress=False,
        protect="draw",
    )


@pytest.fixture
def content(release: StatisticRelease) -> dict[str, Any]:
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


def test_the_verdict_comes_first_and_names_bound_and_attack(release: StatisticRelease) -> None:
    page = structure(render_report(release, PROVENANCE))
    assert release.attack is not None
    found = re.fullmatch(
        "An attacker who knows everything but the noise and which rows were drawn "
        r"\([0-9,]+ candidates, all equally likely\) guesses "
        r"membership of any one row right at most 60\.0% of the time; the strongest we ran got "
        "([0-9.]+)\u00a0± [0-9.]+%\\.",
        page.headings[0].replace("±\u00a0", "± "),
    )
    assert found is not None
    assert abs(float(found[1]) - 100 * release.attack.success) < 0.0501
    assert page.headings[1:] == [
        "Guaranteed and measured",
        "Where the noise goes",
        "What was released",
        "The guarantee",
        "What is assumed",
        "How it was made",
    ]


def test_the_page_loads_nothing(release: StatisticRelease) -> None:
    page = render_report(release, PROVENANCE)
    assert structure(page).loads == []
    without_namespace = page.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?://|url\(|@import|<link|<iframe|<img", without_namespace)


def test_the_embedded_json_is_the_release(release: StatisticRelease) -> None:
    found = embedded(render_report(release, PROVENANCE))
    assert found.pop("provenance") == PROVENANCE.to_dict()
    assert found == release.to_dict()
    assert StatisticRelease.from_dict(found).guarantee == release.guarantee


def test_names_and_commands_cannot_inject(content: dict[str, Any]) -> None:
    evil = '</script><script>alert("x")</script><img src=x onerror=alert(1)>\u2028'
    content["names"][0] = content["query"] = evil
    content["form"]["numbers"][0]["name"] = content["form"]["title"] = evil
    provenance = Provenance.capture(evil, data_name=evil, data_columns=(evil,))
    page = render_report(content, provenance)
    assert structure(page).loads == []
    assert page.count("<script") == 1
    assert "<img" not in page
    assert embedded(page)["names"][0] == evil


def test_everything_promised_is_on_the_page(release: StatisticRelease) -> None:
    page = render_report(release, PROVENANCE)
    for sentence in (
        release.guarantee.describe(),
        release.membership.describe(),
        *release.guarantee.assumptions,
    ):
        assert sentence in page.replace("&#39;", "'").replace("&#34;", '"')
    for text in ("operating system entropy", "logarithmic axis", "Keep this page with the data"):
        assert text in page
    assert np.__version__ in page
    assert PROVENANCE.command in page


def test_a_seeded_release_says_that_it_has_no_guarantee(content: dict[str, Any]) -> None:
    for part in (content, content["form"]):
        part["reproducible"], part["seed"] = True, 7
    page = render_report(content, PROVENANCE)
    assert structure(page).headings[0].startswith("This release carries no guarantee")
    assert "the seed 7" in page
    assert "operating system entropy: this draw" not in page
    assert "guaranteed: at most" not in page
    assert verdict(read_release(content)).success == 1.0


def test_an_attack_above_the_bound_overrules_it(content: dict[str, Any]) -> None:
    content["attack"]["success"] = 0.72
    content["attack"]["interval"] = [0.7, 0.74]
    found = verdict(read_release(content))
    assert found.kind == "contradicted"
    assert found.sentence.startswith("Do not release this")


def test_without_an_attack_the_page_says_so(content: dict[str, Any]) -> None:
    content["attack"] = None
    content["form"]["attacks"] = []
    page = render_report(content, PROVENANCE)
    assert "No attack was run" in page
    assert "the strongest we ran" not in structure(page).headings[0]
    assert 'class="measured"' not in page.split("Where the noise goes")[0]


def test_an_edited_success_does_not_lower_the_bound(content: dict[str, Any]) -> None:
    stored = content["membership"]["success"]
    content["membership"]["success"] = 0.501
    assert success_bound(read_release(content)) >= stored * (1 - 1e-12)


def numbers(svg: str, pattern: str) -> list[tuple[float, ...]]:
    return [tuple(map(float, found.groups())) for found in re.finditer(pattern, svg)]


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_bound_and_the_attack_stand_where_the_axis_says(
    release: StatisticRelease, width: int
) -> None:
    record = read_release(release)
    assert record.attack is not None
    svg = str(success_figure(success_plot(record, success_bound(record)), width=width))
    ticks = numbers(svg, r'class="tick" x="([\d.]+)"[^>]*>([\d.]+)%')
    pixels, shares = np.array(ticks).T
    slope, offset = np.polyfit(shares / 100, pixels, 1)
    line = numbers(svg, r'<line class="bound" x1="([\d.]+)"')
    points = numbers(svg, r'<circle class="measured-point" cx="([\d.]+)"')
    assert line[0][0] == pytest.approx(slope * success_bound(record) + offset, abs=0.05)
    expected = [record.attack.success, record.attack.worst_success]
    assert [p[0] for p in points] == pytest.approx([slope * e + offset for e in expected], abs=0.05)
    ends = numbers(svg, r'<line class="measured" x1="([\d.]+)" y1="[\d.]+" x2="([\d.]+)"')
    assert ends[0] == pytest.approx([slope * e + offset for e in record.attack.interval], abs=0.05)


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_variances_stand_where_the_log_axis_says(content: dict[str, Any], width: int) -> None:
    diagnostics = content["diagnostics"]
    diagnostics["principal_noise_variance"] = [100.0, 10.0, 1.0]
    diagnostics["principal_output_variance"] = [50.0, 0.5, 0.001]
    svg = str(variance_figure(read_release(content), width=width))
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


def test_bounds_and_measurements_share_neither_colour_nor_mark(release: StatisticRelease) -> None:
    page = render_report(release, PROVENANCE)
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
def test_figures_of_few_many_and_silent_directions(
    content: dict[str, Any], noise: list[float], output: list[float]
) -> None:
    content["diagnostics"]["principal_noise_variance"] = noise
    content["diagnostics"]["principal_output_variance"] = output
    for width in (WIDE, NARROW):
        svg = variance_figure(read_release(content), width=width)
        assert svg is not None
        assert "nan" not in svg
        assert "inf" not in svg


def test_a_constant_output_has_no_noise_to_draw() -> None:
    release = privatize(
        lambda rows: np.ones(2), np.eye(8), success=0.6, simulations=20, workers=1, protect="draw"
    )
    record = read_release(release)
    assert variance_figure(record, width=WIDE) is None
    page = render_report(release, PROVENANCE)
    assert "no noise is added" in page
    structure(page)


def widen(content: dict[str, Any], count: int, covariance: dict[str, Any]) -> None:
    """Let a release hold so many numbers, each with noise of variance 1."""
    content["names"] = [f"out{index}" for index in range(count)]
    content["intervals"] = [content["intervals"][0]] * count
    content["release"] = [1.0] * count
    content["form"]["numbers"] = [
        {"name": name, "value": 1.0, "error": 1.0} for name in content["names"]
    ]
    for name in ("output_variance", "noise_variance"):
        content["diagnostics"][name] = [1.0] * count
    content["design"]["covariance"] = covariance


def test_many_outputs_fold_away(content: dict[str, Any]) -> None:
    widen(content, 50, {"type": "isotropic", "variance": 1.0, "dim": 50})
    page = render_report(content, PROVENANCE)
    assert "<summary>20 more outputs</summary>" in page
    structure(page)


def test_a_heavy_covariance_is_left_out_of_the_page_and_said_so(content: dict[str, Any]) -> None:
    matrix = np.where(np.eye(600, dtype=bool), 1.0, 0.00123456789)
    widen(content, 600, {"type": "dense", "matrix": matrix.tolist()})
    page = render_report(content, PROVENANCE)
    assert len(page) < 1_000_000
    assert "leaves out the covariance" in page
    assert embedded(page)["design"]["covariance"] is None
    assert embedded(page)["release"] == content["release"]


def test_the_file_is_written_whole_or_not_at_all(
    release: StatisticRelease, content: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    assert write_report(release, path, PROVENANCE) == path.resolve()
    before = path.read_text(encoding="utf-8")
    del content["guarantee"]
    with pytest.raises(ValueError, match="missing or malformed: no 'guarantee'"):
        write_report(content, path, PROVENANCE)
    assert path.read_text(encoding="utf-8") == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_unwritable_paths_get_a_sentence(release: StatisticRelease, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such folder"):
        write_report(release, tmp_path / "none" / "report.html", PROVENANCE)
    with pytest.raises(ValueError, match="folder or device"):
        write_report(release, tmp_path, PROVENANCE)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ValueError, match="expected a folder"):
        write_report(release, file / "report.html", PROVENANCE)
    file.chmod(0o400)
    with pytest.raises(ValueError, match="read-only"):
        write_report(release, file, PROVENANCE)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda c: c.pop("names"), "missing or malformed: no 'names'"),
        (lambda c: c.update(release=[1.0]), "contradicts itself about 'release'"),
        (lambda c: c.update(reproducible="no"), "contradicts itself about 'reproducible'"),
        (lambda c: c.update(guarantee=c["membership"]), "expected InformationBound"),
        (lambda c: c["attack"].update(success=1.5), "attack.success"),
        (lambda c: c["attack"].update(interval=[0.6, 0.5]), "attack.interval"),
        (lambda c: c["diagnostics"].update(pool_rows=0), "pool_rows"),
        (lambda c: c["diagnostics"].update(subset_rows=10**6), "subset_rows"),
        (lambda c: c["diagnostics"].update(noise_variance=["x"] * 6), "noise_variance"),
    ],
)
def test_what_is_not_a_release_is_refused(
    content: dict[str, Any], change: Any, sentence: str
) -> None:
    change(content)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        render_report(content, PROVENANCE)


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


def test_the_page_shows_what_the_exact_information_replaced(content: dict[str, Any]) -> None:
    for held in (content["guarantee"], content["form"]["guarantees"][1]):
        held.update(evidence="statistical", confidence=0.999)
    content["diagnostics"].update(gaussian_information=0.654, noise_saved=0.321)
    page = render_report(content, PROVENANCE)
    text = page
    for words in ("budget asked for", "with probability 0.999", "0.654 nats", "32.1%"):
        assert words in text


def test_without_a_confidence_the_bound_holds_always(release: StatisticRelease) -> None:
    text = render_report(release, PROVENANCE)
    assert "always" in text
    assert "replaced" not in text
