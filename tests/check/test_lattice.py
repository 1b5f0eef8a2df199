"""Bounds on a lattice enclose the truth where a composition has a closed form."""

import pytest
from flint import arb, fmpq, fmpz_poly
from mpmath import mp, mpf

from tacit_check.composing import Composed
from tacit_check.curves import Pair
from tacit_check.elementary import finite, gaussian, group, sampled, table
from tacit_check.laws import Lattice
from tacit_check.lower import Gathered
from tests.check.oracle import composed

# Of the oracle and of a number printed in decimals.
PRINTED = mpf(10) ** -25


def enclosed(curve, count, epsilon, least, size):
    """A lower and an upper bound of H(ε) of so many releases on a lattice."""
    sides = [side(size, count, least) for side in (Gathered, Lattice)]
    laws = [one.together([(count, Pair((curve,)))], 0) for one in sides]
    found = [one.height(law, arb(epsilon)) for one, law in zip(sides, laws, strict=True)]
    # as printed: half a digit more or less
    ends = [mpf(end.mid().str(40, radius=False)) for end in found]
    return ends[0] - PRINTED, ends[1] + PRINTED


@pytest.mark.parametrize("side", [Gathered, Lattice])
def test_many_products_are_rounded_as_each_by_itself(side):
    lattice = side(8, 3, fmpq(1, 10))
    unit = 1 << lattice.bits
    products = [0, 1, unit - 1, unit, unit + 1, 3 * unit, unit * unit // 7, 5, 0, unit // 3]
    for count in range(len(products) + 1):
        found = [int(one) for one in lattice.shortened(fmpz_poly(products[:count])).coeffs()]
        # a polynomial ends with what is not 0
        found += [0] * (count - len(found))
        assert found == [lattice.rounded(one) for one in products[:count]]


@pytest.mark.parametrize(
    ("count", "noise", "epsilon"),
    [("2", "2", "1"), ("7", "3", "0.5"), ("100", "20", "1.5"), ("1000", "40", "3")],
)
def test_gaussians_added_up_enclose_one(count, noise, epsilon):
    node = {"kind": "gaussian", "sensitivity": "1", "noise": noise}
    true = composed({"parts": [{"count": count, "of": node}]})(mpf(epsilon))
    curve = gaussian(1 / fmpq(int(noise)) ** 2).curves[0]
    exact = fmpq(int(mpf(epsilon) * 10), 10)
    low, high = enclosed(curve, int(count), exact, fmpq(1, 10**6), 1 << 12)
    assert low <= true <= high
    # and closely: 1/T of the points would enclose it too
    assert high < true * mpf("1.01") + mpf(10) ** -9
    assert low > true * mpf("0.5") - mpf(10) ** -9


@pytest.mark.parametrize("epsilon", ["0.1", "1", "2.5"])
@pytest.mark.parametrize("count", [2, 5, 12])
def test_answers_added_up_enclose_the_sum_over_all_sequences(count, epsilon):
    rows = [["2", "1", "4"], ["3", "2", "2"]]
    node = {"kind": "table", "rows": rows}
    with mp.workdps(30):
        true_of = composed({"parts": [{"count": str(count), "of": node}]})
        truths = [true_of(mpf(epsilon))]
    laws_of = [[fmpq(int(one), 7) for one in row] for row in rows]
    exact = fmpq(int(mpf(epsilon) * 10), 10)
    bounds = [
        enclosed(finite(one, other), count, exact, fmpq(1, 10**6), 1 << 12)
        for one, other in (laws_of, laws_of[::-1])
    ]
    low, high = max(low for low, _ in bounds), max(high for _, high in bounds)
    assert low <= truths[0] <= high
    assert high < truths[0] * mpf("1.02") + mpf(10) ** -9


def test_samples_of_pairs_in_other_orders_are_not_taken_order_by_order():
    half, rows = fmpq(1, 2), [[fmpq(9), fmpq(1), fmpq(0)], [fmpq(1), fmpq(4), fmpq(5)]]
    bases = group(fmpq(1, 100), fmpq(100), 1), table(rows)[0]
    parts = [(1, sampled(half, base)) for base in bases]
    # a spike of 0.5 · 0.01 and an outcome of 0.5 · 0.5 that the other input never has
    true = fmpq(1) - (1 - half / 100) * (1 - half / 2)
    found, _ = Composed(parts, fmpq(1, 10**6), ((1 << 10, 9.0),)).at(None, arb(5), fmpq(1, 4))
    assert found > true - fmpq(1, 10**6)
