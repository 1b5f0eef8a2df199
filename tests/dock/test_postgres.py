"""The dock in PostgreSQL does what it does in a file."""

from __future__ import annotations

import threading

import pytest

from tacit_dock import DockStore, RefusedError
from tests.dock.learnwares import dock, files, is_problem, keep, specification

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
