"""The examples of the ledger, the report and the table reader run as printed."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
MODULES = [
    "tacit.ledger.ledger",
    "tacit.ledger.notions",
    "tacit.report.page",
    "tacit.report.provenance",
    "tacit.report.words",
    "tacit.statistics.table",
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(name))
    assert outcome.attempted > 0
    assert outcome.failed == 0


@pytest.mark.parametrize("page", ["ledger.md", "report.md"])
def test_docs_page_examples(page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), {"__name__": page})
