"""The study of features: a published result of the stated size, with a verdict on each claim."""

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "experiments" / "results" / "features.json"


@pytest.fixture
def page():
    return importlib.import_module("tacit_lab.studies.features.features_page")


def test_the_published_result_has_a_verdict_on_each_claim(page):
    result = json.loads(RESULT.read_text("utf-8"))
    row = result["rows"][0]
    assert result["bank"] >= 1000
    claims = page.claims(row, result)
    assert len(claims) == 7
    assert {word for _, _, word in claims} <= {page.HOLDS, page.FAILS, page.PARTLY, "not told"}
    # all alone are no better than some: the order that any honest run has
    kept = row["replaced"]
    assert kept["full"]["error"] < kept["scaffold"]["error"] < kept["none"]["error"]
    assert "certifies nothing" in "\n".join(page.lines(result))


def test_a_share_of_flips_is_held_against_its_base_rate(page):
    kind = {"scaffold": 0.82, "base": 0.82, "excess": 0.0, "excess_error": 0.01}
    told = page._flip_share({"edits": {"a": kind, "b": kind}, "kruskal": None})
    assert told[2] == page.PARTLY
    assert "0 of 2 kinds" in told[1]
    far = {**kind, "scaffold": 0.95, "base": 0.5, "excess": 0.45}
    assert page._flip_share({"edits": {"a": far, "b": far}, "kruskal": None})[2] == page.HOLDS
