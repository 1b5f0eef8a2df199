"""Pictures of the pages are drawn from what Tacit writes."""

import importlib
import re
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]


def _sentence(picture: str) -> str:
    lines = re.findall(r'<text class="(?:headline|conditions)"[^>]*>(.*?)</text>', picture)
    return re.sub(r"[\d.,]+", "#", " ".join(lines))


def test_the_picture_of_a_report_leads_with_the_sentence_of_a_report(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "experiments" / "demo"))
    drawn = importlib.import_module("picture")
    stored = drawn.PICTURE.read_text(encoding="utf-8")
    fresh = drawn.picture(drawn.page())
    ElementTree.fromstring(stored)
    assert "the most often anyone can be right about whether one row was drawn" in _sentence(stored)
    assert _sentence(stored) == _sentence(fresh)
    assert re.search(r"<style>.*</style>", stored, re.DOTALL)[0] in fresh
