"""The examples in the docstrings and on the docs page of the guarantees run as printed."""

import doctest
import importlib
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "guarantees.md"
MODULES = [
    "tacit.conversions",
    "tacit.divergences.gaussians",
    "tacit.divergences.kinds",
    "tacit.divergences.shift",
    "tacit.guarantees.base",
    "tacit.guarantees.differential",
    "tacit.guarantees.information",
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    outcome = doctest.testmod(importlib.import_module(name))
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_docs_page_examples():
    outcome = doctest.testfile(str(PAGE), module_relative=False)
    assert outcome.attempted > 0
    assert outcome.failed == 0
