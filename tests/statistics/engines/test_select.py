"""A SELECT about people: what is answered equals an oracle's, all else is refused by name."""

import json
from dataclasses import replace

import pandas as pd
import pytest
from sqlglot import exp

from tacit import Table
from tacit.statistics.engines.reading import parse
from tacit.statistics.engines.schema import kind_of
from tacit.statistics.engines.unread import refuse_unread
from tacit.statistics.engines.workflow import answer, prepare_sql

from .awkward import shop

BOUNDS = {"income": (0.0, 200_000.0), "spent": (0.0, 50.0), "rate": (-1.0, 1.0)}
LEVELS = {"city": ("Bern", "Oslo"), "kind": (1, 2)}
PROMISE = Table(
    epsilon=1.0, delta=1e-6, person="customer", clip=2.0**14, bounds=BOUNDS, levels=LEVELS
)


@pytest.fixture(scope="module")
def frames():
    return shop()


def numbers(sql, frames, promise=PROMISE, engine=None):
    """The numbers without noise, by name: nobody is clipped at so many rows."""
    public = [name for name in frames if name == "shops"]
    found = answer(sql, frames, promise, public=public, engine=engine)
    plan = found.prepared.plan
    exact = plan.metric.restore(plan.persons.whole(plan.metric))
    values = plan.added.finish(exact, None).tolist()
    return dict(zip(plan.added.query.names, values, strict=True))


def joined(frames):
    both = frames["visits"].dropna(subset="customer").merge(frames["people"], on="customer")
    return both.assign(income=both.income.clip(0, 2e5), spent=both.spent.clip(0, 50))


ADULTS = "FROM visits JOIN people USING (customer) WHERE age >= 18"
ANSWERED = {
    f"SELECT COUNT(*) {ADULTS}": lambda j: len(j[j.age >= 18]),
    f"SELECT COUNT(DISTINCT customer) {ADULTS}": lambda j: j[j.age >= 18].customer.nunique(),
    f"SELECT AVG(income) {ADULTS}": lambda j: j[j.age >= 18].income.mean(),
    f"SELECT SUM(spent) {ADULTS}": lambda j: j[j.age >= 18].spent.sum(),
    f"SELECT COUNT(spent) {ADULTS}": lambda j: j[j.age >= 18].spent.count(),
    f"SELECT STDDEV(spent) {ADULTS}": lambda j: j[j.age >= 18].spent.std(),
    f"SELECT VARIANCE(spent) {ADULTS}": lambda j: j[j.age >= 18].spent.var(),
    f"SELECT CORR(spent, income) {ADULTS}": lambda j: j[j.age >= 18][["spent", "income"]]
    .dropna().corr().iloc[0, 1],
    f"SELECT SUM(spent * rate - 2 * spent) {ADULTS}": lambda j: (
        j.spent * j.rate - 2 * j.spent)[j.age >= 18].sum(),
    f"SELECT SUM(spent) / NULLIF(COUNT(*), 0) /* one */ {ADULTS}; -- other": lambda j: (
        j[j.age >= 18].spent.sum() / (j.age >= 18).sum()),
    f"SELECT AVG(spent / 4) AS quarter {ADULTS}": lambda j: (j.spent / 4)[j.age >= 18].mean(),
    f"SELECT COUNT(*) FILTER (WHERE city = 'Bern') {ADULTS}": lambda j: (
        (j.age >= 18) & (j.city == "Bern")).sum(),
    f"SELECT AVG(spent) FILTER (WHERE member) {ADULTS}": lambda j: j[
        (j.age >= 18) & j.member].spent.mean(),
    f"SELECT SUM(CASE WHEN kind = 2 THEN spent ELSE 0 END) {ADULTS}": lambda j: j[
        (j.age >= 18) & (j.kind == 2)].spent.sum(),
    f"SELECT COUNT(*) {ADULTS} AND (city IN ('Oslo', 'Rome') OR city LIKE 'Be%')": lambda j: (
        (j.age >= 18) & j.city.isin(["Oslo", "Rome", "Bern"])).sum(),
    f"SELECT COUNT(*) {ADULTS} AND city NOT LIKE 'Be%'": lambda j: (
        (j.age >= 18) & j.city.notna() & (j.city != "Bern")).sum(),
    f"SELECT COUNT(*) {ADULTS} AND NOT (city NOT LIKE '%n' OR city !~~ 'B%')": lambda j: (
        (j.age >= 18) & (j.city == "Bern")).sum(),
    f"SELECT SUM(spent * rate + 2) {ADULTS}": lambda j: (
        j.spent * j.rate + 2)[j.age >= 18].sum(),
    f"SELECT COUNT(*) {ADULTS} AND NOT spent BETWEEN 10 AND 20": lambda j: (
        (j.age >= 18) & ~j.spent.between(10, 20) & j.spent.notna()).sum(),
    f"SELECT COUNT(*) {ADULTS} AND day >= DATE '2024-02-01' AND day < '2025-01-01'": lambda j: (
        (j.age >= 18) & (j.day == "2024-02-07")).sum(),
    f"SELECT COUNT(*) {ADULTS} AND city IS NOT NULL AND -1 < kind": lambda j: (
        (j.age >= 18) & j.city.notna()).sum(),
    "SELECT COUNT(DISTINCT v.customer) FROM visits v": None,
    "SELECT AVG(s.size) FROM visits JOIN shops AS s ON visits.shop = s.shop": None,
    "SELECT COUNT(income) FROM visits v LEFT JOIN people p ON v.customer = p.customer": None,
}  # fmt: skip


