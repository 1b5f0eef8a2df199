"""Every example in the docstrings, the README and the docs runs as printed."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import tacit

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/*.md"))]
OPTIONAL = {"tacit.accounting.opacus"}


def modules_with_examples():
    for found in pkgutil.walk_packages(tacit.__path__, "tacit."):
        path = (
            ROOT
            / "src"
            / (found.name.replace(".", "/") + ("/__init__.py" if found.ispkg else ".py"))
        )
        if found.name not in OPTIONAL and ">>>" in path.read_text("utf-8"):
            yield found.name


@pytest.mark.parametrize("name", sorted(modules_with_examples()))
def test_docstring_examples(name):
    outcome = doctest.testmod(importlib.import_module(name))
    assert outcome.attempted > 0
    assert outcome.failed == 0


@pytest.mark.parametrize("page", PAGES)
def test_page_examples(page, tmp_path, monkeypatch):
    """Blocks of a page run in order and share their names, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text("utf-8")
    names = {"__name__": page}
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        if ">>>" in block:
            test = doctest.DocTestParser().get_doctest(block, names, page, page, 0)
            assert doctest.DocTestRunner().run(test, clear_globs=False).failed == 0
            names.update(test.globs)
        else:
            exec(compile(block, page, "exec"), names)
