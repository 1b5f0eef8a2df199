"""What a verification adds and digests quickly is what the plain way gives, to the last bit."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tacit.guarantees import GaussianDP
from tacit.ledger.account import Account
from tacit.ledger.chain import SEALED, plain_seal, seal
from tacit.ledger.notions import charges_of
from tacit.ledger.rows import guarantees_json
from tacit.ledger.sums import Stated, Sums
from tacit.ledger.tables import RowDigest, entry_table, row_digest


def stated(mu: float, *, committed: bool = True) -> tuple[Stated, GaussianDP]:
    guarantee = GaussianDP(
        mu=mu, adjacency="replace one record", evidence="theorem", assumptions=(), source="made"
    )
    return Stated(guarantees_json([guarantee]), False, committed), guarantee


def test_sums_of_numbers_of_every_size_are_exact() -> None:
    rng = np.random.default_rng(0)
    # from the smallest float to what overflows when squared, in an order that widens the fields
    sizes = [5e-324, 1e-3, 1e200, math.inf, 0.1, *10.0 ** rng.uniform(-300, 300, 30)]
    sums, other = Sums(), Sums()
    accounts = {name: Account() for name in "ab"}
    for number, mu in enumerate(sizes * 2):
        name = "ab"[number % 3 == 0]
        one, guarantee = stated(mu, committed=number % 2 == 0)
        (sums if number % 5 else other).add(name, one)
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
def test_an_ordinary_row_is_digested_as_any(column: str | None, value: object) -> None:
    quick = RowDigest(entry_table)
    row = ROW if column is None else {**ROW, column: value}
    values = [row[name] for name in quick.names]
    assert quick(values) == row_digest({**row, "reproducible": bool(row["reproducible"])})
    assert quick.row(values) == {**row, "reproducible": bool(row["reproducible"])}


@pytest.mark.parametrize(
    ("column", "value"),
    [("status", b"drawn"), ("mu", 1), ("nats", math.inf), ("number", 3.0), ("number", "3"),
     ("reproducible", -1), ("reproducible", 2), ("reproducible", "0"), ("reproducible", 0.0),
     ("time", None), ("epsilon", "1e-17"), ("record", "null")],
)  # fmt: skip
def test_a_value_of_another_type_has_no_ordinary_digest(column: str, value: object) -> None:
    quick = RowDigest(entry_table)
    whole = quick([ROW[name] for name in quick.names])
    try:
        assert quick([{**ROW, column: value}[name] for name in quick.names]) != whole
    except (TypeError, KeyError):
        assert type(value) is not type(ROW[column]) or column == "reproducible"


def test_a_link_of_plain_text_is_sealed_as_any_and_no_other_is() -> None:
    link = ("0" * 64, 7, "release", 3, "s", "drawn", "t", "1" * 64, "2" * 64)
    plain = plain_seal(link)
    assert plain == seal(dict(zip(SEALED, link, strict=True)))
    others: list[tuple[int, object]] = [
        (4, 's", "drawn'), (4, "s\\"), (4, "é"), (5, b"drawn"), (5, None), (1, "7"), (1, 7.0),
        (3, 3.5), (0, 0), (8, 2),
    ]  # fmt: skip
    for place, value in others:
        edited = [*link[:place], value, *link[place + 1 :]]
        assert plain_seal(edited) != plain
        if place != 4:
            assert plain_seal(edited) != seal(dict(zip(SEALED, edited, strict=True)))
