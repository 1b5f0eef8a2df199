"""What a verification adds and digests quickly is what the plain way gives, to the last bit."""

from __future__ import annotations

import hashlib
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tacit.guarantees import GaussianDP
from tacit.ledger.account import Account
from tacit.ledger.chain import SEALED, are_whole, seal
from tacit.ledger.notions import charges_of
from tacit.ledger.rows import guarantees_json
from tacit.ledger.sums import Statement, Sums
from tacit.ledger.tables import RowDigests, budget_table, entry_table, row_digest


def stated(mu: float, *, committed: bool = True) -> tuple[Statement, GaussianDP]:
    guarantee = GaussianDP(
        mu=mu, adjacency="replace one record", evidence="theorem", assumptions=(), source="made"
    )
    return (guarantees_json([guarantee]), False, committed, None), guarantee


def test_sums_of_numbers_of_every_size_are_exact() -> None:
    rng = np.random.default_rng(0)
    # from the smallest float to what overflows when squared, in an order that widens the fields
    sizes = [5e-324, 1e-3, 1e200, math.inf, 0.1, *10.0 ** rng.uniform(-300, 300, 30)]
    sums, other = Sums(), Sums()
    accounts = {name: Account() for name in "ab"}
    for number, mu in enumerate(sizes * 2):
        name = "ab"[number % 3 == 0]
        one, guarantee = stated(mu, committed=number % 2 == 0)
        (sums if number % 5 else other).add([(name, one)])
        charges = charges_of((guarantee,), reproducible=False)
        accounts[name] = accounts[name].added(charges, committed=number % 2 == 0)
    sums.join(other)
    for name, account in accounts.items():
        assert sums.of(name) == account.totals
        counted = [mu for n, mu in enumerate(sizes * 2) if name == "ab"[n % 3 == 0]]
        square = sums.of(name)["mu²", "replace one record"]
        assert square.finite == sum(Fraction(mu) ** 2 for mu in counted if mu < math.inf)
        assert square.infinite == counted.count(math.inf)


ROW: dict[str, Any] = {
    "number": 3, "secret": "s", "status": "drawn", "notion": "gaussian-dp", "nats": 0.0,
    "epsilon": 1e-17, "delta": 5e-324, "mu": 1e300, "leakage": -0.0, "failure": 0.1,
    "guarantees": '[{"a": "\\\\"}]', "reproducible": 0, "time": "t", "changed": "é\n\x7f",
    "description": "", "version": "0.2.0", "record": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("column", "value"),
    [(None, None), ("secret", '"\\ud800 \t😀'), ("record", "{}"), ("reproducible", 1)],
)
def test_ordinary_rows_are_digested_as_any(column: str | None, value: object) -> None:
    quick = RowDigests(entry_table)
    row = ROW if column is None else {**ROW, column: value}
    rows = [[one[name] for name in quick.names] for one in (ROW, row, ROW)]
    whole, other = ({**one, "reproducible": bool(one["reproducible"])} for one in (ROW, row))
    # a driver's rows have what was asked for beside them
    found = quick([[*values, 7, "beside"] for values in rows])
    assert found == [row_digest(whole), row_digest(other), row_digest(whole)]
    assert quick.row([*rows[1], 7]) == other


def test_numbers_that_may_be_missing_are_digested_as_any() -> None:
    quick = RowDigests(budget_table)
    row = {column.name: None for column in budget_table.c} | {
        "number": 1, "secret": "s", "who": "me", "time": "t", "version": "1",
    }  # fmt: skip
    rows = [row, {**row, "mu": 1e-17, "orders": "[2.0]"}, {**row, "epsilon": 0.1, "mu": 2.0}]
    found = quick([[one[name] for name in quick.names] for one in rows])
    assert found == [row_digest(one) for one in rows]
    with pytest.raises(TypeError):
        quick([[{**row, "mu": 1}[name] for name in quick.names]])


@pytest.mark.parametrize(
    ("column", "value"),
    [("status", b"drawn"), ("mu", 1), ("nats", math.inf), ("number", 3.0), ("number", "3"),
     ("reproducible", -1), ("reproducible", 2), ("reproducible", "0"), ("reproducible", 0.0),
     ("time", None), ("epsilon", "1e-17"), ("record", "null"), ("delta", -5e-324),
     ("leakage", 0.0)],
)  # fmt: skip
def test_a_value_of_another_type_has_no_ordinary_digest(column: str, value: object) -> None:
    quick = RowDigests(entry_table)
    whole = quick([[ROW[name] for name in quick.names]])
    try:
        assert quick([[{**ROW, column: value}[name] for name in quick.names]]) != whole
    except (TypeError, KeyError):
        assert type(value) is not type(ROW[column]) or column == "reproducible"


def links(count: int) -> list[list[Any]]:
    """Links as the driver gives them, one after the other."""
    found, previous = list[list[Any]](), "0" * 64
    for place in range(1, count + 1):
        name = ("s", 'é "s\\')[place % 2]
        content = [previous, place, "release", 3, name, "drawn", "t", "1" * 64, "2" * 64]
        previous = seal(dict(zip(SEALED, content, strict=True)))
        found.append([*content, previous])
    return found


def test_links_that_follow_one_another_are_whole_and_no_others_are() -> None:
    whole = links(5)
    assert are_whole(whole, 0, "0" * 64)
    assert are_whole(whole[2:], 2, whole[1][-1])
    assert not are_whole(whole[2:], 1, whole[1][-1])
    assert not are_whole(whole[2:], 2, "0" * 64)
    assert not are_whole([*whole[:2], *whole[3:]], 0, "0" * 64)
    assert not are_whole([whole[0], whole[2], whole[1]], 0, "0" * 64)


@pytest.mark.parametrize("place", range(10))
def test_an_edited_link_is_not_whole(place: int) -> None:
    whole = links(5)
    values = (
        7, 7.0, 3.0, "7", None, True, b"drawn", "", "s\\", 's", "drawn', "é", "\0", "s\0",
        'drawn", "t', "other", "3" * 64, float(place), str(whole[2][place]),
        f"{whole[2][place]}\0", str(whole[2][place]).encode(),
    )  # fmt: skip
    for value in values:
        edited = [list(link) for link in whole]
        edited[2][place] = value
        same = type(value) is type(whole[2][place]) and value == whole[2][place]
        assert are_whole(edited, 0, "0" * 64) is same, value


@pytest.mark.parametrize("column", range(5, 9))
@pytest.mark.parametrize("text", ["\\", '"', "é", "\0", "\n", "\U0001f600", 'drawn", "t'])
def test_a_link_whose_hash_is_of_what_canonical_json_escapes_is_not_whole(
    column: int, text: str
) -> None:
    (link,) = links(1)
    link[column] = text
    previous, place, kind, number, secret, *others, _ = link
    quoted = '", "'.join(others)
    content = f'["{previous}", {place}, "{kind}", {number}, {json.dumps(secret)}, "{quoted}"]'
    link[-1] = hashlib.sha256(content.encode()).hexdigest()
    assert link[-1] != seal(dict(zip(SEALED, link, strict=False)))
    assert not are_whole([link], 0, "0" * 64)


def test_texts_moved_over_the_edge_of_a_column_are_not_whole() -> None:
    whole = links(3)
    for first in range(5, 8):
        edited = [list(link) for link in whole]
        edited[1][first] = f'{whole[1][first]}", "{whole[1][first + 1]}'
        edited[1][first + 1] = ""
        assert not are_whole(edited, 0, "0" * 64)
