"""The report of an audit: what it says first, what its figures show, that it is one safe page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tacit import codec
from tacit.hidden_states import Audit, Point, Wish, recommend
from tacit.hidden_states.audit.catalogue import mechanism_of
from tacit.hidden_states.audit.page.figures import curve_figure, map_figure, spectrum_figure
from tacit.hidden_states.audit.page.sections import curve_points
from tacit.hidden_states.audit.page.tables import LEFT, REACHED, guess_table, point_groups
from tacit.hidden_states.audit.page.words import audit_verdict
from tacit.hidden_states.audit.points import PROTOCOLS, AttackPoint, GuessPoint
from tacit.hidden_states.audit.release import release_of
from tacit.measured import Interval
from tacit.pages import NARROW, WIDE
from tacit.releases import Release
from tacit.report import render_report, write_report
from tests.audits import found

VOID = {"meta", "line", "rect", "circle", "polyline", "br"}


class Structure(HTMLParser):
    """Elements close in order; what could load is collected."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [name for name, _ in attrs if name in ("src", "href") or name[:2] == "on"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def noisy(point: Point, reading: str, attack: float, agreement: float) -> Point:
    share = Interval(attack, max(0.0, attack - 0.02), min(1.0, attack + 0.02))
    return replace(
        point,
        family="gaussian", mechanism="isotropic", reading=reading, protocol=PROTOCOLS[reading],
        codewords=None, kl_budget=2.0, predicted_kl=2.0, bound=None, information=None,
        epsilon_nearest=3.0, epsilon_random=9.0,
        agreement=Interval(agreement, agreement - 0.02, agreement + 0.02),
        attacks=(
            AttackPoint(
                name="mahalanobis", top1=share, top10=share, top100=share, last_token=share,
                candidates=((2, 0.9), (60, attack)),
            ),
        ),
    )  # fmt: skip


@pytest.fixture
def audit() -> Audit:
    base = found().details
    points = (
        noisy(base.points[0], "raw", 0.8, 0.2),
        noisy(base.points[0], "posterior-mean", 0.4, 0.6),
        *base.points,
    )
    return replace(base, points=points)


def released(audit: Audit) -> Release[Audit]:
    """The audit with the guarantees of the code, where that is recommended."""
    point = audit.recommendation.point
    bounded = point is not None and point.rank == 3 and point.bound is not None
    return release_of(audit, found().guarantees if bounded else ())


def page_of(audit: Audit) -> str:
    return render_report(released(audit))


def test_the_page_is_one_whole_file_that_loads_nothing(audit: Audit, tmp_path: Path) -> None:
    page = write_report(released(audit), tmp_path / "out.html").read_text(encoding="utf-8")
    structure = Structure()
    structure.feed(page)
    assert structure.open == []
    assert structure.loads == []
    embedded = re.search(r'id="tacit-release">(.*?)</script>', page, re.S)
    assert embedded
    content = json.loads(embedded[1])
    assert Release.from_dict(content).details.recommendation == audit.recommendation


def test_the_verdict_comes_first_with_the_bound_rounded_up(audit: Audit) -> None:
    verdict = audit_verdict(released(audit))
    assert verdict.kind == "bounded"
    assert "at most 5% of the time" in verdict.sentence
    page = page_of(audit)
    assert page.index(verdict.sentence[:40]) < page.index("<svg")


def test_without_a_proof_or_a_choice_the_verdict_says_so(audit: Audit) -> None:
    noise = replace(audit, points=audit.points[:2], wish=Wish(max_attack=0.5))
    assert audit_verdict(released(noise)).kind == "measured"
    assert "Nothing proves" in audit_verdict(released(noise)).sentence
    assert "Nothing proves" in page_of(noise)
    none = replace(audit, wish=Wish(max_attack=0.001))
    assert audit_verdict(released(none)).sentence.startswith("Store none")
    assert "Store none" in page_of(none)


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_measurements_are_points_and_bounds_are_lines(audit: Audit, width: int) -> None:
    drawn = str(map_figure(audit, width=width))
    assert drawn.count('class="measured-hollow"') == 2
    assert drawn.count('class="measured-point"') == 2
    assert drawn.count('class="bound"') == 2
    assert "1 in the empty middle" not in drawn
    assert "2 in the empty middle" in drawn
    assert drawn.count('class="excluded"') == 1
    curve = str(curve_figure(audit, curve_points(audit), width=width))
    assert curve.count("<polyline") == 2
    assert spectrum_figure(audit, width=width) is not None