@pytest.mark.parametrize("sql", list(ANSWERED))
def test_what_is_answered_equals_the_oracle(sql, frames):
    used = {name: BOUNDS[name] for name in BOUNDS if name in sql}
    promise = replace(PROMISE, bounds=used or None, levels=None)
    if "size" in sql:
        promise = replace(promise, bounds={"s.size": (0.0, 40.0)})
    (found,) = numbers(sql, frames, promise).values()
    visits = frames["visits"].dropna(subset="customer")
    of = (
        ANSWERED[sql]
        or {
            "v.customer)": lambda j: visits.customer.nunique(),
            "s.size": lambda j: visits.merge(frames["shops"], on="shop")["size"].mean(),
            "income": lambda j: visits.merge(frames["people"], how="left").income.count(),
        }[next(word for word in ("v.customer)", "s.size", "income") if word in sql)]
    )
    assert found == pytest.approx(of(joined(frames)), rel=1e-4, abs=1e-3)


def test_a_product_of_nothing_and_zero_is_nothing():
    rows = pd.DataFrame({"who": range(9), "a": [None, 0.0, 2.0] * 3, "b": [0.0, None, 3.0] * 3})
    promise = replace(PROMISE, person="who", bounds={"a": (0.0, 4.0), "b": (0.0, 4.0)}, levels=None)
    sql = "SELECT AVG(a * b) AS m, SUM(a * b + 1) AS s FROM rows"
    found = numbers(sql, {"rows": rows}, promise)
    assert found == pytest.approx({"m": 6.0, "s": 21.0}, abs=1e-3)


@pytest.mark.parametrize("part", ["negate", "made_up"])
def test_a_part_of_the_parser_that_nobody_reads_is_refused(part):
    root = parse("SELECT COUNT(*) FROM visits WHERE spent IS NULL")
    root.find(exp.Is).set(part, True)
    with pytest.raises(ValueError, match=f"sql: IS with {part.upper().replace('_', ' ')} is not"):
        refuse_unread(root.walk())


def test_a_cast_says_nothing_but_a_type():
    day = "CAST('2024-01-31' AS DATE{})"
    sql = "SELECT COUNT(*) FROM visits WHERE day > "
    assert parse(sql + day.format("")).find(exp.Cast) is not None
    with pytest.raises(ValueError, match="sql: CAST with DEFAULT is not answered"):
        parse(sql + day.format(" DEFAULT '2020-01-01' ON CONVERSION ERROR"))


def test_groups_of_two_columns_have_their_own_numbers(frames):
    sql = f"SELECT city, kind, COUNT(*) AS n, SUM(spent) {ADULTS} GROUP BY city, kind"
    promise = replace(PROMISE, bounds={"spent": (0.0, 50.0)})
    found = numbers(sql, frames, promise)
    rows = joined(frames)
    rows = rows[rows.age >= 18]
    assert list(found)[:2] == ["n|city=Bern|kind=1", "n|city=Oslo|kind=1"]
    for city in ("Bern", "Oslo"):
        for kind in (1, 2):
            cell = rows[(rows.city == city) & (rows.kind == kind)]
            assert round(found[f"n|city={city}|kind={kind}"]) == len(cell)
            total = found[f"SUM(spent)|city={city}|kind={kind}"]
            assert total == pytest.approx(cell.spent.sum(), abs=0.01)


