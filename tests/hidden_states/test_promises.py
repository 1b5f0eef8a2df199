"""What is said of a release of codes beside what attackers of it reach who know more.

A codebook of 64 codes and 4,000 prompts: an attacker who knows the first token names the prompt in
33.4% of cases blind and in 78.8% with the code. The instance here has exactly these counts.
"""

from __future__ import annotations

import json
import re
from fractions import Fraction
from html import unescape
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from tacit.cli import run
from tacit.gate import Policy, check_release
from tacit.hidden_states import Point, Wish, recommend
from tacit.hidden_states.audit.cell_points import cell_attack
from tacit.hidden_states.audit.page.words import audit_verdict
from tacit.hidden_states.audit.release import Audit, release_of
from tacit.hidden_states.codebooks.certificates import certify
from tacit.measured import Interval
from tacit.pages import verdict
from tacit.pages.words import lines
from tacit.releases import Release
from tacit.report import render_report

PROMPTS, CODES, FIRST_TOKENS, PAIRS = 4000, 64, 1336, 3152
# what a percentage in a sentence on a bound has to say: to whom, and of how many
LAW = re.compile(r"equally likely|without the release|guessing blind")
FOR_EVERYONE = re.compile(r"whatever|any attacker|no attacker|every attacker|every prior", re.I)