def test_the_counts_of_the_middle_are_in_the_caption(audit: Audit) -> None:
    page = " ".join(page_of(audit).split())
    assert "Of 1 noisy releases read as they come, 0 lie there; of 1 denoised ones, 1." in page


def read_alone(audit: Audit, wish: Wish) -> Audit:
    """Add a noisy state decoded alone to what was measured."""
    alone = noisy(audit.points[0], "posterior-behaviour", 0.4, 0.55)
    points = (*audit.points, alone)
    return replace(audit, points=points, wish=wish)


def test_a_release_decoded_alone_is_not_drawn_among_those_with_clean_positions(
    audit: Audit,
) -> None:
    both = read_alone(audit, Wish())
    assert str(map_figure(both, width=WIDE)) == str(map_figure(audit, width=WIDE))
    page = " ".join(page_of(both).split())
    assert "Not drawn: of 1 decoded from the release alone (protocol B), 1 would." in page
    named = ["K = 2, read as it comes", "K = 2, denoised by public states"]
    groups = point_groups(both)
    assert [row.name for row in groups[0].rows] == [*named, "K = 2, decoded alone by public states"]
    assert [row.cells[len(REACHED)] for row in groups[0].rows] == ["A", "A", "B"]
    assert ">K = 2, decoded alone by public states</th>" in page
    assert [point.protocol for _, point in curve_points(both)] == ["A", "A"]


def test_a_wish_for_the_release_alone_shows_what_was_read_alone(audit: Audit) -> None:
    alone = read_alone(audit, Wish(max_attack=0.5, protocol="B"))
    verdict = audit_verdict(released(alone))
    assert verdict.kind == "measured"
    assert "The release alone gives the model’s next token for 55" in verdict.rest
    drawn = str(map_figure(alone, width=WIDE))
    assert "of 1 releases, protocol B; 1 in the empty middle" in drawn
    assert drawn.count('class="measured-point"') == 2
    assert "measured-hollow" not in drawn
    page = " ".join(page_of(alone).split())
    assert "holds the release alone (protocol B)" in page
    assert "Of 1 noisy releases decoded alone, 1 lie there." in page
    assert {point.protocol for _, point in curve_points(alone)} == {"B"}


def test_a_mechanism_that_nothing_here_defines_is_shown_by_its_name(audit: Audit) -> None:
    point = replace(
        audit.recommendation.point or audit.points[-1],
        family="elsewhere", mechanism="elsewhere(3)", reading="squint", codewords=None,
    )  # fmt: skip
    stored = json.loads(json.dumps(codec.write(Point, point)))
    assert codec.read(Point, stored, "point") == point
    points = (point, *audit.points[:2])
    foreign = replace(audit, points=points)
    assert audit_verdict(released(foreign)).sentence.startswith(
        "Store only elsewhere(3), not the state"
    )
    page = page_of(foreign)
    assert page.index(">elsewhere(3)</th>") < page.index('<th scope="row">squint')
    assert "proven by a theorem" in page


def test_the_table_says_first_what_attackers_reach_and_groups_by_mechanism(audit: Audit) -> None:
    assert REACHED[:2] == ("attack, top 1", "bound")
    groups = point_groups(audit)
    assert [len(group.rows) for group in groups] == [2, 1]
    assert groups[1].title == "which of C states is nearest by Fisher information"
    bounded = groups[1].rows[0]
    assert bounded.name == "C = 3, read as a state"
    assert (bounded.cells[0], bounded.cells[1]) == ("5.0%", "5%")
    assert groups[0].rows[0].cells[:2] == ("80.0% [78.0, 82.0]", "none")
    page = page_of(audit)
    table = page[page.index('<section class="across"') :]
    table = table[: table.index("</section>")]
    for head in (*REACHED, *LEFT):
        assert table.count(f'data-label="{head}"') == 3
        assert f">{head}</th>" in table
    assert "overflow-x" not in page[page.index(".stack") : page.index("</style>")]