REFUSED = {
    "SELECT AVG(income) OVER () FROM people": "a window function",
    "SELECT COUNT(*) FROM (SELECT * FROM visits) v": "a subquery",
    "SELECT COUNT(*) FROM visits WHERE customer IN (SELECT customer FROM people)": "a subquery",
    "SELECT COUNT(*) FROM visits WHERE EXISTS (SELECT 1 FROM people)": "EXISTS",
    "SELECT COUNT(*) FROM visits JOIN people ON visits.shop = people.age": "loses the person",
    "SELECT COUNT(*) FROM visits, people": "loses the person",
    "SELECT COUNT(*) FROM visits CROSS JOIN people": "loses the person",
    "SELECT COUNT(*) FROM visits NATURAL JOIN people": "NATURAL JOIN",
    "SELECT COUNT(*) FROM visits RIGHT JOIN people USING (customer)": "RIGHT JOIN",
    "SELECT COUNT(*) FROM visits JOIN people ON visits.customer < people.customer": "in ON",
    "SELECT my_function(spent) FROM visits": "the function MY_FUNCTION",
    "SELECT SUM(my_function(spent)) FROM visits": "the function MY_FUNCTION",
    "SELECT COUNT(*) FROM visits LIMIT 5": "LIMIT",
    "SELECT COUNT(*) FROM visits LIMIT 5 OFFSET 2": "LIMIT",
    "SELECT MAX(spent) FROM visits": "MAX",
    "SELECT MIN(spent) FROM visits": "MIN",
    "SELECT COUNT(*) FROM visits TABLESAMPLE (10 PERCENT)": "TABLESAMPLE",
    "SELECT spent FROM visits": "a plain column",
    "SELECT city, COUNT(*) FROM visits": "a plain column",
    "SELECT customer, COUNT(*) FROM visits GROUP BY customer": "grouping by person",
    "SELECT AVG(spent / kind) FROM visits": "division by a column",
    "SELECT AVG(spent / 1e-300) FROM visits": "divisors of at least 1e-150",
    "SELECT AVG(spent / 1e-999999999) FROM visits": "between 1e-300",
    "SELECT AVG(spent / (2 - 2)) FROM visits": "division by what is no number",
    "SELECT SUM(spent % 2) FROM visits": "a remainder (%)",
    "SELECT SUM(spent // 2) FROM visits": "whole division (//)",
    "SELECT SUM(spent * 1e99 * spent) FROM visits": "each step",
    "SELECT COUNT(*) FROM visits WHERE city = '\ud800'": "a surrogate",
    "SELECT COUNT(*) FROM visits WHERE city = 'a\0b'": "a NUL",
    "SELECT COUNT(v.shop), COUNT(s.shop) FROM visits v JOIN shops s USING (shop)": "two tables",
    "SELECT COUNT(*) FROM visits WHERE day = '2024-02-30'": "expected a date",
    "SELECT COUNT(*) FROM visits WHERE day LIKE '2024%'": "LIKE beside dates",
    "SELECT COUNT(*) FROM visits WHERE kind < 1e40": "within ±2¹²⁶",
    "SELECT COUNT(*) FROM visits WHERE kind > ALL (SELECT 1)": "ALL in a condition",
    "SELECT SUM((SELECT MAX(age) FROM people)) FROM visits": "a subquery",
    "SELECT COUNT(*) FROM visits, LATERAL (SELECT 1) l": "LATERAL",
    "SELECT COUNT(*) FROM visits, UNNEST([1, 2])": "UNNEST",
    "SELECT * FROM visits PIVOT (SUM(spent) FOR city IN ('Bern'))": "PIVOT is",
    "PIVOT visits ON city USING SUM(spent)": "PIVOT",
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION SELECT n FROM t) SELECT COUNT(*) FROM t": "WITH",
    "SELECT COUNT(*) FROM visits WHERE (city, kind) IN (('Bern', 1))": "a row of values",
    "SELECT COUNT(*) FROM visits WHERE city COLLATE NOCASE = 'bern'": "COLLATE",
    "SELECT COUNT(*) FROM visits WHERE spent > 'NaN'": "numbers with a text",
    "SELECT COUNT(*) FROM visits WHERE isnan(spent)": "ISNAN",
    "SELECT COUNT(*) FROM visits WHERE city ~ 'B.*'": "a regular expression",
    "SELECT COUNT(*) FROM visits WHERE city SIMILAR TO 'B.*'": "SIMILAR TO",
    "SELECT COUNT(*) FROM visits WHERE city IS DISTINCT FROM 'x'": "IS DISTINCT FROM",
    "SELECT COUNT(*) FROM visits WHERE error('x') IS NULL": "the function ERROR",
    "SELECT COUNT(*) FROM visits WHERE kind & 1 = 1": "&",
    "SELECT COUNT(*) FROM visits v SEMI JOIN people p USING (customer)": "SEMI JOIN",
    "SELECT COUNT(*) FROM visits v ASOF JOIN people p USING (customer)": "ASOF JOIN",
    "SELECT COUNT(*) FROM visits v JOIN people p ON v.kind > p.age": "> in ON",
    "SELECT COUNT(*) FROM visits USING SAMPLE 10%": "TABLESAMPLE",
    "SELECT ANY_VALUE(city) FROM visits": "ANY_VALUE",
    "EXPLAIN SELECT COUNT(*) FROM visits": "EXPLAIN",
    "CALL pragma_version()": "CALL",
    "SELECT COUNT(*) FROM visits GROUP BY GROUPING SETS ((city), ())": "GROUPING SETS",
    "SELECT AVG(spent / 0) FROM visits": "division by 0",
    "SELECT COUNT(*) FROM visits WHERE CAST(city AS INTEGER) > 3": "CAST",
    "SELECT COUNT(*) FROM visits WHERE 1 / kind > 0": "division",
    "SELECT SUM(CAST(city AS DOUBLE)) FROM visits": "CAST",
    "SELECT SUM(DISTINCT spent) FROM visits": "DISTINCT",
    "SELECT SUM(spent) WITHIN GROUP (ORDER BY spent) FROM visits": "WITHIN GROUP",
    "SELECT SUM(spent ORDER BY spent) FROM visits": "ORDER BY in an aggregate",
    "SELECT COUNT(DISTINCT city) FROM visits": "COUNT(DISTINCT)",
    "SELECT DISTINCT COUNT(*) FROM visits": "SELECT DISTINCT",
    "SELECT COUNT(*) FROM visits GROUP BY city HAVING COUNT(*) > 3": "HAVING",
    "SELECT COUNT(*) FROM visits ORDER BY 1": "ORDER BY",
    "SELECT COUNT(*) FROM visits QUALIFY 1 = 1": "QUALIFY",
    "WITH v AS (SELECT * FROM visits) SELECT COUNT(*) FROM v": "WITH",
    "SELECT COUNT(*) FROM visits UNION SELECT COUNT(*) FROM people": "UNION",
    "SELECT COUNT(*) FROM visits GROUP BY ROLLUP (city)": "ROLLUP",
    "SELECT COUNT(*) FROM visits GROUP BY 1": "GROUP BY",
    "SELECT shop, day, COUNT(*) FROM visits GROUP BY shop, day": "GROUP BY shop, day without",
    "SELECT COUNT(*) FROM visits WHERE kind = shop": "a comparison of two columns",
    "SELECT COUNT(*) FROM visits WHERE regexp_matches(city, 'B.*')": "regular expression",
    "SELECT COUNT(*) FROM visits WHERE kind = 'x'": "a comparison of whole numbers with a text",
    "SELECT COUNT(*) FROM visits WHERE city > 3": "a comparison of texts with a number",
    "SELECT COUNT(*) FROM visits WHERE kind": "a column as a condition",
    "SELECT COUNT(*) FROM visits WHERE random() < 0.5": "RAND",
    "SELECT STRING_AGG(city) FROM visits": "LISTAGG",
    "SELECT MODE(spent) FROM visits": "MODE",
    "SELECT AVG(spent) + 1 FROM visits": "+",
    "SELECT * FROM visits": "*",
    "SELECT 1": "without FROM",
    "SELECT AVG(1) FROM visits": "a constant",
    "SELECT COUNT(*) FROM visits LATERAL JOIN people": "",
    "INSERT INTO visits VALUES (1)": "INSERT",
    "DROP TABLE visits": "DROP",
    "COPY visits TO 'x.csv'": "",
    "SELECT COUNT(*) FROM read_csv('/etc/passwd')": "",
    "SELECT COUNT(*) FROM '/etc/passwd'": "",
    "SELECT COUNT(*) FROM main.visits": "another schema",
    "SELECT COUNT(*) FROM visits; SELECT 1": "one statement",
    "SELECT COUNT(*) FRM visits WHERE": "expected a SELECT",
    "SELECT SUM(income) FROM visits": "no table of the query has a column",
    "SELECT SUM(shop) FROM visits": "bounds",
    "SELECT COUNT(*) FROM shops": "person",
    "SELECT AVG(spent) FROM visits ORDER BY ROW_NUMBER() OVER (ORDER BY spent)": "ORDER BY",
    "SELECT COUNT(*) FROM visits v WHERE kind > (SELECT AVG(v.kind) FROM shops)": "a subquery",
    "SELECT COUNT(*) FROM visits v JOIN LATERAL (SELECT 1) l ON TRUE": "LATERAL",
    "SELECT COUNT(*) FROM visits GROUP BY CUBE (city)": "GROUP BY CUBE",
    "SELECT COUNT(*) FROM visits GROUP BY ALL": "GROUP BY ALL",
    "SELECT COUNT(*) FILTER (WHERE kind > (SELECT 1)) FROM visits": "a subquery in a condition",
    "SELECT DISTINCT ON (city) COUNT(*) FROM visits": "SELECT DISTINCT",
    "SELECT COUNT(*) FROM visits EXCEPT ALL SELECT COUNT(*) FROM people": "EXCEPT",
    "SELECT SUM(RANDOM()) FROM visits": "RANDOM",
    "SELECT COUNT(*) FROM visits WHERE day < NOW()": "the function NOW",
    "SELECT COUNT(*) FROM visits WHERE day < CURRENT_TIMESTAMP": "CURRENT_TIMESTAMP in a condition",
    "SELECT SUM(TRY_CAST(city AS DOUBLE)) FROM visits": "TRY_CAST",
    "SELECT COUNT(*) / 0 FROM visits": "a ratio of a literal",
    "SELECT SUM(spent / NULLIF(kind, 0)) FROM visits": "division by a column",
    "SELECT COUNT(*) FROM visits WHERE shop = 1 AND 1 / 0 = 1": "division by what is no number",
    "SELECT COUNT(*) FROM visits WHERE regexp_extract(city, '(B)', 1) = 'B'": "REGEXP_EXTRACT",
    "SELECT COUNT(*) FROM visits WHERE city GLOB 'B*'": "GLOB",
    "SELECT COUNT(*) FROM visits WHERE city LIKE 'B_rn' ESCAPE '_'": "ESCAPE",
    "SELECT COUNT(*) FROM visits WHERE city->>'$.a' = 'x'": "JSON_EXTRACT_SCALAR",
    "SELECT SUM(SQRT(spent)) FROM visits": "SQRT",
    "SELECT SUM(spent ** 2) FROM visits": "POWER",
    "SELECT COUNT(*) FROM visits WHERE spent IN (1, 2, NULL)": "a literal",
    "SELECT COUNT(*) FROM visits WHERE spent <> spent": "a comparison of two columns",
    "SELECT COUNT(*) FROM visits WHERE EXTRACT(YEAR FROM day) = 2024": "EXTRACT",
    "SELECT COUNT(*) FROM visits WHERE kind > $1": "a placeholder",
    "SELECT COUNT(*) FROM visits AT (VERSION => 3)": "AT is not answered",
    "SELECT COUNT(*) FROM visits FETCH FIRST 1 ROW ONLY": "LIMIT",
    "SELECT COUNT(*) INTO x FROM visits": "SELECT INTO",
    "SELECT COUNT(*) FROM visits v JOIN visits w USING (shop)": "loses the person",
    "SELECT COUNT(*) FROM visits v JOIN people p ON v.customer = p.customer OR 1 = 1": "OR in ON",
    "SELECT COUNT(*) FROM visits POSITIONAL JOIN people": "POSITIONAL JOIN",
    "SELECT GROUPING(city), COUNT(*) FROM visits GROUP BY city": "GROUPING",
    "SELECT -COUNT(*) FROM visits": "− is not answered",
    "SELECT ROUND(AVG(spent), 2) FROM visits": "ROUND",
    "SELECT SUM(SUM(spent)) FROM visits": "SUM is not answered",
    "SELECT SUM(spent) OVER w FROM visits WINDOW w AS (PARTITION BY city)": "WINDOW",
    "SELECT COUNT(DISTINCT CASE WHEN kind > 3 THEN customer END) FROM visits": "COUNT(DISTINCT)",
    "SELECT QUANTILE_CONT(spent, [0.1, 0.9]) FROM visits": "without one level",
    "SELECT COUNT(*) FROM visits WHERE city = $$Bern$$": "a text in $$",
    "SELECT getenv('HOME') FROM visits": "the function GETENV",
    "SUMMARIZE visits": "SUMMARIZE",
    "ATTACH 'x.db'": "ATTACH",
}  # fmt: skip


