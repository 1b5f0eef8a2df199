"""``tacit dock``: its tokens, and the sentences of what cannot be served."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tacit_dock import AdmissionPolicy, DockSettings, DockStore
from tests.cli_runner import Tacit, refused
from tests.dock.learnwares import files, keep, specification


def test_a_token_is_printed_once_listed_and_revoked(tacit: Tacit, tmp_path: Path) -> None:
    folder = ("--folder", tmp_path)
    made = tacit("dock", "token", "create", "vision-team", "--days", "3", *folder)
    assert made.code == 0
    assert "vision-team" in made.err
    token = made.out.strip()
    with DockStore(tmp_path) as store:
        held = store.find_token(token)
        assert held is not None
        assert held.holds
    listed = tacit("dock", "token", "list", *folder)
    assert "holds" in listed.out
    assert token not in listed.out
    assert tacit("dock", "token", "revoke", held.number, *folder).code == 0
    assert "revoked" in tacit("dock", "token", "list", *folder).out
    refused(tacit("dock", "token", "revoke", "7", *folder), "number", "7")


@pytest.mark.parametrize("name", ["", "Vision Team", "../x", "a" * 65])
def test_developers_that_are_none(tacit: Tacit, tmp_path: Path, name: str) -> None:
    refused(tacit("dock", "token", "create", name, "--folder", tmp_path), "developer")


def test_what_is_in_quarantine_is_admitted(tacit: Tacit, tmp_path: Path) -> None:
    settings = DockSettings(policy=AdmissionPolicy(without="quarantine"))
    with DockStore(tmp_path) as store:
        bare = files(specification(1, guarantees=()))
        identifier = keep(store, bare, settings=settings)["id"]
    assert identifier in tacit("dock", "admit", identifier, "--folder", tmp_path).out
    refused(tacit("dock", "admit", identifier, "--folder", tmp_path), "not in quarantine")
    refused(tacit("dock", "admit", "0" * 32, "--folder", tmp_path), "no such learnware")


def test_what_cannot_be_served_is_a_sentence(tacit: Tacit, tmp_path: Path) -> None:
    serve = ("dock", "serve", "--folder", tmp_path / "dock")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused(tacit(*serve, "--port", port), "cannot listen", str(port))
    refused(tacit(*serve, "--port", "99999"), "port")
    refused(tacit(*serve, "--host", "no.such.host.invalid"), "host")
    refused(tacit(*serve, "--admission", "maybe"), "--admission")
    refused(tacit(*serve, "--host-name", "a b"), "--host-name", "'a b'")
    refused(tacit(*serve, "--proxy", ""), "--proxy")
    refused(tacit(*serve, "--max-epsilon", "-1"), "--max-epsilon")
    refused(tacit(*serve, "--database", "mysql://x/y"), "mysql")
    (tmp_path / "file").write_text("no database")
    refused(tacit(*serve, "--database", tmp_path / "file"), "not a SQLite database")
    refused(tacit("dock", "serve", "--folder", tmp_path / "file"), "cannot write")
    refused(tacit("dock", "token", "list", "--folder", tmp_path / "none"), "no such folder")


def test_a_database_that_does_not_answer_is_a_sentence(tacit: Tacit, tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    url = "postgresql://me:secret@127.0.0.1:1/dock"
    outcome = tacit("dock", "serve", "--folder", tmp_path, "--database", url)
    refused(outcome, "database", "127.0.0.1")
    assert "secret" not in outcome.err


def test_a_missing_package_is_a_sentence(
    tacit: Tacit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    found = importlib.util.find_spec

    def without(name: str, *rest: object) -> object:
        return None if name == "fastapi" else found(name)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    refused(tacit("dock", "serve", "--folder", tmp_path), "fastapi", "'tacit-privacy[dock]'")
