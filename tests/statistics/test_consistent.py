"""Counts that add up, held against an independent solver and exact tables."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import lsq_linear

from tacit import Effort, Table, privatize
from tacit.statistics import consistent_counts

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
    for _ in range(20):
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
        ("rows+mean", "rows"),
    ],
)
def test_what_does_not_add_up_is_refused(frame, query, message):
    given = {"levels": {"city": list(CITIES)}} if query == "count by city" else {}
    if "mean" in query:
        frame = frame.assign(x=1.0)[["who", "x"]]
        given = {"levels": None, "bounds": {"x": (0.0, 2.0)}}
    with pytest.raises(ValueError, match=message):
        consistent_counts(released(frame, query, **given))


def test_rows_of_other_numbers_make_no_margin(frame):
    numbers = frame.assign(size=[1, 2, 3, 4] * 50)[["who", "size"]]
    release = released(numbers, "rows by size+rows", levels={"size": [1, 2, 3]})
    with pytest.raises(ValueError, match="declared words of size"):
        consistent_counts(release)