@pytest.mark.parametrize("sql", list(REFUSED))
def test_what_is_not_answered_is_refused_by_its_name(sql, frames):
    promise = replace(PROMISE, bounds={"spent": (0.0, 50.0)} if "spent" in sql else None,
                      levels={"city": ("Bern",)} if "city" in sql else None)  # fmt: skip
    with pytest.raises(ValueError) as error:  # noqa: PT011
        answer(sql, frames, promise, public=("shops",))
    assert REFUSED[sql] in str(error.value)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"levels": {"city": ()}}, "levels: expected values of 'city', got none"),
        ({"levels": {"city": 5}}, "levels: expected values of 'city', got 5"),
        ({"levels": {5: ("Bern",)}}, "levels: expected names of columns, got 5"),
        ({"bounds": {"spent": (0, 1, 2)}}, "bounds: expected lowest and highest of 'spent'"),
        ({"bounds": {"spent": "any"}}, "bounds: expected lowest and highest of 'spent', or auto"),
        ({"levels": {"city": ("Bern",), "CITY": ("Oslo",)}}, "levels: .* got 'CITY' twice"),
        ({"bounds": {"spent": (0, 1), "Spent": (0, 2)}}, "bounds: .* got 'Spent' twice"),
    ],
)
def test_declarations_that_contradict_themselves_are_refused(declared, message, frames):
    with pytest.raises(ValueError, match=message):
        answer("SELECT COUNT(*) FROM visits", frames, replace(PROMISE, **declared))


