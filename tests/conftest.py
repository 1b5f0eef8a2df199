"""What tests in several folders share: a database, the command, and which tests are run."""

from __future__ import annotations

import gc
import math
import os
import secrets
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.cases import Measured, long_cases, test_of
from tests.cli_runner import Tacit, in_process

# Marks that some run asks for alone.
APART = ("thorough", "postgres", "services")


@pytest.fixture
def tacit(capsys: pytest.CaptureFixture[str]) -> Tacit:
    """Return a runner of the command in this process."""
    return in_process(capsys)


@pytest.fixture
def postgres() -> Iterator[str]:
    """Return the URL of an empty database, dropped afterwards; `make test-services` runs these."""
    server = os.environ.get("TACIT_TEST_POSTGRES")
    if server is None:
        pytest.skip("no PostgreSQL URL given: make test-services")
    import psycopg
    import sqlalchemy as sa

    url = sa.make_url(server)
    name = f"tacit_{secrets.token_hex(6)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield url.set(database=name).render_as_string(hide_password=False)
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take ``--thorough``, the long oracles and nothing else, and what tells long cases."""
    parser.addoption("--thorough", action="store_true", help="run the long oracles alone")
    parser.addoption("--quick", action="store_true", help="leave out what tests/long.txt names")
    parser.addoption("--measure-cases", action="store_true", help="write tests/long.txt anew")


def pytest_configure(config: pytest.Config) -> None:
    """Start no processes for what takes long here: the tests keep every core busy as it is."""
    from tacit.compute import mapping

    if config.getoption("--measure-cases") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Measured())
    mapping.WORTH_STARTING_WORKERS_SECONDS = math.inf


def pytest_collection_finish() -> None:
    """Let no collection of garbage go through what stays: the modules and the tests."""
    gc.collect()
    gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file without a mark that is asked for: what it imports takes longer than tests."""
    asked = APART[:1] if config.getoption("--thorough") else ()
    if os.environ.get("TACIT_TEST_SERVICES") is not None:
        asked = APART[1:]
    named = any("::" in argument for argument in config.args)
    if not asked or named or not collection_path.name.startswith("test_"):
        return None
    return None if marks_of(collection_path) & set(asked) else True


@cache
def marks_of(path: Path) -> frozenset[str]:
    """Return which of the marks stand in a file of tests."""
    text = path.read_text("utf-8")
    return frozenset(word for word in APART if f"mark.{word}" in text)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long oracles to ``make test-thorough``, long cases to those who ask for all."""
    for item in items:
        borrowed = {mark.name for mark in item.iter_markers()} & set(APART) - marks_of(item.path)
        if borrowed:
            # a run that asks for it would not find it
            raise pytest.UsageError(f"{item.nodeid}: mark it {sorted(borrowed)} in its own file")
    thorough = config.getoption("--thorough")
    long = long_cases() if config.getoption("--quick") else frozenset()
    kept = [
        item
        for item in items
        if ("thorough" in item.keywords) == thorough
        and not long & {item.nodeid, test_of(item.nodeid)}
    ]
    if any("::" in argument for argument in config.args):
        # a test asked for by its name is run
        return
    if len(kept) < len(items):
        run = set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item not in run])
        items[:] = kept


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail `make test-services` where a service was missing and a test was skipped for it."""
    if os.environ.get("TACIT_TEST_SERVICES") is None:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