def instance() -> tuple[np.ndarray, np.ndarray]:
    """First tokens and codes of 4,000 prompts with the counts above."""
    tokens = np.concatenate([np.arange(FIRST_TOKENS), np.arange(PROMPTS - FIRST_TOKENS) % 500])
    # a code of its own for as many prompts as make 3,152 pairs; others share their token's first
    repeats = np.arange(PROMPTS) - FIRST_TOKENS
    codes = (tokens + 11 * np.where(repeats < 0, 0, 1 + repeats // 500)) % CODES
    extra = PAIRS - FIRST_TOKENS
    codes[FIRST_TOKENS + extra :] = codes[tokens[FIRST_TOKENS + extra :]]
    return tokens, codes


def share_named(*known: np.ndarray) -> float:
    """Success of the best attacker who sees these of a uniform prompt: distinct values over N."""
    return len(set(zip(*(column.tolist() for column in known), strict=True))) / PROMPTS


def audited(codes: np.ndarray, last: np.ndarray, releases: int = 1) -> Release[Audit]:
    certificate = certify(codes, CODES)
    _, cells = np.unique(np.atleast_2d(codes.T).T, axis=0, return_inverse=True)
    share = Interval(0.7, 0.65, 0.75)
    point = Point(
        model="m", layer=3, family="codebook", mechanism="codebook-behaviour", reading="states",
        protocol="A", kl_budget=None, target_epsilon=None, codewords=CODES,
        rank=certificate.occupied or 0, predicted_kl=None, kl=share, agreement=share,
        generated=None, attacks=(cell_attack(cells.reshape(-1), last),),
        bound=certificate.success.success, information=certificate.information.nats,
        epsilon_nearest=None, epsilon_random=None, bank=PROMPTS, prompts=500, seed=0, draw=0,
        seconds=0.0,
    )  # fmt: skip
    wish = Wish(max_attack=1.0, releases=releases)
    details = Audit(
        model="m", layer=3, layers=6, width=4, length=16, calibration=10, points=(point,),
        wish=wish, fisher_spectrum=np.array([2.0, 1.0]), spread_spectrum=np.ones(2), seed=0,
    )  # fmt: skip
    recommended = details.recommendation.point is not None
    return release_of(details, certificate.guarantees if recommended else ())


def said(audit: Release[Audit], folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Every sentence that page, commands, gate and guarantees print of the release."""
    page = render_report(audit)
    body = re.sub(r"<(script|style).*?</\1>|<svg.*?</svg>|<table.*?</table>", " ", page, flags=re.S)
    text = unescape(re.sub(r"<[^>]+>", " ", body))
    path = folder / "audit.json"
    path.write_text(json.dumps(audit.to_dict(), allow_nan=False), encoding="utf-8")
    assert run(["show", str(path)]) == 0
    run(["gate", str(path), "--max-success", "0.99", "--max-factor", "1e300", "--force"])
    printed = capsys.readouterr().out
    judged = Policy(max_success=0.9, max_factor=99)
    gathered = [
        text, *printed.splitlines(), audit_verdict(audit).sentence, verdict(audit).sentence,
        *(held.describe() for held in audit.guarantees), *(line for _, line in lines(audit)),
        *audit.details.recommendation.reasons,
        *(check.sentence for check in check_release(audit, judged).checks),
    ]  # fmt: skip
    # a sentence ends with a full stop before a capital; one inside a number does not
    return [
        sentence
        for part in gathered
        for sentence in re.split(r"(?<=[a-z%)])[.:] (?=[A-Z])", " ".join(part.split()))
    ]


def percentages(sentence: str) -> list[float]:
    return [float(found) / 100 for found in re.findall(r"([0-9]+(?:\.[0-9]+)?)\s?%", sentence)]


def test_no_sentence_claims_less_than_an_attacker_reaches_who_knows_the_first_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens, codes = instance()
    blind, seen = share_named(tokens), share_named(tokens, codes)
    assert (round(blind, 3), round(seen, 3)) == (0.334, 0.788)
    audit = audited(codes, tokens)
    leakage = audit.leakage
    assert leakage is not None
    assert leakage.factor == CODES
    # the code alone, to whom all prompts are equally likely
    assert audit.details.points[0].bound == pytest.approx(CODES / PROMPTS)
    # the promise for every prior covers this attacker, and the percentage derived for it too
    assert Fraction(seen) <= Fraction(leakage.factor) * Fraction(blind)
    assert leakage.success(blind, "the prompt").success >= seen
    sentences = said(audit, tmp_path, capsys)
    bounds = [line for line in sentences if "%" in line and re.search("at most|≤", line)]
    assert any("1.6%" in line for line in bounds)
    for line in bounds:
        if min(percentages(line)) < seen:
            assert LAW.search(line), f"a percentage without its law: {line}"
            assert str(PROMPTS) in line.replace(",", ""), f"a percentage without its N: {line}"
    for line in sentences:
        if FOR_EVERYONE.search(line):
            assert all(value >= seen for value in percentages(line)), line
    assert "64 (4.159 nats)" in audit_verdict(audit).sentence
    headline = audit_verdict(audit).sentence
    assert headline.index("64 (4.159 nats)") < headline.index("%")
    assert "one code per prompt, ever" in headline


def test_a_curve_beside_the_headline_depends_on_n_and_the_factor_does_not() -> None:
    tokens, codes = instance()
    leakage = audited(codes, tokens).leakage
    assert leakage is not None
    found = dict(leakage.success_by_candidates([10, 400, 4000, 1_000_000]))
    assert found[10] == 1.0
    assert found[400] == pytest.approx(0.16)
    assert found[4000] == pytest.approx(0.016)
    for bank in (400, 4000):
        few = codes[:bank]
        assert certify(few, CODES).success.success == pytest.approx(len(set(few.tolist())) / bank)
        assert certify(few, CODES).leakage.factor == CODES


@pytest.mark.parametrize("releases", [2, 4, 8])
def test_codes_of_several_positions_are_counted_together(
    releases: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = np.random.default_rng(releases)
    codes = source.integers(CODES, size=(PROMPTS, releases))
    audit = audited(codes, codes[:, 0], releases)
    leakage = audit.leakage
    assert leakage is not None
    assert leakage.factor == float(CODES**releases)
    assert audit.details.points[0].bound == len({tuple(row) for row in codes.tolist()}) / PROMPTS
    headline = audit_verdict(audit).sentence
    assert f"{releases} codes per prompt, ever, together multiply" in headline
    assert f"names it from {releases} releases at most" in headline
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(audit.to_dict(), allow_nan=False), encoding="utf-8")
    assert run(["gate", str(path), "--max-factor", str(CODES**releases)]) == 0
    assert run(["gate", str(path), "--max-factor", "64"]) == 1
    twice = check_release(path, Policy(max_factor=1e300, releases=2 * releases))
    assert twice.checks[0].found == float(CODES ** (2 * releases))
    assert run(["gate", str(path), "--max-success", "0.05"]) == 1
    assert f"{releases} codes" in render_report(audit)


def test_noise_that_was_attacked_once_keeps_to_no_wish_of_several_releases() -> None:
    from dataclasses import replace

    tokens, codes = instance()
    point = replace(audited(codes, tokens).details.points[0], bound=None, information=None)
    assert recommend([point], Wish(max_attack=0.5)).point is point
    none = recommend([point], Wish(max_attack=0.5, releases=2))
    assert none.point is None
    assert "No theorem bounds 2 releases about one prompt" in none.reasons[0]
