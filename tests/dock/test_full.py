"""A disk that is full: said as such, nothing half kept, and what makes room is done."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tacit_dock import DockSettings
from tacit_dock.reserve import NAME
from tests.dock.learnwares import dock, files, is_problem, specification, weights

MEBIBYTE = 1 << 20
LARGE = weights({"w": ("U8", (6 * MEBIBYTE,), bytes(6 * MEBIBYTE))})
SETTINGS = DockSettings(min_free=1, reserve=2 * MEBIBYTE)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MiB of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("only root mounts a disk")
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> None:
    """Take all the room that is left."""
    with open(place / "filler", "ab", buffering=0) as stream:
        for size in (MEBIBYTE, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    stream.write(bytes(size))
    assert shutil.disk_usage(place).free == 0


def test_a_withdrawal_is_done_on_a_full_disk(small_disk: Path) -> None:
    with dock(small_disk / "dock", SETTINGS) as found:
        made = found.submit(files(specification(1), model=LARGE))
        beside = found.submit(files(specification(2)))
        assert (made.status_code, beside.status_code) == (201, 201)
        fill(small_disk)
        for model in (LARGE, weights()):
            parts = files(specification(3), model=model)
            is_problem(found.submit(parts, key="again"), 507, "full")
        headers = found.headers(**{"If-Match": "*"})
        answer = found.client.put(
            beside.headers["location"], files=files(specification(4)), headers=headers
        )
        is_problem(answer, 507)
        assert answer.headers["retry-after"]
        assert os.listdir(small_disk / "dock" / "incoming") == []
        # who reads and searches does not notice
        assert found.client.get(beside.headers["location"]).status_code == 200
        assert len(found.search(specification(1, "task")).json()["items"]) == 2
        gone = found.client.delete(made.headers["location"], headers=found.headers())
        assert gone.status_code == 204
        assert found.client.get(made.headers["location"]).status_code == 410
        # there is room again, for the reserve and for others
        assert (small_disk / "dock" / NAME).stat().st_size == 2 * MEBIBYTE
        assert found.submit(files(specification(3)), key="again").status_code == 201
    with dock(small_disk / "dock", SETTINGS) as found:
        assert len(found.search(specification(1, "task")).json()["items"]) == 2


def test_a_disk_that_is_full_at_the_start_is_read(small_disk: Path) -> None:
    with dock(small_disk / "dock", SETTINGS) as found:
        place = found.submit(files(specification(1))).headers["location"]
    fill(small_disk)
    with dock(small_disk / "dock", SETTINGS) as found:
        assert found.client.get(f"{place}/specification").status_code == 200
        assert found.client.delete(place, headers=found.headers()).status_code == 204


def test_room_is_left_for_others(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    with dock(tmp_path, DockSettings(min_free=2 * free)) as found:
        is_problem(found.submit(files(specification(1))), 507, "full")
        assert found.search(specification(1, "task")).status_code == 200
        assert os.listdir(found.store.blobs.incoming) == []


def test_a_write_that_finds_no_room_is_said_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dock(tmp_path) as found:
        place = found.submit(files(specification(1))).headers["location"]
        for number, name in ((errno.ENOSPC, "fsync"), (errno.EDQUOT, "replace")):

            def fails(*_: object, number: int = number) -> None:
                raise OSError(number, "no room")

            with monkeypatch.context() as patch:
                patch.setattr(os, name, fails)
                is_problem(found.submit(files(specification(2))), 507)
            assert os.listdir(found.store.blobs.incoming) == []
        assert found.client.get(f"{place}/specification").status_code == 200
        assert found.submit(files(specification(2))).status_code == 201


def test_a_key_of_what_was_withdrawn_says_so(tmp_path: Path) -> None:
    with dock(tmp_path) as found:
        parts = files(specification(1))
        made = found.submit(parts, key="k")
        assert found.submit(parts, key="k").json() == made.json()
        found.client.delete(made.headers["location"], headers=found.headers())
        again = found.submit(parts, key="k")
        is_problem(again, 410, "Idempotency-Key", "withdrawn")
        assert again.json()["learnware"] == made.json()["id"]
        assert found.submit(parts, key="other").status_code == 201