WIDE = {"big": (0.0, 1e19)}
BIG = [2**60, 2**60 + 1, 2**60 + 2, -(2**60) - 1, None, 7]
TOLD = {
    "big = 1152921504606846977": 1,
    "big <> 1152921504606846977": 4,
    "big > 1152921504606846976.5": 2,
    "big >= 1152921504606846976.5": 2,
    "big < 1152921504606846976.5": 3,
    "NOT big = 7.5": 5,
    "big = 7.5": 0,
    "big IN (7, 1152921504606846978, 7.5)": 2,
    "big BETWEEN 1152921504606846977 AND 1152921504606846978.5": 2,
    "1152921504606846976 < big": 2,
    "big < -1152921504606846976": 1,
    "big < 79228162514264337593543950336": 5,
    "big >= -79228162514264337593543950336": 5,
    "big = 9223372036854775808": 0,
    "tiny < 1000": 6,
    "day = '2024-01-05'": 2,
    "day <= DATE '2024-01-05'": 2,
    "day > '2024-01-05T10:30'": 2,
    "day BETWEEN '2024-01-05 10:30' AND '2024-01-06'": 2,
}  # fmt: skip


def moments():
    """Whole numbers and dates that doubles and texts tell otherwise."""
    times = ["2024-01-05", "2024-01-05", "2024-01-05 10:30", "2024-01-06", "2025-01-01", None]
    frame = pd.DataFrame({"who": range(6), "big": pd.array(BIG, dtype="Int64")})
    frame["tiny"] = pd.array(range(6), dtype="Int16")
    frame["day"] = pd.to_datetime(times, format="mixed")
    return frame


