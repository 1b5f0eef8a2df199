"""Which cases ``make test`` leaves to continuous integration: a list, and how it is measured.

``make test`` runs with ``--quick``: every case that takes at most ``CASE`` seconds, and of a test
whose cases are all longer its shortest, if that takes at most ``SHORTEST``. What is left out is in
``tests/long.txt``; ``make test CASES=all`` runs it too, ``--measure-cases`` writes the list anew.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

CASE = 0.1
SHORTEST = 1.0
LONG = Path(__file__).with_name("long.txt")


def test_of(case: str) -> str:
    """Return the name of a test without its case: ``tests/x.py::test_y`` of ``…[case]``."""
    return case.partition("[")[0]


def long_cases() -> frozenset[str]:
    """Return the tests and the cases that ``make test`` leaves out."""
    return frozenset(LONG.read_text("utf-8").splitlines())


def chosen(seconds: dict[str, float]) -> list[str]:
    """Return what is left out, sorted: a test by its name alone where no case of it is run."""
    tests: dict[str, list[str]] = defaultdict(list)
    for case in sorted(seconds, key=lambda case: (seconds[case], case)):
        tests[test_of(case)].append(case)
    left: list[str] = []
    for test, cases in tests.items():
        first = cases[0]
        long = [case for case in cases if seconds[case] > (SHORTEST if case == first else CASE)]
        left += [test] if len(long) == len(cases) else long
    return sorted(left)


class Measured:
    """Adds up what each case took, on all workers, and writes the list at the end."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        LONG.write_text("".join(f"{line}\n" for line in chosen(self.seconds)), "utf-8")
