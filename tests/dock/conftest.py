"""A dock of its own for every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tacit_dock import DockStore
from tests.dock.learnwares import Dock
from tests.dock.learnwares import dock as started


@pytest.fixture
def dock(tmp_path: Path) -> Iterator[Dock]:
    with started(tmp_path / "dock") as found:
        yield found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DockStore]:
    with DockStore(tmp_path / "store") as found:
        yield found
