"""The ledger in PostgreSQL: the races, the edits and the migration that SQLite is tested with."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tacit.ledger import Budget, BudgetExceededError, Ledger, NoBudgetError, verify_ledger
from tests.cli_runner import Tacit
from tests.ledger.guarantees import gdp, nats
from tests.ledger.old import OldLedger
from tests.ledger.race import race

pytestmark = pytest.mark.postgres


def edit(location: str, *statements: str) -> None:
    import psycopg

    with psycopg.connect(location) as connection:
        for statement in statements:
            connection.execute(statement)


def test_a_location_without_a_ledger_is_not_made_unasked(postgres: str) -> None:
    with pytest.raises(ValueError, match="holds no ledger"):
        Ledger(postgres, create=False)


def test_a_dry_run_makes_no_tables(postgres: str, tmp_path: Path, tacit: Tacit) -> None:
    import psycopg

    data = tmp_path / "t.csv"
    data.write_text("a\n" + "\n".join(map(str, range(40))) + "\n")
    asked = ("statistic", data, "--query", "mean", "--success", "0.6", "--no-attack")
    for more, tables in ((("--dry-run",), 0), ((), 5)):
        done = tacit(*asked, "--ledger", postgres, *more)
        assert done.code == 0, done.err
        with psycopg.connect(postgres) as connection:
            named = "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'tacit%'"
            assert connection.execute(named).fetchone() == (tables,)


def test_a_commit_is_on_the_disk_whatever_the_server_does_by_itself(postgres: str) -> None:
    for setting in ("synchronous_commit = off", "default_transaction_isolation = 'serializable'"):
        edit(
            postgres,
            "DO $$ BEGIN EXECUTE format("
            f"'ALTER DATABASE %I SET {setting.replace(chr(39), chr(39) * 2)}', current_database()"
            "); END $$",
        )
    ledger = Ledger(postgres)
    ledger.set_budget("s", mi_budget=1.0)
    with ledger._store.transaction() as connection:
        told = [
            connection.exec_driver_sql(f"SHOW {name}").scalar()
            for name in ("synchronous_commit", "transaction_isolation")
        ]
    assert told == ["on", "read committed"]
    assert ledger.verify().holds


@pytest.mark.parametrize("moment", ["INSERT INTO tacit_chain", "UPDATE tacit_meta"])
def test_a_connection_lost_amid_a_reserve_spends_nothing(postgres: str, moment: str) -> None:
    import psycopg
    import sqlalchemy as sa

    ledger = Ledger(postgres)
    ledger.set_budget("s", mi_budget=1.0)
    ledger.reserve("s", nats(0.5), "before").commit({})
    killed = []

    def kill(connection: sa.Connection, cursor: object, statement: str, *_: object) -> None:
        if not killed and statement.startswith(moment):
            killed.append(connection.connection.driver_connection.info.backend_pid)  # type: ignore[union-attr]
            with psycopg.connect(postgres, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 10000)", killed)

    sa.event.listen(ledger._store._engine, "before_cursor_execute", kill)
    with pytest.raises(ValueError, match=r"ledger: .*(terminat|closed|lost)") as refused:
        ledger.reserve("s", nats(0.5), "lost")
    assert killed
    assert "\n" not in str(refused.value)
    assert ledger.spent("s").nats == 0.5
    ledger.reserve("s", nats(0.5), "again").commit({})
    with pytest.raises(BudgetExceededError):
        ledger.reserve("s", nats(1e-9), "over")
    assert ledger.verify().holds
    assert [entry.description for entry in ledger.entries("s")] == ["before", "again"]


def test_processes_that_race_never_overrun_the_budget(postgres: str) -> None:
    ledger = Ledger(postgres)
    ledger.set_budget("s", mi_budget=2.0)
    assert sum(race(postgres)) == 16
    assert ledger.spent("s").nats == 2.0
    with pytest.raises(BudgetExceededError):
        ledger.reserve("s", nats(1e-9), "over")
    assert ledger.verify().holds


def test_processes_that_race_to_make_the_ledger_all_get_it(postgres: str) -> None:
    assert sum(race(postgres, runners=4)) == 32
    assert Ledger(postgres).spent("s").nats == 4.0
    assert Ledger(postgres).verify().holds


def test_everything_is_kept_and_refused_as_in_a_file(postgres: str) -> None:
    ledger = Ledger(postgres)
    ledger.reserve("void", nats(0.1), "seeded", reproducible=True).commit({})
    assert math.isinf(ledger.spent("void").nats)
    ledger.set_budget("s", mi_budget=1.0)
    ledger.set_budget("s", mu=1.0)
    with ledger.reserve("s", [nats(0.25), gdp(0.5)], "one") as reservation:
        reservation.mark_drawn()
        reservation.commit({"release": [1e-300, 0.1]})
    ledger.reserve("s", nats(0.5), "two").cancel()
    assert ledger.remaining("s") == Budget(nats=0.75, mu=0.8660254037844386)
    with pytest.raises(NoBudgetError, match="it has 's'"):
        ledger.reserve("t", nats(0.1), "no budget")
    with pytest.raises(ValueError, match="ledger: "):
        ledger.reserve("s", nats(0.1), "zero \x00 byte")
    again = Ledger(postgres)
    assert again.entries() == ledger.entries()
    assert [change.new for change in again.budget_history("s")] == [
        Budget(nats=1.0),
        Budget(nats=1.0, mu=1.0),
    ]
    result = again.verify()
    assert (result.holds, result.records) == (True, 9)
    assert again.verify(result.head) == result


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE tacit_entries SET nats = 0.1 WHERE number = 2", "release 2 of secret 's' was"),
        ("UPDATE tacit_budgets SET nats = 9", "budget 1 of secret 's' was edited"),
        ("DELETE FROM tacit_entries WHERE number = 1", "release 1 of secret 's' was deleted"),
        ("DELETE FROM tacit_chain WHERE place > 2", "records 3 to 5 are cut off the end"),
        ("UPDATE tacit_secrets SET account = '{}'", "the totals of secret 's' were edited"),
    ],
)
def test_edits_are_named(postgres: str, statement: str, named: str) -> None:
    ledger = Ledger(postgres)
    ledger.set_budget("s", mi_budget=1.0)
    for _ in range(2):
        ledger.reserve("s", nats(0.25), "half").commit({})
    edit(postgres, statement)
    assert named in verify_ledger(postgres).findings[0]


def test_missing_tables_are_a_contradiction(postgres: str) -> None:
    Ledger(postgres).set_budget("s", mi_budget=1.0)
    edit(postgres, "DROP TABLE tacit_meta")
    with pytest.raises(ValueError, match="contradicts itself"):
        Ledger(postgres)


def test_a_ledger_of_0_1_is_migrated_whole(postgres: str) -> None:
    import psycopg

    with psycopg.connect(postgres) as connection:
        old = OldLedger(connection, mark="%s", serial="SERIAL")
        old.budget("s", nats=1.0)
        old.release("s", nats(0.25))
        old.release("s", nats(0.125), "a status nobody writes")
        old.release("s", nats(0.5), "cancelled")
    assert sum(race(postgres, runners=4)) == 5
    ledger = Ledger(postgres)
    assert ledger.spent("s").nats == 1.0
    assert [entry.number for entry in ledger.entries()] == list(range(1, 9))
    assert ledger.verify().holds


def test_triggers_and_rules_are_named(postgres: str) -> None:
    Ledger(postgres).reserve("s", nats(0.25), "one", no_budget=True).commit({})
    words = "was added to the table tacit_"
    for made, ended, name in (
        (
            "CREATE TRIGGER quiet BEFORE UPDATE ON tacit_secrets FOR EACH ROW "
            "EXECUTE FUNCTION suppress_redundant_updates_trigger()",
            "DROP TRIGGER quiet ON tacit_secrets", "the trigger 'quiet'",
        ),
        (
            "CREATE RULE deaf AS ON INSERT TO tacit_entries DO INSTEAD NOTHING",
            "DROP RULE deaf ON tacit_entries", "the rule 'deaf'",
        ),
    ):  # fmt: skip
        edit(postgres, made)
        (found,) = verify_ledger(postgres).findings
        assert name in found
        assert words in found
        edit(postgres, ended)
        assert verify_ledger(postgres).holds