def test_rows_say_how_many_cells_there_are_and_how_many_codes_occur(audit: Audit) -> None:
    fitted = audit.points[-1]
    removed = replace(fitted, codewords=256, codes=90, rank=88, draw=1)
    token = replace(fitted, mechanism="argmax", codewords=4096, codes=4096, rank=720, draw=2)
    page = replace(audit, points=(*audit.points, removed, token))
    rows = [group.rows[0].name for group in point_groups(page)]
    assert "C = 4,096, 720 occur, read as a state" in rows
    assert [row.name for row in point_groups(page)[1].rows][1] == (
        "C = 90 of 256, 88 occur, read as a state"
    )
    assert removed.label.startswith(f"{fitted.mechanism}, C = 90 of 256, ")
    wish = Wish(max_attack=1.0, min_agreement=0.0)
    chosen = replace(audit, points=(removed,), wish=wish)
    assert "which of 90 states is nearest" in audit_verdict(released(chosen)).lead
    top5, divergence = Interval(0.61, 0.6, 0.62), Interval(0.123, 0.12, 0.13)
    told = replace(token, top5=top5, jensen_shannon=divergence)
    cells = point_groups(replace(audit, points=(told,)))[0].rows[0].cells[len(REACHED) :]
    shown = dict(zip(LEFT, cells, strict=True))
    assert (shown["top 5"], shown["JS, nats"]) == ("61.0%", "0.123")


def test_the_recommended_release_is_marked_in_table_and_figure(audit: Audit) -> None:
    page = page_of(audit)
    row = re.search(r'<tr class="chosen"><th scope="row">(.*?)</th>', page)
    assert row
    assert row[1] == 'C = 3, read as a state <span class="mark">recommended</span>'
    assert page.count('<tr class="chosen">') == 1
    drawn = str(map_figure(audit, width=WIDE))
    ring = re.search(r'<circle class="chosen" cx="([0-9.]+)"', drawn)
    chosen = audit.recommendation.point
    assert ring
    assert chosen is not None
    assert float(ring[1]) == pytest.approx(46 + chosen.agreement.value * (WIDE - 18 - 46), abs=0.01)
    assert drawn.count('class="chosen-text"') == 1
    none = replace(audit, wish=Wish(max_attack=0.001))
    assert "recommended</span>" not in page_of(none)
    assert 'class="chosen' not in str(map_figure(none, width=WIDE))


def test_the_headline_says_the_factor_then_the_law_then_what_is_left(audit: Audit) -> None:
    tails = {"kl_median": Interval(0.25, 0.2, 0.3), "kl_95": Interval(1.75, 1.5, 2.0)}
    points = tuple(replace(point, **tails) for point in audit.points)
    verdict = audit_verdict(released(replace(audit, points=points)))
    assert "by at most 3 (" in verdict.lead
    assert "%" not in verdict.lead
    assert (
        "one of 60 prompts, all equally likely, names it from one release at most" in verdict.rest
    )
    assert "forward KL 0.500 nats on average, median 0.250, 95% quantile 1.75" in verdict.rest
    assert verdict.sentence == f"{verdict.lead} {verdict.rest}"


def test_attackers_who_know_more_stand_beside_the_recommended_release(audit: Audit) -> None:
    clean, coded = (
        GuessPoint(
            name="known-prefix", task="its last token", attacker="exact", knows="what precedes",
            success=Interval(value, value - 0.01, value + 0.01), prior=Interval(0.1, 0.1, 0.1),
            gain=Interval(value - 0.1, value - 0.11, value - 0.09), candidates=64, covered=1.0,
            queries=100, weighed=True,
        )
        for value in (0.9, 0.3)
    )  # fmt: skip
    points = tuple(replace(point, guesses=(coded,)) for point in audit.points)
    known = replace(audit, points=points, clean=(clean,))
    table = guess_table(known)
    assert table is not None
    assert table.chosen == 3
    assert table.rows[0][:4] == (
        "its last token, by what precedes", "10.0%", "90.0% [89.0, 91.0]", "30.0% [29.0, 31.0]",
    )  # fmt: skip
    page = page_of(known)
    cells = re.findall(r'<td data-label="([^"]*)"( class="chosen")?>', page)
    assert [name for name, mark in cells if mark] == [table.heads[3]]
    assert [name for name, _ in cells[: len(table.heads) - 1]] == list(table.heads[1:])


def test_a_name_cannot_break_the_page(audit: Audit) -> None:
    evil = replace(audit, model="<script>alert(1)</script>")
    page = render_report(replace(released(evil), remarks=("</script><b>",)))
    assert "<script>alert" not in page
    assert "</script><b>" not in page


def test_a_control_is_never_recommended(audit: Audit) -> None:
    """The likeliest next token is compared with, however well it does."""
    point = audit.recommendation.point
    assert point is not None
    control = replace(point, mechanism="argmax", kl=Interval(0.0, 0.0, 0.0))
    assert mechanism_of(control).control
    alone = recommend([control], Wish(max_attack=1.0, min_agreement=0.0, max_gain=None))
    assert alone.point is None
    both = recommend([control, point], Wish(max_attack=1.0, min_agreement=0.0, max_gain=None))
    assert both.point == point
