"""Titles: the number first, at most fifteen words, and the same number in every outlet."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markupsafe import Markup

from tacit import Draw, Effort, Rows
from tacit.guarantees import (
    ApproximateDP,
    GaussianDP,
    InformationBound,
    MaximalLeakage,
    RenyiDP,
    SuccessBound,
)
from tacit.guarantees.adjacency import Adjacency
from tacit.guarantees.one_line import MOST_WORDS, one_line
from tacit.measured import Interval
from tacit.pages.answers import found_out, record_words
from tacit.pages.parts import table
from tacit.pages.strength import strength_rows
from tacit.pages.terms import TERMS, bracketed
from tacit.pages.words import plus_minus, verdict
from tacit.releases import Attack, Release, load
from tacit.report import render_certificate, render_report, write_certificate
from tacit.statistics import privatize
from tests.accessible import unbracketed
from tests.cli_runner import Tacit
from tests.releases.files import MAKERS, real

CERTAIN: dict[str, Any] = {"evidence": "theorem", "assumptions": (), "source": "a paper"}
ROOT = Path(__file__).resolve().parents[2]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


def told(name: str) -> Release[Any]:
    return Release.from_dict(real(name))


def title_of(page: str) -> str:
    found = re.search(r"<h1>(.*?)</h1>", page, re.DOTALL)
    assert found is not None
    return unescape(found[1])


def number_of(title: str) -> float:
    """The number that a title begins with, a percentage as a share."""
    found = re.match(r"(?:ε = )?([0-9][0-9.,]*)(%?)", title)
    assert found is not None, title
    return float(found[1].replace(",", "")) / (100 if found[2] else 1)


@pytest.mark.parametrize("name", MAKERS)
def test_a_title_is_short_and_starts_with_its_number(name: str) -> None:
    title = verdict(told(name)).title
    assert len(title.split()) <= MOST_WORDS
    assert re.match(r"[0-9ε]", title)
    assert title.endswith(".")


@pytest.mark.parametrize("name", MAKERS)
def test_every_outlet_has_the_same_title(name: str, tacit: Tacit, tmp_path: Path) -> None:
    release, place = told(name), tmp_path / "release.json"
    place.write_text(json.dumps(real(name)))
    title = verdict(release).title
    assert title_of(render_report(release)) == title
    if not release.withheld:
        assert title_of(render_certificate(release)) == title
    shown = tacit("show", place)
    assert shown.out.splitlines()[0] == title
    assert title.rstrip(".") in repr(release)
    assert title.rstrip(".") in unescape(release._repr_html_())


@pytest.mark.parametrize("name", MAKERS)
def test_the_number_is_the_stored_one_rounded_up_to_four_digits(name: str) -> None:
    release = told(name)
    bound, factor = release.headline, release.leakage
    exact = factor.factor if factor is not None else None
    if exact is None and bound is not None:
        exact = release.success(bound)
    if exact is None:
        first = release.guarantees[0]
        assert isinstance(first, RenyiDP)
        exact = first.approximate(1e-5).epsilon
    shown = number_of(verdict(release).title)
    assert exact * (1 - 1e-12) <= shown <= exact * (1 + 1.001e-3)


@pytest.mark.parametrize("name", MAKERS)
def test_one_game_has_one_percentage(name: str) -> None:
    release = told(name)
    if release.headline is None:
        return
    page = re.sub(r"<(style|script).*?</\1>", "", render_report(release), flags=re.DOTALL)
    words = unescape(re.sub(r"<[^>]+>", " ", page))
    said = {
        float(share)
        for share in re.findall(r"is right [^.;]*?at most ([0-9.]+)% of the time", words)
    }
    stored = {
        held.task: held.success for held in release.guarantees if isinstance(held, SuccessBound)
    }
    assert len(said) <= len(stored)


ONE = Adjacency.ADD_REMOVE.sentence("person")
WORDS: list[tuple[Any, str]] = [
    (
        SuccessBound(success=0.6, prior=0.5, task="whether any one row is in the table", **CERTAIN),
        "60%: the most often anyone can be right about whether one row was used",
    ),
    (
        MaximalLeakage(factor=16, secret="it", **CERTAIN),
        "16 times: the most this multiplies anyone's chance of guessing anything about it",
    ),
    (
        ApproximateDP(epsilon=2.0581, delta=1e-5, adjacency=ONE, **CERTAIN),
        "ε = 2.059 at δ = 1e-5: the differential privacy of one person",
    ),
    (
        ApproximateDP(epsilon=1.0, delta=0.0, adjacency="any two prompts", **CERTAIN),
        "ε = 1: the differential privacy of any two prompts",
    ),
    (
        GaussianDP(mu=0.50669, adjacency=Adjacency.REPLACE.sentence(), **CERTAIN),
        "60%: the most often anyone can be right about which record was used",
    ),
    (
        InformationBound(nats=0.020136, secret="which rows were drawn", **CERTAIN),
        "0.02014 nats: the most that this tells about which rows were drawn",
    ),
]


@pytest.mark.parametrize(("guarantee", "title"), WORDS)
def test_each_kind_of_guarantee_has_its_words(guarantee: Any, title: str) -> None:
    assert one_line(guarantee).text == title


@pytest.mark.parametrize("length", [1, 40])
def test_no_words_of_a_file_make_a_title_long(length: int) -> None:
    words = "a word " * length
    for guarantee in (
        SuccessBound(success=0.6, prior=0.5, task=words, **CERTAIN),
        MaximalLeakage(factor=16, secret=words, **CERTAIN),
        InformationBound(nats=1.0, secret=words, **CERTAIN),
        ApproximateDP(epsilon=1.0, delta=0.1, adjacency=words, **CERTAIN),
        GaussianDP(mu=1.0, adjacency=f"replace one {words}", **CERTAIN),
    ):
        assert len(one_line(guarantee).text.split()) <= MOST_WORDS


def test_of_two_bounds_on_one_game_the_smaller_is_told() -> None:
    release = told("rows")
    bound = release.membership
    loose = replace(bound, success=0.9)
    both = replace(release, guarantees=(loose, bound))
    assert both.headline == bound
    assert both.one_line == release.one_line


def test_an_attack_above_its_bound_from_few_trials_has_a_word() -> None:
    release = told("training")
    bound = release.membership
    high = Attack(
        name="few", task=bound.task, success=Interval(0.8, 0.563, 0.943, confidence=0.95),
        prior=0.5, trials=20,
    )  # fmt: skip
    found = verdict(replace(release, attacks=(high,)))
    assert found.kind == "bounded"
    assert "above the 67.82% allowed, in too few trials to contradict it" in found.conditions


def test_a_half_width_is_of_95_percent_or_says_its_level() -> None:
    assert plus_minus(Interval(0.5, 0.4905, 0.5095, confidence=0.95)) == "50.0 ± 1.0%"
    assert (
        plus_minus(Interval(0.5, 0.49, 0.51, confidence=0.999)) == "50.0% [49.0%, 51.0%] at 99.9%"
    )
    assert plus_minus(Interval(0.05, 0.05, 0.05, confidence=None)) == "5% exactly"


@pytest.mark.parametrize("promise", [Rows(success=0.7, person="who"), Draw(nats=2, person="who")])
def test_all_rows_of_a_person_are_one_record(promise: Rows | Draw) -> None:
    table = np.column_stack([np.arange(24.0), np.arange(24) % 12])
    release = privatize("mean", table, promise, Effort(trials=0), columns=["x", "who"])
    assert record_words(release) == "one person with all rows of that person"
    assert "as many records" not in render_certificate(release)


@pytest.mark.parametrize("name", MAKERS)
def test_a_record_is_named_and_its_person_is_answered_in_two_sentences(name: str) -> None:
    release = told(name)
    assert record_words(release) != "what is named as hidden"
    answer = found_out(release)
    assert len(re.findall(r"[.](?: |$)", answer)) == 2
    if release.leakage is None and release.headline is not None:
        percents = [float(one) for one in re.findall(r"([0-9.]+)%", answer)]
        more = float(re.findall(r"at most ([0-9.]+) percentage points", answer)[0])
        # to be checked by hand from what is printed
        assert more >= percents[0] - percents[1] - 1e-9


def test_the_glossary_has_every_word_that_pages_put_in_brackets() -> None:
    glossary = (ROOT / "docs" / "explanation" / "glossary.md").read_text("utf-8")
    head = glossary.partition("## ")[0]
    for ours, _, word in TERMS:
        row = next(line for line in head.splitlines() if line.startswith(f"| {ours}"))
        assert word.removeprefix("the ") in row
        page = bracketed(f"<p>{EXAMPLES[ours]}, {EXAMPLES[ours]}</p><pre>{EXAMPLES[ours]}</pre>")
        # the first in the text, once
        assert page.count(f"({word})") == 1
    assert unbracketed(bracketed(html := render_report(told("people")))) == unbracketed(html)


EXAMPLES = {
    "pool": "a row of the pool",
    "law": "the law of the noise",
    "bank": "one of the bank",
    "factor": "The factor holds",
    "drawn": "rows were drawn",
    "record": "One record is a row",
    "neighbours": "two neighbouring inputs",
    "guessing blind": "Guessing blind: 50%",
    "coins": "but the coins of the release",
}


def test_a_column_of_words_starts_at_the_left_and_one_of_numbers_ends_at_the_right() -> None:
    found = table("t", ("a", "b", "c"), [("x", "yes", "1.0"), ("y", Markup("<b>no</b>"), "−2")])
    assert found.count('class="text"') == 4
    assert '<td data-label="c">−2</td>' in found


def test_every_guarantee_has_a_row_of_its_strength() -> None:
    for name in MAKERS:
        release = told(name)
        assert len(strength_rows(release)) >= len(release.guarantees)
        rows = [what for what, _ in strength_rows(release)]
        assert len(set(rows)) == len(rows)


def test_what_holds_of_one_guarantee_alone_is_answered() -> None:
    release = told("specification")
    for held in (
        ApproximateDP(epsilon=1.0, delta=1e-5, adjacency="replace one record", **CERTAIN),
        GaussianDP(mu=1.0, adjacency="replace one record", **CERTAIN),
        InformationBound(nats=0.5, secret="the record", **CERTAIN),
    ):
        answer = found_out(replace(release, guarantees=(held,)))
        assert "proven" not in answer
        if isinstance(held, ApproximateDP):
            # e = 2.71828…, rounded up
            assert "at most 2.719 times" in answer


@pytest.mark.parametrize("name", ["rows", "codes", "adapter"])
def test_a_certificate_is_checked_by_the_page_itself(
    name: str, tacit: Tacit, tmp_path: Path
) -> None:
    release, place = told(name), tmp_path / "certificate.html"
    write_certificate(release, place)
    assert load(place) == release.public()
    assert tacit("show", place).out.splitlines()[0] == verdict(release).title
    text = place.read_text(encoding="utf-8")
    bound = "success" if release.leakage is None else "factor"
    edited = re.sub(rf'"{bound}": [0-9.]+', f'"{bound}": 1.0', text)
    assert edited != text
    place.write_text(edited, encoding="utf-8")
    refused = tacit("show", place)
    assert refused.code == 2
    place.write_text("<p>nothing</p>")
    assert "got none in" in tacit("show", place).err


@pytest.mark.thorough
@pytest.mark.skipif(BROWSER is None or shutil.which("pdfinfo") is None, reason="no browser")
@pytest.mark.parametrize("name", [name for name in MAKERS if name != "audit"])
def test_a_certificate_prints_on_one_page(name: str, tmp_path: Path) -> None:
    page, printed = tmp_path / "certificate.html", tmp_path / "certificate.pdf"
    write_certificate(told(name), page)
    subprocess.run(
        [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer",
         f"--user-data-dir={tmp_path / 'profile'}", f"--print-to-pdf={printed}", page.as_uri()],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    about = subprocess.run(["pdfinfo", printed], check=True, capture_output=True, text=True).stdout
    assert re.search(r"^Pages: +1$", about, re.MULTILINE)
