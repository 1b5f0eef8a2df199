"""Counts that add up, held against an independent solver and exact tables."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import lsq_linear, nnls

from tacit import Effort, Table, prepare, privatize
from tacit.gate import Policy, check_release
from tacit.releases import Release
from tacit.statistics import consistent_counts
from tacit.statistics.people.consistent import AddedTables
from tacit.statistics.queries import GroupBy, Sum

CITIES, SEXES = ("Bern", "Oslo", "Rome"), ("f", "m")
WORDS = {"city": list(CITIES), "sex": list(SEXES)}
QUERY = "rows by city by sex+rows by city+rows by sex+rows"


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(6)
    return pd.DataFrame(
        {
            "who": rng.integers(0, 90, 200),
            "city": rng.choice([*CITIES, "Ulm"], 200, p=[0.6, 0.3, 0.02, 0.08]),
            "sex": rng.choice(SEXES, 200),
        }
    )


def released(frame, query=QUERY, mu=0.5, **given):
    promise = Table(mu=mu, person="who", clip=9, **{"levels": WORDS, **given})
    return privatize(query, frame, promise, Effort(trials=0))


def table(frame):
    """Every count by its name, of the rows of declared words."""
    rows = frame[frame.city.isin(CITIES)]
    found = {"rows": len(rows)}
    for city in CITIES:
        found[f"rows|city={city}"] = int((rows.city == city).sum())
        for sex in SEXES:
            both = (rows.city == city) & (rows.sex == sex)
            found[f"rows|city={city}|sex={sex}"] = int(both.sum())
    return found | {f"rows|sex={sex}": int((rows.sex == sex).sum()) for sex in SEXES}


def adds_up(counts):
    for city in CITIES:
        assert counts[f"rows|city={city}"] == sum(
            counts[f"rows|city={city}|sex={s}"] for s in SEXES
        )
    for sex in SEXES:
        assert counts[f"rows|sex={sex}"] == sum(counts[f"rows|city={c}|sex={sex}"] for c in CITIES)
    assert counts["rows"] == sum(counts[f"rows|sex={sex}"] for sex in SEXES)
    assert all(isinstance(one, int) and one >= 0 for one in counts.values())


def test_counts_add_up_and_are_the_likeliest(frame):
    for _ in range(6):
        release = released(frame)
        counts = consistent_counts(release)
        adds_up(counts)
        assert tuple(counts) == release.names
        cells = [name for name in release.names if name.count("|") == 2]
        sums = np.array(
            [[set(name.split("|")) <= set(cell.split("|")) for cell in cells] for name in counts],
            dtype=float,
        )
        errors = np.array(release.errors)
        own = lsq_linear(
            sums / errors[:, None], np.array(release.values) / errors, bounds=(0, np.inf), tol=1e-12
        )
        for cell, value in zip(cells, own.x, strict=True):
            assert abs(counts[cell] - value) < 1.0 + 1e-4
        assert abs(counts["rows"] - own.x.sum()) <= 0.5 + 1e-4


def test_without_noise_to_speak_of_they_are_the_table(frame):
    assert consistent_counts(released(frame, mu=1e4)) == table(frame)


def test_one_table_alone_is_whole_and_not_negative(frame):
    counts = consistent_counts(released(frame, "rows by city by sex"))
    assert min(counts.values()) >= 0
    assert len(counts) == 6


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("count by city", "rows"),
        ("rows by city+rows by sex", "by all columns"),
    ],
)
def test_what_does_not_add_up_is_refused(frame, query, message):
    given = {"levels": {"city": list(CITIES)}} if query == "count by city" else {}
    with pytest.raises(ValueError, match=message):
        consistent_counts(released(frame, query, **given))


def test_rows_of_other_numbers_make_no_margin(frame):
    numbers = frame.assign(size=[1, 2, 3, 4] * 50)[["who", "size"]]
    release = released(numbers, "rows by size+rows", levels={"size": [1, 2, 3]})
    with pytest.raises(ValueError, match="declared words of size"):
        consistent_counts(release)


SUMS = [GroupBy(GroupBy(Sum(("x",)), "city"), "sex"), GroupBy(Sum(("x",)), "city"), Sum(("x",))]


@pytest.mark.parametrize("strength", [{"mu": 0.5}, {"epsilon": 0.5}])
@pytest.mark.parametrize("query", [QUERY, SUMS])
def test_what_is_drawn_adds_up_and_its_intervals_hold_the_table(frame, query, strength):
    counted, draws = query is QUERY, 60
    given = {"bounds": None if counted else {"x": (0.0, 6.0)}, **strength}
    rows = frame if counted else frame.assign(x=np.linspace(0.0, 6.0, 200))
    promise = Table(person="who", clip=30, levels=WORDS, consistent=True, **given)
    prepared = prepare(query, rows, promise, Effort(trials=0))
    plan, names = prepared.plan, prepared.planned.numbers.names
    exact = []
    for name in names:
        met = np.array(frame.city.isin(CITIES))
        for part in name.split("|")[1:]:
            column, _, word = part.partition("=")
            met &= np.array(frame[column] == word)
        exact.append(met.sum() if counted else rows.x[met].sum())
    raw = np.array([one.half_width for one in prepared.expected])
    held, least = [], np.full(len(names), np.inf)
    for _ in range(draws):
        values, errors = plan.draw(None)
        halves = 1.959963984540054 * errors
        held.append(np.abs(values - exact) <= halves + 1e-6)
        least = np.minimum(least, halves)
        if counted:
            adds_up(dict(zip(names, map(int, values), strict=True)))
    assert np.mean(held, axis=0).min() >= 0.95 - 4 * (0.95 * 0.05 / draws) ** 0.5
    # what several numbers tell is known better than by its own
    assert (least <= raw + 1.0).all()
    assert least[-1] < 0.8 * raw[-1]


def test_half_widths_are_those_of_least_squares():
    """By the normal equations in fractions' place: Var of ŷ = A (AᵀWA)⁻¹ Aᵀ."""
    sums = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]], dtype=float)
    spreads = np.array([1.0, 2.0, 0.5, 3.0, 1.5])
    values = np.array([3.0, -1.0, 7.0, 0.0, 11.0])
    table = AddedTables((0, 1, 2, 3, 4), (), sums, whole=False)
    numbers, halves = table.mend(values, spreads, 1.96)
    weights = np.diag(spreads**-2.0)
    inverse = np.linalg.inv(sums.T @ weights @ sums)
    np.testing.assert_allclose(numbers, sums @ inverse @ sums.T @ weights @ values)
    np.testing.assert_allclose(halves, 1.96 * np.sqrt(np.diag(sums @ inverse @ sums.T)))