def told(where, table=None, engine=None):
    promise = Table(epsilon=1, person="who", clip=1)
    sql = f"SELECT COUNT(*) FROM t WHERE {where}"
    plan = answer(
        sql, {"t": moments() if table is None else table}, promise, engine=engine
    ).prepared.plan
    return int(plan.persons.total(plan.metric, plan.radius, plan.budget.norm)[0])


@pytest.mark.parametrize("where", list(TOLD))
def test_whole_numbers_and_dates_are_compared_as_such(where):
    assert told(where) == TOLD[where]


def test_keys_of_whole_numbers_and_dates_are_those_declared():
    frame = pd.DataFrame({"who": range(3), "big": BIG[:3]})
    frame["day"] = pd.to_datetime(["2024-01-05", "2024-01-06", "2024-01-05"])
    levels = {"big": (2**60 + 1, 2**60 + 2), "day": ("2024-01-05",)}
    promise = Table(epsilon=1.0, person="who", clip=1, levels=levels)
    sql = "SELECT big, COUNT(*) AS n FROM t GROUP BY big, big, t.big"
    found = numbers(sql, {"t": frame}, promise)
    assert {name: round(value) for name, value in found.items()} == {
        f"n|big={2**60 + 1}": 1, f"n|big={2**60 + 2}": 1,
    }  # fmt: skip
    (days,) = numbers("SELECT COUNT(*) FROM t GROUP BY day", {"t": frame}, promise).values()
    assert round(days) == 2
    with pytest.raises(ValueError, match="either in GROUP BY or in an aggregate"):
        numbers("SELECT AVG(big) FROM t GROUP BY big", {"t": frame}, replace(promise, bounds=WIDE))
    with pytest.raises(ValueError, match="one twice"):
        numbers(sql, {"t": frame}, replace(promise, levels={"big": (1, 1.0)}))
    with pytest.raises(ValueError, match="expected whole numbers for big"):
        numbers(sql, {"t": frame}, replace(promise, levels={"big": (1.5,)}))


