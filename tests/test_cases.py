"""What ``make test`` leaves out: the rule, and that the list names tests that there are."""

from __future__ import annotations

from pathlib import Path

from tests.cases import chosen, long_cases
from tests.cases import test_of as named

ROOT = Path(__file__).parents[1]


def test_every_test_that_takes_no_second_keeps_a_case() -> None:
    seconds = {
        "a[1]": 0.1,
        "a[2]": 0.5,
        "b[1]": 2.0,
        "b[2]": 0.9,
        "c[1]": 3.0,
        "c[2]": 4.0,
        "d": 0.9,
    }
    assert chosen(seconds) == ["a[2]", "b[1]", "c"]


def test_the_list_names_tests_that_there_are() -> None:
    texts: dict[str, str] = {}
    for case in long_cases():
        path, *_, function = named(case).split("::")
        text = texts.setdefault(path, (ROOT / path).read_text("utf-8"))
        # a state machine of hypothesis has no function of its own
        there = function == "runTest" or f"def {function}(" in text
        assert there, f"{case} is gone: --measure-cases"
