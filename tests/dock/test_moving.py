"""A dock in another database is the same dock, and the old one writes nothing any more."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from tacit_dock import DockStore, RefusedError, move_records
from tacit_dock.errors import UnavailableError
from tacit_dock.tables import metadata
from tests.cli_runner import Tacit, refused
from tests.dock.learnwares import Dock, card, dock, files, is_problem, keep, specification, weights


def filled(found: Dock) -> str:
    """Leave of everything something; return the token that submitted it."""
    for seed in range(3):
        found.submit(files(specification(seed), model=weights()), key=f"key-{seed}")
    revised = found.submit(files(specification(3)), key="revised")
    headers = found.headers(**{"If-Match": "*"})
    new = {**files(specification(4)), "card": card("Straße", tags=("cafe",))}
    found.client.put(revised.headers["location"], files=new, headers=headers)
    gone = found.submit(files(specification(5)), key="gone").headers["location"]
    found.client.delete(gone, headers=found.headers(), params={"reason": "why"})
    return found.tokens["me"]


def rows(database: str) -> dict[str, list[tuple[object, ...]]]:
    """Return every row of every table, but for the move itself and the number of changes."""
    text = database if "://" in database else f"sqlite:///{database}"
    engine = sa.create_engine(text.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        told = {
            table.name: sorted(map(tuple, connection.execute(sa.select(table))), key=repr)
            for table in metadata.sorted_tables
        }
    engine.dispose()
    told["dock_meta"] = [row for row in told["dock_meta"] if row[0] != "change"]
    told["dock_deeds"] = [row for row in told["dock_deeds"] if row[3] != "move"]
    return told


def check(tmp_path: Path, first: str, second: str) -> None:
    folder = tmp_path / "dock"
    with dock(folder, database=first) as found:
        token = filled(found)
        before = found.client.get("/v1/learnwares").json()
        told = rows(first)
        assert move_records(folder, first, second)[1] == 5
        assert rows(second) == told
        # a server that still runs on the old database acknowledges nothing
        is_problem(found.submit(files(specification(8)), key="late"), 503)
        is_problem(found.search(specification(1, "task")), 503)
        is_problem(found.client.get("/v1/ready"), 503)
    with pytest.raises(ValueError, match="were moved: give"):
        DockStore(folder, first)
    with dock(folder, database=second) as found:
        found.tokens["me"] = token
        assert found.client.get("/v1/learnwares").json() == before
        assert any(deed.what == "move" for deed in found.store.deeds(9))
        # the same keys, numbers that go on, the same order
        again = found.submit(files(specification(0), model=weights()), key="key-0")
        assert again.json()["id"] == before["items"][-1]["id"]
        assert found.submit(files(specification(9)), key="new").status_code == 201
        found.store.create_token("third")
        assert len(found.search(specification(1, "task")).json()["items"]) == 5
        listed = found.client.get("/v1/learnwares", params={"words": "strasse cafe"}).json()
        assert len(listed["items"]) == 1
        assert found.client.get("/v1/health").json()["status"] == "ok"


def test_to_another_file(tmp_path: Path) -> None:
    check(tmp_path, str(tmp_path / "one.sqlite"), str(tmp_path / "other.sqlite"))


@pytest.mark.postgres
@pytest.mark.parametrize("back", [False, True])
def test_to_postgres_and_back(tmp_path: Path, postgres: str, back: bool) -> None:
    pair = (str(tmp_path / "one.sqlite"), postgres)
    check(tmp_path, *(pair[::-1] if back else pair))


def test_a_database_of_a_dock_is_not_written_over(tmp_path: Path, tacit: Tacit) -> None:
    with DockStore(tmp_path / "one") as one, DockStore(tmp_path / "other") as other:
        keep(one, files(specification(1)))
        other.create_token("somebody")
    told = rows(str(tmp_path / "other" / "dock.sqlite"))
    move = ("dock", "move", "--folder", tmp_path / "one")
    refused(tacit(*move, tmp_path / "other" / "dock.sqlite"), "to: ", "holds no dock yet")
    refused(tacit(*move, tmp_path / "one" / "dock.sqlite"), "to: ", "another database")
    refused(tacit(*move, tmp_path / "no" / "such.sqlite"), "database: ", "no such folder")
    refused(tacit("dock", "move", "x", "--folder", tmp_path / "none"), "--folder")
    assert rows(str(tmp_path / "other" / "dock.sqlite")) == told
    with DockStore(tmp_path / "one") as store:
        assert len(store.learnwares().items) == 1
    moved = tacit(*move, tmp_path / "new.sqlite")
    assert moved.code == 0
    assert "1 learnwares" in moved.out
    refused(
        tacit("dock", "token", "list", "--folder", tmp_path / "one"), "were moved", "new.sqlite"
    )


def test_a_move_that_fails_leaves_the_dock_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DockStore(tmp_path / "dock") as store:
        keep(store, files(specification(1)))
        database = str(tmp_path / "dock" / "dock.sqlite")
        told = rows(database)

        def fails(*_: object, **__: object) -> None:
            raise UnavailableError("gone")

        with monkeypatch.context() as patch:
            patch.setattr("tacit_dock.moving.note", fails)
            with pytest.raises(UnavailableError):
                move_records(tmp_path / "dock", database, str(tmp_path / "new.sqlite"))
        assert list(tmp_path.glob("new.sqlite*")) == []
        assert rows(database) == told
        with pytest.raises(RefusedError):
            keep(store, files(specification(1)), key="other")
        keep(store, files(specification(2)), key="other")
    with pytest.raises(ValueError, match="is empty, and"):
        move_records(tmp_path / "elsewhere", database, str(tmp_path / "new.sqlite"))
