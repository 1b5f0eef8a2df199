"""What looks like a proof and is none: claims below the truth that some short cut would hold."""

import json
import math
from fractions import Fraction
from itertools import product

import pytest
from mpmath import mp, mpf

from tacit_check.balls import ZERO, RefusedFileError, floors
from tacit_check.claims import check
from tacit_check.elementary import finite
from tacit_check.reading import parse


def result(mechanism, claims, adjacency="inputs"):
    proof = {"format": "tacit-proof", "version": 1, "adjacency": adjacency}
    proof |= {"mechanism": mechanism, "claims": claims}
    return check(parse(json.dumps({"proof": proof}).encode()))


def height(pairs, gamma):
    """H of independent finite pairs by all their outcomes, in fractions."""
    return sum(
        max(
            math.prod(p[k] for (p, _), k in zip(pairs, outcome, strict=True))
            - gamma * math.prod(q[k] for (_, q), k in zip(pairs, outcome, strict=True)),
            Fraction(0),
        )
        for outcome in product(*(range(len(p)) for p, _ in pairs))
    )


def test_samples_of_a_table_whose_rows_change_places_from_one_release_to_the_next():
    # what others are in a sample says which row the record is added to: either, in each release
    rows = [[Fraction(1, 16), Fraction(15, 16)], [Fraction(2, 11), Fraction(9, 11)]]
    rate = Fraction(9, 10)

    def pair(one, other):
        return [(1 - rate) * b + rate * a for a, b in zip(one, other, strict=True)], other

    ways = [pair(*rows), pair(*rows[::-1])]
    gamma = Fraction(math.exp(0.875))
    truth = max(
        height([one, two], gamma)
        for turned in (False, True)
        for one in (p[::-1] if turned else p for p in ways)
        for two in (p[::-1] if turned else p for p in ways)
    )
    weights = [[str(int(one * 176)) for one in row] for row in rows]
    sample = {"kind": "poisson-sampled", "rate": "0.9", "of": {"kind": "table", "rows": weights}}
    node = {"kind": "composition", "parts": [{"count": "2", "of": sample}]}
    for factor, expected in ((0.999, "not shown"), (1.6, "holds")):
        claim = {"kind": "approximate-dp", "epsilon": "0.875", "delta": f"{truth * factor:.9f}"}
        (found,) = result(node, [claim], "add-remove").verdicts
        assert found.verdict == expected, factor


@pytest.mark.parametrize("power", [20, 45, 70, 200])
def test_noise_that_is_all_but_singular(power):
    # zᵀ Σ⁻¹ z = 1/(2 · 10^−n) exactly of z = (1, −1)/2 in this covariance
    near = "0." + "9" * power
    node = {"kind": "boxes", "covariance": [["1", near], [near, "1"]]}
    node["parts"] = [{"listed": [["0.5", "-0.5"]]}]
    mu = mp.sqrt(mpf(10) ** power / 2)
    with mp.workdps(40):
        claims = [
            {"kind": "gaussian-dp", "mu": mp.nstr(mu * mpf(factor), 12)}
            for factor in ("1.000001", "0.999999")
        ]
    try:
        above, below = (one.verdict for one in result(node, claims, "add-remove").verdicts)
    except RefusedFileError:
        above = below = "refused"
    # of 192 bits what is left of 58 digits tells nothing
    assert above == "holds" or (power > 45 and above in ("not shown", "refused"))
    assert below != "holds"


def test_a_claim_that_no_theorem_reaches_is_in_the_verdict_of_the_whole():
    node = {"kind": "laplace", "sensitivity": "1", "scale": "2"}
    true = {"kind": "pure-dp", "epsilon": "0.5"}
    naming = {"kind": "naming", "candidates": "9", "success": "0.111112"}
    evidence = {"kind": "statistical", "statement": "an attack reached 52%", "confidence": "0.9"}
    assert result(node, [true, evidence]).word == "holds"
    assert result(node, [true, naming]).word == "not shown"
    # less than a blind guess
    told = {"kind": "log-det", "nats": "0.1"}
    claims = [
        {"kind": "information", "nats": "0.1"},
        {"kind": "success", "prior": "0.5", "success": "0.01"},
    ]
    assert result(told, claims).word == "not shown"


def test_every_number_of_a_claim_stands_in_its_words():
    claims = [
        {"kind": "information", "nats": "1.099", "candidates": "3"},
        {"kind": "success", "prior": "0.25", "success": "0.9"},
        {"kind": "renyi", "order": "7", "epsilon": "99"},
        {"kind": "naming", "candidates": "4", "success": "0.99"},
        {"kind": "approximate-dp", "epsilon": "8.5", "delta": "0.125"},
    ]
    node = {"kind": "gaussian", "sensitivity": "1", "noise": "1"}
    found = result(node, claims).verdicts
    for claim, one in zip(claims, found, strict=True):
        assert all(number in one.claim for name, number in claim.items() if name != "kind"), one


def test_choices_of_bounded_range_are_below_a_gaussian():
    # ±η/2 for two outcomes has total variation tanh(η/4), and so has N(μ, 1) at 2 Φ(μ/2) − 1
    with mp.workdps(30):
        squares = mpf(0)
        for width, times in (("0.8", 3), ("0.2", 10)):
            squares += times * 8 * mp.erfinv(mp.tanh(mpf(width) / 4)) ** 2
        mu = mp.sqrt(squares + mpf("0.25"))
        stated = [mp.nstr(mu * mpf(factor), 12) for factor in ("1.00000001", "0.999999")]
    choice = {"kind": "exponential", "range": "0.8"}
    parts = [{"count": "3", "of": choice}, {"count": "10", "of": {**choice, "range": "0.2"}}]
    parts += [{"count": "1", "of": {"kind": "gaussian", "sensitivity": "1", "noise": "2"}}]
    claims = [{"kind": "gaussian-dp", "mu": one} for one in stated]
    found = result({"kind": "composition", "parts": parts}, claims).verdicts
    assert [one.verdict for one in found] == ["holds", "not shown"]
    # errors of every such pair of coins, at every ε, against those of the Gaussian
    square = 8 * mp.erfinv(mp.tanh(mpf("0.2"))) ** 2
    for epsilon in (mpf(k) / 50 for k in range(-45, 46)):
        height = (1 - mp.exp((epsilon - mpf("0.8")) / 2)) ** 2 / (1 - mp.exp(-mpf("0.8")))
        height = 1 - mp.exp(epsilon) if epsilon < mpf("-0.8") else height
        height = mpf(0) if epsilon > mpf("0.8") else height
        length = mp.sqrt(square)
        near, far = length / 2 - epsilon / length, -length / 2 - epsilon / length
        assert height <= mp.ncdf(near) - mp.exp(epsilon) * mp.ncdf(far) + mpf(10) ** -12


def test_a_chance_that_may_be_more_than_nothing_is_not_taken_for_nothing():
    chance = ZERO.union(ZERO + 2) * 0.25
    assert finite([chance, 1 - chance, ZERO], [ZERO, 1 - chance, chance]).most is None
    with pytest.raises(RefusedFileError):
        floors(ZERO.union(ZERO + 9))
