"""The dock in PostgreSQL does what it does in a file."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tacit_dock import DockStore, Filters, RefusedError
from tests import postgres as servers
from tests.dock.learnwares import card, dock, files, is_problem, keep, specification

pytestmark = pytest.mark.postgres


def test_everything_is_kept_found_and_withdrawn(postgres, tmp_path):
    with dock(tmp_path, database=postgres) as found:
        parts = files(specification(1))
        first = found.submit(parts, key="k")
        assert first.status_code == 201
        assert found.submit(parts, key="k").content == first.content
        is_problem(found.submit(files(specification(2)), key="k"), 422)
        is_problem(found.submit(parts), 409)
        told = found.search(specification(1, "task")).json()
        assert told["items"][0]["id"] == first.json()["id"]
        assert found.client.get("/v1/health").json()["database"] == "PostgreSQL"
        assert found.store.facets()["tag"] == [("mnist", 1)]
        place = first.headers["location"]
        assert found.client.delete(place, headers=found.headers()).status_code == 204
        is_problem(found.client.get(place), 410)
    with dock(tmp_path, database=postgres) as found:
        is_problem(found.client.get(place), 410)


def test_words_are_found_in_the_order_of_any_language(postgres, tmp_path):
    import sqlalchemy as sa

    from tacit.databases import parse_location

    # in Czech "ch" is a letter of its own behind "h"
    czech = "czech_" + secrets.token_hex(4)
    made = f"CREATE DATABASE {czech} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'cs'"
    engine = sa.create_engine(parse_location("database", postgres), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(made)
        try:
            other = sa.make_url(postgres).set(database=czech)
            address = other.render_as_string(hide_password=False)
            with DockStore(tmp_path, address) as store:
                keep(store, files(specification(1), card=card("Chess boards")))
                for words in ("c", "ch", "chess board"):
                    assert [held.title for held in store.learnwares(Filters(words=words)).items]
                assert not store.learnwares(Filters(words="chest")).items
        finally:
            connection.exec_driver_sql(f"DROP DATABASE {czech} WITH (FORCE)")
    engine.dispose()


def test_stores_that_race_keep_one_record_of_a_revision(postgres, tmp_path):
    stores = [DockStore(tmp_path, postgres) for _ in range(6)]
    outcomes = []
    line = threading.Barrier(len(stores))

    def submit(i, store):
        line.wait()
        for seed in range(4):
            try:
                outcomes.append(keep(store, files(specification(seed)), key=f"{i} {seed}")["id"])
            except RefusedError as error:
                outcomes.append(error.status)

    threads = [threading.Thread(target=submit, args=pair) for pair in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count(409) == 20
    assert len(stores[0].learnwares().items) == 4
    assert stores[0].collect() == 0
    for store in stores:
        store.close()


def test_a_database_that_is_gone_is_told_as_such(postgres, tmp_path):
    import psycopg
    import sqlalchemy as sa

    with dock(tmp_path, database=postgres) as found:
        name = sa.make_url(postgres).database
        other = sa.make_url(postgres).set(database="postgres")
        with psycopg.connect(other.render_as_string(False), autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
            )
            answer = found.client.get("/v1/spaces")
            is_problem(answer, 503)
            assert answer.headers["retry-after"] == "5"
            assert name not in answer.text
            connection.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true")
        assert found.client.get("/v1/spaces").status_code == 200


def test_a_database_that_is_killed_keeps_what_was_acknowledged(postgres, tmp_path):
    """kill -9 of all of a PostgreSQL of its own, in the middle of submissions and withdrawals."""
    del postgres
    with servers.server(servers.programs()) as url, dock(tmp_path, database=url) as found:
        told = {}
        for kill in range(3):
            begun = threading.Event()

            def submit(first, begun=begun):
                for seed in range(first, first + 1000):
                    told.setdefault(seed, "")
                    answer = found.submit(files(specification(seed)), key=f"key-{seed}")
                    if answer.status_code != 201:
                        is_problem(answer, 503)
                        return
                    told[seed] = answer.json()["id"]
                    begun.set()
                    if seed % 3 == 0:
                        place = answer.headers["location"]
                        gone = found.client.delete(place, headers=found.headers())
                        if gone.status_code == 204:
                            told[seed] = f"gone {told[seed]}"

            threads = [
                threading.Thread(target=submit, args=(10**5 * kill + 10**4 * number,))
                for number in range(3)
            ]
            for thread in threads:
                thread.start()
            assert begun.wait(60)
            killed_and_started(url)
            for thread in threads:
                thread.join()
        # at least one before each kill
        for seed, identifier in told.items():
            if identifier.startswith("gone"):
                place = f"/v1/learnwares/{identifier.split()[1]}"
                is_problem(found.client.get(place), 410)
            elif identifier:
                held = found.client.get(f"/v1/learnwares/{identifier}")
                # a withdrawal that was not acknowledged may have been done
                assert held.status_code == 200 or seed % 3 == 0
            else:
                again = found.submit(files(specification(seed)), key=f"key-{seed}")
                assert again.status_code in (201, 410)
        assert found.store.collect() == 0


def killed_and_started(url):
    """Kill a server and its processes, and start it again on what is on the disk."""
    import psycopg

    with psycopg.connect(url) as connection:
        data = Path(connection.execute("SHOW data_directory").fetchone()[0])
    first = int((data / "postmaster.pid").read_text().split()[0])
    asked = subprocess.run(["pgrep", "-P", str(first)], capture_output=True, check=True)
    for process in (first, *map(int, asked.stdout.split())):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        while Path(f"/proc/{process}").exists():
            time.sleep(0.05)
    (data / "postmaster.pid").unlink()
    options = (data / "postmaster.opts").read_text().split('" ', 1)[1].strip()
    command = [servers.programs() / "pg_ctl", "start", "-w", "-D", data, "-l", data / "log",
               "-o", options.partition('" ')[2]]  # fmt: skip
    user = "postgres" if os.geteuid() == 0 else None
    done = subprocess.run(command, user=user, cwd=data, check=False, capture_output=True)
    assert done.returncode == 0, (done.stdout, (data / "log").read_text()[-2000:])
