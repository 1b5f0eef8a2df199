"""Ratios of noisy sums: their intervals hold the ratio without noise as often as they say."""

import numpy as np
import pandas as pd
import pytest

from tacit import Effort, Rows, Table
from tacit.statistics import prepare, prepare_sql
from tacit.statistics.people.plan import LAPLACE_95
from tacit.statistics.queries import Columns, Count, Mean, Ratio, Sum
from tacit.statistics.queries.ratios import OPEN

COLUMNS = Columns(("spent", "visits"), bounds={0: (0.0, 9.0), 1: (1.0, 5.0)})
SPENT, VISITS = Sum(("spent",)), Sum(("visits",))


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("deviation", [0.02, 0.2, 1.0])
def test_the_set_of_ratios_that_are_not_refuted_holds_the_true_one(law, deviation):
    """N = 3, D = 1 with noise of which D's may be most: a normal interval of N/D fails there."""
    rng, count, bound = np.random.default_rng(3), 1500, Ratio(SPENT, VISITS).bind(COLUMNS)
    draw = rng.normal if law == "gaussian" else rng.laplace
    scale = deviation if law == "gaussian" else deviation / np.sqrt(2.0)
    above, below = 3.0 + 2.0 * draw(size=count) * scale, 1.0 + draw(size=count) * scale
    widths = 1.0 if law == "gaussian" else LAPLACE_95 / 1.959963984540054
    spreads = widths * deviation * np.array([1.0, 2.0, np.sqrt(5.0)])
    held = 0
    for n, d in zip(above, below, strict=True):
        ((low, high),) = bound.ends(np.array([d, n, n + d]), spreads)
        held += low <= 3.0 <= high
        if low > -OPEN:
            # the ends are where N − θD is 1.96 deviations away
            for end in (low, high):
                away = widths * deviation * np.hypot(2.0, end)
                assert abs(n - end * d) == pytest.approx(1.959963984540054 * away, rel=1e-6)
    assert held / count >= 0.95 - 4.0 * (0.95 * 0.05 / count) ** 0.5
    # where D is not told from 0 nothing is refuted
    assert law == "laplace" or deviation > 0.3 or held / count <= 0.97


@pytest.mark.parametrize("strength", [{"mu": 0.4}, {"epsilon": 0.8}])
def test_intervals_of_released_ratios_hold_the_tables_own(strength):
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"who": np.arange(600) % 200, "city": rng.choice(["Bern", "Oslo"], 600)})
    frame["spent"], frame["visits"] = rng.uniform(0.0, 9.0, 600), rng.integers(1, 6, 600)
    promise = Table(
        person="who", clip=3, bounds={"spent": (0, 9), "visits": (1, 5)},
        levels={"city": ["Bern", "Oslo"]}, **strength,
    )  # fmt: skip
    cities = frame.groupby("city")
    truth = [*(cities.spent.sum() / cities.visits.sum())]
    truth += [frame.spent.sum() / frame.visits.sum(), *(cities.who.nunique() / 200)]
    prepared = prepare(
        "ratio:spent,visits by city+ratio:spent,visits+shares:city",
        frame,
        promise,
        Effort(trials=0),
    )
    numbers = prepared.planned.numbers
    assert numbers.names[::2] == (
        "ratio[spent/visits]|city=Bern",
        "ratio[spent/visits]",
        "share[city=Oslo]",
    )
    assert numbers.limits.tolist() == [[0.0, 9.0]] * 3 + [[0.0, 1.0]] * 2
    held = []
    for _ in range(40):
        values, errors = prepared.plan.draw(None)
        held.append(np.abs(values - truth) <= 1.959963984540054 * errors + 1e-3)
    # what the clip and the grid move is far below the noise here
    assert np.mean(held, axis=0).min() >= 0.95 - 4.0 * (0.95 * 0.05 / 40) ** 0.5


def test_the_interval_is_about_the_ratio_as_published_where_its_divisor_is_below_one_row():
    """One row may have 100 visits, the table's 30 are told from 0: published is N/100."""
    frame = pd.DataFrame({"who": [1], "spent": [90.0], "visits": [30.0]})
    promise = Table(
        mu=50.0, person="who", clip=2, bounds={"spent": (0, 100), "visits": (0, 100)}
    )  # fmt: skip
    plan = prepare("ratio:spent,visits", frame, promise, Effort(trials=0)).plan
    draws = [plan.draw(None) for _ in range(60)]
    held = np.mean([abs(value[0] - 3.0) <= 1.959963984540054 * error[0] for value, error in draws])
    assert held >= 0.95 - 4.0 * (0.95 * 0.05 / 60) ** 0.5
    assert max(value[0] for value, _ in draws) < 2.0


def test_of_rows_that_were_drawn_the_ratio_is_that_of_the_sums():
    rng = np.random.default_rng(5)
    rows = rng.uniform(1.0, 5.0, (80, 2))
    plan = prepare(
        Ratio(SPENT, VISITS), rows, Rows(mu=50.0), Effort(trials=0), columns=["spent", "visits"]
    ).plan
    drawn = plan.pairing.draw(rng)
    numbers, errors = plan.at(drawn, rng)
    assert numbers[0] == pytest.approx(
        rows[drawn, 0].sum() / rows[drawn, 1].sum(), abs=3 * errors[0]
    )


@pytest.mark.parametrize(
    ("ratio", "message"),
    [
        (Ratio(Mean(("spent",)), Count()), "ratio of sums and counts"),
        (Ratio(SPENT, Sum()), "ratio to one number, got 2"),
    ],
)
def test_what_is_no_ratio_of_sums_is_refused(ratio, message):
    with pytest.raises(ValueError, match=message):
        ratio.bind(COLUMNS)


def test_a_divisor_that_may_be_negative_is_refused():
    frame = pd.DataFrame({"who": ["a", "b"], "x": [1.0, 2.0]})
    promise = Table(mu=1.0, person="who", clip=1, bounds={"x": (-1, 5)})
    with pytest.raises(ValueError, match="not below 0"):
        prepare_sql("SELECT SUM(x) / SUM(x) FROM t", {"t": frame}, promise)


def test_sql_divides_sums_and_counts_and_nothing_else():
    frame = pd.DataFrame({"who": np.arange(900), "x": np.tile([1.0, 2.0, np.nan], 300)})
    promise = Table(mu=20.0, person="who", clip=1, bounds={"x": (0, 5)})
    sql = "SELECT SUM(x) / NULLIF(COUNT(x), 0) AS mean, COUNT(x) / COUNT(*), "
    sql += "COUNT(*) FILTER (WHERE x > 1) / COUNT(DISTINCT who) FROM t"
    release = prepare_sql(sql, {"t": frame}, promise).draw()
    for number, truth in zip(release.numbers, (1.5, 2 / 3, 1 / 3), strict=True):
        assert abs(number.value - truth) <= 2.5 * number.half_width()
        assert number.half_width() < 0.05
    for wrong, named in (
        ("AVG(x) / COUNT(*)", "a ratio of AVG"),
        ("SUM(x) / 2", "a ratio of a literal"),
    ):
        with pytest.raises(ValueError, match=named):
            prepare_sql(f"SELECT {wrong} FROM t", {"t": frame}, promise)
