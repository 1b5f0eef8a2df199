"""Keys that nobody declared, weighed in an engine: the weights of memory, and what one moves."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import tacit.statistics.people.keys as room
from tacit import Table
from tacit.statistics.engines.workflow import answer, prepare_sql
from tacit.statistics.people.release import recompute

PROMISE = Table(epsilon=2.0, delta=1e-6, person="who", clip=3)
SQL = "SELECT city, COUNT(*) AS n FROM t GROUP BY city"
ODD = ["it's", 'a "b"', "A", "a", "é", "Zürich", "0", "%s", "x" * 50, "c1", "c2"]
BEYOND = ["", " a", "Zu\u0308rich", "a\x1b[31m", "a\nb", None]


def frame(number, rows=400):
    rng = np.random.default_rng(number)
    persons = rng.choice([*(f"p{one}" for one in range(40)), None], rows)
    return pd.DataFrame({"who": persons, "city": rng.choice([*ODD, *BEYOND], rows)})


def weights(table, found, most, column="city"):
    keys = answer(SQL.replace("city", column), {"t": table}, PROMISE).request.pool.keys_elsewhere
    return dict(zip(*keys.weigh(found, most), strict=True))


def by_definition(table, found):
    """The weights of persons none of whom has more keys than are weighed."""
    totals = {}
    for _, own in table.dropna().groupby("who"):
        left = [key for key in own["city"].unique() if key not in found]
        for key in left:
            totals[key] = totals.get(key, 0) + math.isqrt(room.UNIT**2 // len(left))
    return {key: total for key, total in totals.items() if key not in BEYOND}


@pytest.mark.parametrize("found", [(), ("a", "it's", "Zürich")])
def test_an_engine_weighs_keys_as_they_are_defined(found):
    for number in range(3):
        table = frame(number)
        assert weights(table, found, 100) == by_definition(table, found)


@pytest.mark.parametrize("most", [1, 4])
def test_one_person_moves_the_weights_by_a_unit_at_most(most):
    table, moved = frame(7, 120), []
    engine = answer(SQL, {"t": table}, PROMISE).request.pool.keys_elsewhere
    asked = engine.statement
    for found in ((), ("a", "c1", "é")):
        whole = dict(engine.where.run(asked.weights(found, most)))
        for who in table["who"].dropna().unique()[::2]:
            rows = f"SELECT * FROM ({asked.rows}) r WHERE p <> '{who}'"
            left = dict(engine.where.run(replace(asked, rows=rows).weights(found, most)))
            changed = [whole[key] - left.get(key, 0) for key in whole]
            assert set(left) <= set(whole)
            assert sum(one**2 for one in changed) <= room.UNIT**2
            assert np.count_nonzero(changed) <= most
            moved.append(sum(one**2 for one in changed))
    # a control: nearly all of it
    assert max(moved) > 0.99 * room.UNIT**2


def test_numbers_are_keys_as_well_and_what_is_none_is_left_out():
    nan, inf = float("nan"), float("inf")
    cells = [0.0, -0.0, 1.5, nan, inf, -inf, 1e300, 5e-324]
    table = pd.DataFrame({"who": range(len(cells)), "size": cells})
    found = weights(table, (), 9, "size")
    assert found == {0.0: 2 * room.UNIT, 5e-324: room.UNIT, 1.5: room.UNIT, 1e300: room.UNIT}
    assert set(weights(table, (0.0, 1.5), 9, "size")) == {5e-324, 1e300}
    whole = weights(table.assign(size=[3, 4, 3, 3, 3, 3, 3, 3]), (), 9, "size")
    assert whole == {3: 7 * room.UNIT, 4: room.UNIT}
    # whole numbers that no double tells apart
    large = table.assign(size=[2**53, *[2**53 + 1] * 7])
    assert weights(large, (), 9, "size") == {2**53: room.UNIT, 2**53 + 1: 7 * room.UNIT}
    assert weights(large, (2**53 + 1,), 9, "size") == {2**53: room.UNIT}


@pytest.fixture(scope="module")
def visits():
    rng = np.random.default_rng(3)
    city = np.array(["Bern", "Oslo", "it's", "rare"])[np.minimum(rng.integers(0, 300, 900), 3) % 4]
    return pd.DataFrame(
        {
            "who": np.arange(900) // 3,
            "city": np.where(np.arange(900) < 890, rng.choice(["Bern", "Oslo", "it's"], 900), city),
            "sex": rng.choice(["f", "m"], 900),
            "x": rng.random(900),
        }
    )


def test_numbers_of_the_keys_that_were_found_are_released(visits):
    promise = replace(PROMISE, bounds={"x": (0.0, 1.0)})
    sql = "SELECT city, COUNT(*) AS n, AVG(x) FROM t GROUP BY city"
    prepared = prepare_sql(sql, {"t": visits}, promise)
    assert next(one.name for one in prepared.expected) == "n|city=each key found"
    release = prepared.draw()
    cities = ("Bern", "Oslo", "it's")
    assert release.names[:4] == ("keys[city]", *(f"n|city={one}" for one in cities))
    assert release.values[0] == 3.0
    stated = release.guarantees[1]
    assert (stated.epsilon, stated.delta) == (2.0, 1e-6)
    assert release.details.sql == sql
    assert recompute(release) == ""
    for city, value, error in zip(cities, release.values[1:4], release.errors[1:4], strict=True):
        assert abs(value - (visits.city == city).sum()) < 6.0 * error


def test_one_of_two_columns_is_declared_and_no_key_may_be_found(visits):
    promise = replace(PROMISE, levels={"sex": ("f", "m")})
    sql = "SELECT sex, city, COUNT(*) AS n FROM t GROUP BY city, sex"
    release = prepare_sql(sql, {"t": visits}, promise).draw()
    assert release.names[:3] == ("keys[city]", "n|city=Bern|sex=f", "n|city=Oslo|sex=f")
    assert recompute(release) == ""
    nobody = prepare_sql(SQL, {"t": visits[:0]}, PROMISE).draw()
    assert nobody.names == ("keys[city]",)
    assert recompute(nobody) == ""


@pytest.mark.parametrize(
    "promise", [Table(epsilon=1.0, person="who", clip=3), Table(mu=1.0, person="who", clip=3)]
)
def test_without_epsilon_and_delta_no_key_is_found(promise, visits):
    with pytest.raises(ValueError, match="GROUP BY city without values") as error:
        answer(SQL, {"t": visits}, promise)
    assert "--keys" in str(error.value)


def test_an_explanation_reads_no_row_and_holds_both_statements(visits):
    told = answer(SQL, {"t": visits}, PROMISE).explained()
    assert told["groups"] == [
        "city: none declared; those that enough persons have are found for 0.5 of the budget and a "
        "δ of 5e-07"
    ]
    assert "MD5" in told["keys"]
    assert "SUM" in told["statement"]