def test_a_file_of_numbers_that_do_not_add_up_is_refused(frame):
    release = released(frame, consistent=True)
    policy = Policy(max_success=0.7)
    assert check_release(Release.from_dict(release.to_dict()), policy).passed
    moved = release.numbers.values.copy()
    moved[0] += 1.0
    wrong = replace(release, numbers=replace(release.numbers, values=moved))
    with pytest.raises(ValueError, match="do not add up"):
        check_release(wrong.to_dict(), policy)
    with pytest.raises(ValueError, match="consistent: expected a person"):
        Table(mu=1.0, consistent=True)
    with pytest.raises(ValueError, match="consistent: expected counts of rows, or sums"):
        released(frame, "count", consistent=True, levels=None)


def test_one_table_alone_is_what_least_squares_makes_of_it():
    rng = np.random.default_rng(8)
    y, spreads = rng.normal(2.0, 6.0, 40), rng.uniform(0.5, 3.0, 40)
    table = AddedTables(tuple(range(40)), (), np.eye(40), True)
    found = nnls(np.eye(40) / spreads[:, None], y / spreads)[0]
    numbers, halves = table.mend(y, spreads, 1.96)
    assert numbers.sum() == np.rint(found.sum())
    assert np.abs(numbers - found).max() < 1.0
    assert (numbers - halves <= np.maximum(y - 1.96 * spreads, 0.0)).all()
    assert (numbers + halves >= y + 1.96 * spreads).all()


def test_a_column_that_is_summed_twice_is_refused():
    frame = pd.DataFrame({"who": range(9), "city": ["Bern"] * 9, "x": 1.0})
    promise = Table(
        mu=1.0, person="who", clip=1, bounds={"x": (0, 2)}, levels={"city": ["Bern"]},
        consistent=True,
    )  # fmt: skip
    with pytest.raises(ValueError, match="each number once"):
        prepare([Sum(("x", "x")), GroupBy(Sum(("x",)), "city")], frame, promise, Effort(trials=0))


def test_where_no_key_is_found_nothing_is_made_to_add_up():
    frame = pd.DataFrame({"who": range(3), "city": ["Bern", "Oslo", "Rome"]})
    promise = Table(epsilon=1.0, delta=1e-6, person="who", clip=2, consistent=True)
    release = privatize("rows by city", frame, promise, Effort(trials=0))
    assert dict(zip(release.numbers.names, release.numbers.values, strict=True)) == {
        "keys[city]": 0.0
    }
    assert check_release(Release.from_dict(release.to_dict()), Policy(max_success=0.9)).passed


def test_of_more_keys_than_add_up_the_first_are_told(monkeypatch):
    for room in ("consistent", "found"):
        monkeypatch.setattr(f"tacit.statistics.people.{room}.MOST_CELLS", 5)
    cities = np.repeat([f"city {number}" for number in range(4)], 60)
    frame = pd.DataFrame({"who": np.arange(240), "city": cities, "sex": ["f", "m"] * 120})
    promise = Table(
        epsilon=30.0, delta=1e-3, person="who", clip=1, consistent=True, levels={"sex": SEXES}
    )  # fmt: skip
    release = privatize("rows by city by sex", frame, promise, Effort(trials=0))
    assert release.numbers.names[0] == "keys[city]"
    assert {name.split("|")[1] for name in release.numbers.names[1:]} == {
        "city=city 0", "city=city 1",
    }  # fmt: skip