def test_a_whole_number_that_is_read_as_a_double_is_not_compared_with_a_larger_one(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(f"who,x\na,{2**53 + 1}\n")
    with pytest.raises(ValueError, match="within ±2⁵³ beside x"):
        persons(str(path), f"SELECT COUNT(DISTINCT who) FROM t WHERE x = {2**53}")


@pytest.mark.parametrize("twice", [["who", "x", "x"], ["who", "x", "X"]])
def test_a_frame_with_a_name_twice_is_refused(twice):
    with pytest.raises(ValueError, match="different names in t"):
        persons(pd.DataFrame([["a", 1.0, 2.0]], columns=twice))


def test_what_is_no_number_counts_as_nothing_where_numbers_are_declared(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("who,x\na,1\nb,ill\nc,\nd,nan\ne,inf\n")
    promise = Table(epsilon=1.0, delta=1e-6, person="who", clip=3, bounds={"x": (0, 10)})
    sql = "SELECT COUNT(x), SUM(x), COUNT(*) FILTER (WHERE x IS NULL) AS none FROM t"
    found = numbers(sql, {"t": str(path)}, promise)
    assert [round(one) for one in found.values()] == [2, 11, 3]
    # without bounds it is a column of texts
    (texts,) = numbers(
        "SELECT COUNT(x) FROM t", {"t": str(path)}, replace(promise, bounds=None)
    ).values()
    assert round(texts) == 4


def test_no_cell_makes_the_engine_raise_or_stay_silent(tmp_path):
    """A file of texts in place of numbers answers as one of numbers; so do awkward names."""
    path = tmp_path / "it's [odd]*.csv"
    cells = ["1", "x", "", "1e999", "-1e999", "nan", "5e-324", "'; DROP", '""', "9" * 400, "é"]
    lines = "".join(f'p{place},"{cell}"\n' for place, cell in enumerate(cells))
    path.write_text("who,a\n" + lines, "utf-8")
    promise = Table(epsilon=1.0, person="who", bounds={"a": (-1.0, 1.0)}, clip=1.0)
    sql = "SELECT COUNT(*), SUM(a), COUNT(a) FROM t WHERE NOT a > 2 OR a IS NULL OR a > 2"
    prepare_sql(sql, {"t": str(path)}, promise)
    sql = "SELECT SUM(a * a - a / 3) FROM t"
    prepare_sql(sql, {"t": str(path)}, promise)


@pytest.mark.parametrize("ending", ["csv", "parquet", "json", "csv.gz", "duckdb"])
def test_a_table_is_read_from_a_file(ending, tmp_path):
    import duckdb

    frame = pd.DataFrame({"who": ["a", "a", "b", None], "x": [1.0, 2.0, 4.0, 8.0]})
    path = tmp_path / f"t.{ending}"
    if ending.startswith("csv"):
        frame.to_csv(path, index=False)
    elif ending == "parquet":
        frame.to_parquet(path)
    elif ending == "json":
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        with duckdb.connect(str(path)) as connection:
            connection.execute("CREATE TABLE t AS SELECT * FROM frame")
    promise = Table(epsilon=1.0, delta=1e-6, person="who", clip=10, bounds={"x": (0, 10)})
    found = numbers("SELECT SUM(x), COUNT(*) FROM t", {"t": str(path)}, promise)
    assert found == {
        "SUM(x)": pytest.approx(7.0, abs=1e-3),
        "COUNT(*)": pytest.approx(3.0, abs=1e-3),
    }


def persons(table, sql="SELECT COUNT(DISTINCT who) FROM t", person="who", engine=None):
    promise = Table(epsilon=1.0, person=person, clip=2.0**14)
    (count,) = numbers(sql, {"t": table}, promise, engine).values()
    return round(count)


def test_what_a_column_holds_is_told_by_all_of_its_type():
    kinds = {
        "others": [
            "VARCHAR(10)[]",
            "DECIMAL(9,3)[]",
            "TIMESTAMP(3) WITH TIME ZONE",
            "STRUCT(a INT)",
        ],
        "texts": ['VARCHAR(10) COLLATE "ci"', "TEXT COLLATE x", "ENUM('a)', 'b')", "CHAR(5)"],
        "dates": ["TIMESTAMP(3) WITHOUT TIME ZONE", "TIMESTAMP_NS"],
        "decimals": ["DECIMAL(18,3)", "NUMERIC(10, 2)"],
    }
    assert {kind: [kind_of(one) for one in names] for kind, names in kinds.items()} == {
        kind: [kind] * len(names) for kind, names in kinds.items()
    }


@pytest.mark.parametrize(
    ("who", "count"),
    [
        ([1.0, -0.0, 0.0, float("nan"), 1.0], 2),
        (["a", "A", "a ", None, ""], 4),
        (["Z\u00fcrich", "Zu\u0308rich"], 2),
        ([2**60, 2**60 + 1], 2),
        ([], 0),
    ],
)
def test_who_counts_as_one(who, count):
    assert persons(pd.DataFrame({"who": pd.Series(who, dtype=None if who else "str")})) == count


def test_a_collation_of_a_table_makes_no_two_persons_one(tmp_path):
    import duckdb

    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t (who VARCHAR COLLATE NOCASE, x DOUBLE)")
        connection.execute("INSERT INTO t VALUES ('a', 1), ('A', 2)")
    assert persons(str(path)) == 2
    joined = "SELECT COUNT(*) FROM t JOIN u USING (who)"
    promise = Table(epsilon=1.0, person="who", clip=3)
    (both,) = numbers(joined, {"t": str(path), "u": pd.DataFrame({"who": ["a"]})}, promise).values()
    assert both == pytest.approx(1.0, abs=1e-3)


def test_a_file_that_is_no_table_is_refused_with_its_line_and_no_cell(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("who,x\na,1\nsecret,2,3\n")
    promise = Table(epsilon=1.0, person="who", bounds={"x": (0, 1)}, clip=1)
    with pytest.raises(ValueError, match="line 3") as error:
        prepare_sql("SELECT SUM(x) FROM t", {"t": str(path)}, promise)
    assert "secret" not in str(error.value)


def test_a_query_too_deep_to_read_is_refused():
    deep = "SELECT COUNT(*) FROM t WHERE " + " AND ".join(["x > 0"] * 5000)
    frame = pd.DataFrame({"who": ["a"], "x": [1.0]})
    with pytest.raises(ValueError, match="too deep"):
        prepare_sql(deep, {"t": frame}, Table(epsilon=1.0, person="who", clip=1))


@pytest.mark.parametrize("long", ["*".join(["x"] * 20), "x" + "/2" * 20])
def test_a_number_whose_sql_would_grow_without_end_is_refused(long):
    frame = pd.DataFrame({"who": ["a"], "x": [1.0]})
    promise = Table(epsilon=1.0, person="who", clip=1, bounds={"x": (0, 1)})
    with pytest.raises(ValueError, match="fewer products and divisions"):
        prepare_sql(f"SELECT SUM({long}) FROM t", {"t": frame}, promise)


def test_a_number_that_is_long_because_its_text_is_is_answered():
    frame = pd.DataFrame({"who": ["a"], "code": ["k7"]})
    parts = " ".join(f"WHEN code = 'k{code}' THEN {code}" for code in range(800))
    promise = Table(epsilon=1.0, person="who", clip=1)
    found = prepare_sql(f"SELECT SUM(CASE {parts} ELSE 0 END) FROM t", {"t": frame}, promise)
    assert len(found.expected) == 1
