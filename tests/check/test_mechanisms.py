"""Mechanisms that the vectors do not hold, against quadrature and linear algebra of others."""

import hashlib
import json
import math

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy import integrate, stats

from tacit_check.balls import RefusedFileError
from tacit_check.claims import check
from tacit_check.data import measure
from tacit_check.reading import parse
from tests.check.oracle import projection


def verdicts(mechanism, claims, adjacency="inputs", data=None):
    proof = {
        "format": "tacit-proof",
        "version": 1,
        "adjacency": adjacency,
        "mechanism": mechanism,
        "claims": claims,
    }
    content = json.dumps({"proof": proof}).encode()
    result = check(parse(content), None if data is None else measure(data))
    return [one.verdict for one in result.verdicts]


def both_sides(mechanism, claim, name, value, adjacency="inputs", data=None, within=1e-3):
    """A little above the truth holds, and a little below does not."""
    above = {**claim, name: f"{value * (1 + within):.9e}"}
    below = {**claim, name: f"{value * (1 - within):.9e}"}
    found = verdicts(mechanism, [above, below], adjacency, data)
    assert found[0] == "holds"
    assert found[1] in ("false", "not shown")


def stored(path, **content):
    path.write_text(json.dumps({"format": "tacit-data", "version": 1, **content}))
    return str(path), hashlib.sha256(path.read_bytes()).hexdigest()


def words(rows):
    return [[repr(float(one)) for one in row] for row in rows]


@pytest.fixture
def problem():
    source = np.random.default_rng(5)
    root = source.normal(size=(6, 6))
    return source.normal(size=(30, 6)), root @ root.T + np.eye(6)


def test_listed_differences_of_the_holder(problem, tmp_path):
    points, covariance = problem
    data, digest = stored(
        tmp_path / "d.json",
        kind="differences",
        covariance=words(covariance),
        differences=words(points),
    )
    mu = math.sqrt(max(z @ np.linalg.solve(covariance, z) for z in points))
    node = {"kind": "differences", "distance": "0.001", "digest": digest}
    both_sides(node, {"kind": "gaussian-dp"}, "mu", mu, data=data, within=1e-9)
    # from the file alone the distance is given, and another file's data is no witness
    assert verdicts(node, [{"kind": "gaussian-dp", "mu": "0.001"}]) == ["holds"]
    for other in ({**node, "digest": "0" * 64}, {"kind": "differences", "distance": "0.001"}):
        with pytest.raises(RefusedFileError, match="no node of the file names its digest"):
            verdicts(other, [{"kind": "gaussian-dp", "mu": "0.001"}], data=data)


def test_swaps_of_the_holder(problem, tmp_path):
    rows, covariance = problem
    pairs = [(i, i + 1) for i in range(0, 30, 2)]
    data, digest = stored(
        tmp_path / "s.json",
        kind="swaps",
        covariance=words(covariance),
        rows=words(rows),
        pairs=[[str(i), str(j)] for i, j in pairs],
    )
    gaps = [rows[i] - rows[j] for i, j in pairs]
    mu = math.sqrt(max(z @ np.linalg.solve(covariance, z) for z in gaps))
    node = {"kind": "swaps", "distance": "9", "digest": digest}
    both_sides(node, {"kind": "gaussian-dp"}, "mu", mu, data=data, within=1e-9)


def test_information_of_the_holder(problem, tmp_path):
    outputs, covariance = problem
    weights = np.arange(1.0, 31.0)
    data, digest = stored(
        tmp_path / "l.json",
        kind="log-det",
        covariance=words(covariance),
        outputs=words(outputs),
        weights=[str(int(w)) for w in weights],
    )
    spread = np.cov(outputs.T, aweights=weights, ddof=0)
    nats = 0.5 * np.linalg.slogdet(np.eye(6) + spread @ np.linalg.inv(covariance))[1]
    node = {"kind": "log-det", "nats": "0.001", "digest": digest}
    both_sides(node, {"kind": "information"}, "nats", nats, data=data, within=1e-9)


def test_cells_of_the_holder(tmp_path):
    data, digest = stored(tmp_path / "c.json", kind="cells", values=["1", "1.0", "2", "3", "3"])
    node = {"kind": "cells", "occupied": "2", "candidates": "5", "digest": digest}
    claims = [
        {"kind": "naming", "candidates": "5", "success": "0.6"},
        {"kind": "naming", "candidates": "5", "success": "0.59"},
        {"kind": "information", "nats": "1.09862"},
    ]
    assert verdicts(node, claims, data=data) == ["holds", "false", "holds"]
    assert verdicts(node, claims[1:2]) == ["holds"]


def test_noise_that_is_no_covariance_is_refused(problem, tmp_path):
    points, covariance = problem
    data, _ = stored(
        tmp_path / "n.json",
        kind="differences",
        covariance=words(covariance - 20 * np.eye(6)),
        differences=words(points),
    )
    with pytest.raises(RefusedFileError, match="positive definite"):
        measure(data)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
def test_boxes_are_as_far_as_their_corners(problem, adjacency):
    _, covariance = problem
    small = covariance[:3, :3]
    low, high = np.array([-1.0, 0.0, 0.5]), np.array([2.0, 1.0, 0.75])
    corners = np.array(np.meshgrid(*zip(low, high, strict=True))).reshape(3, -1).T
    moves = corners if adjacency == "add-remove" else (corners[:, None] - corners).reshape(-1, 3)
    parts = [{"low": words([low])[0], "high": words([high])[0]}]
    for matrix, rows in ((small, words(small)), (np.diag(np.diag(small)), words([np.diag(small)]))):
        mu = math.sqrt(max(z @ np.linalg.solve(matrix, z) for z in moves))
        node = {"kind": "boxes", "covariance": rows, "parts": parts}
        both_sides(node, {"kind": "gaussian-dp"}, "mu", mu, adjacency, within=1e-9)
    listed = {"kind": "boxes", "covariance": words(small), "parts": [{"listed": words(corners)}]}
    mu = math.sqrt(max(z @ np.linalg.solve(small, z) for z in moves))
    both_sides(listed, {"kind": "gaussian-dp"}, "mu", mu, adjacency, within=1e-9)


def test_naming_one_of_a_simplex():
    mu, k = 1.5, 4

    def right(x):
        return stats.norm.pdf(x) * stats.norm.cdf(x + mu / math.sqrt(2)) ** (k - 1)

    value = integrate.quad(right, -12, 12)[0]
    node = {"kind": "gaussian", "sensitivity": "3", "noise": "2"}
    both_sides(node, {"kind": "naming", "candidates": "4"}, "success", value, within=1e-7)


def test_codes_and_their_products():
    node = {"kind": "code", "sizes": ["4", "3"]}
    claims = [
        {"kind": "factor", "factor": "12"},
        {"kind": "factor", "factor": "11.9"},
        {"kind": "success", "prior": "0.05", "success": "0.6"},
        {"kind": "information", "nats": "2.4850"},
        {"kind": "approximate-dp", "epsilon": "100", "delta": "0.5"},
    ]
    expected = ["holds", "not shown", "holds", "holds", "not shown"]
    assert verdicts(node, claims) == expected


def test_keys_of_many_persons_by_the_tail_of_their_noise():
    length, most, threshold, variance = 1000, 3, 4000, 700_000
    node = {"kind": "weighted-keys", "length": str(length), "most": str(most)}
    node |= {"threshold": str(threshold), "variance": str(variance)}
    weights = [1000, 707, 577]
    tails = [stats.norm.sf((threshold - w - 1) / variance**0.5) for w in weights]
    alone = max(k * tail for k, tail in enumerate(tails, 1))
    for adjacency, units in (("add-remove", 1), ("replace", 2)):
        mu = (units * length**2 / (variance - 16)) ** 0.5
        noise = stats.norm.cdf(mu / 2 - 0.5 / mu)
        noise -= math.exp(0.5) * stats.norm.cdf(-mu / 2 - 0.5 / mu)
        claim = {"kind": "approximate-dp", "epsilon": "0.5"}
        # P = (1 − δ) P' + δ R: what shows, and the noise where nothing does
        both_sides(node, claim, "delta", alone + (1 - alone) * noise, adjacency, within=1e-6)
        twice = {"kind": "composition", "parts": [{"count": "2", "of": node}]}
        shown, mu = 1 - (1 - alone) ** 2, mu * 2**0.5
        noise = stats.norm.cdf(mu / 2 - 0.5 / mu)
        noise -= math.exp(0.5) * stats.norm.cdf(-mu / 2 - 0.5 / mu)
        both_sides(twice, claim, "delta", shown + (1 - shown) * noise, adjacency, within=1e-6)
    with pytest.raises(RefusedFileError):
        verdicts(node, [{"kind": "approximate-dp", "epsilon": "1", "delta": "1"}], "inputs")


@pytest.mark.parametrize("d", [0.6, pytest.param(0.8, marks=pytest.mark.thorough)])
def test_one_of_two_steps_by_quadrature(d):
    epsilon = 0.3

    def ratio(x, y):
        return (math.exp(d * x - d * d / 2) + math.exp(d * y - d * d / 2)) / 2

    # E max(A − γ, 0) and E max(1 − γA, 0) over a grid of two normal numbers
    nodes, weights = np.polynomial.hermite_e.hermegauss(180)
    x, y = np.meshgrid(nodes, nodes)
    mass = np.outer(weights, weights) / weights.sum() ** 2
    a = np.vectorize(ratio)(x, y)
    gamma = math.exp(epsilon)
    delta = max(
        (mass * np.maximum(a - gamma, 0)).sum(), (mass * np.maximum(1 - gamma * a, 0)).sum()
    )
    node = {"kind": "random-allocation", "sensitivity": str(d), "noise": "1", "steps": "2"}
    claim = {"kind": "approximate-dp", "epsilon": "0.3"}
    both_sides(node, claim, "delta", delta, "add-remove", within=1e-2)


def test_a_sketch_in_one_direction_by_quadrature():
    columns, high, epsilon = 3, 1.4, 0.2
    mp.dps = 30

    def density(x, scale):
        n = mpf(columns) / 2
        return (x / scale) ** (n - 1) * mp.exp(-x / scale / 2) / (2**n * mp.gamma(n) * scale)

    def worst(own, other):
        # G is scaled χ²: where the densities cross, at one place
        place = (
            (epsilon + mp.log(mpf(own) / other) * columns / 2) * 2 / (1 / mpf(other) - 1 / mpf(own))
        )
        ends = [place, place + 20, place + 80, place + 400] if own > other else [0, place]
        gain = mp.quad(lambda x: density(x, own) - mp.exp(epsilon) * density(x, other), ends)
        return max(gain, mpf(0))

    delta = float(max(worst(mpf(high), mpf(1)), worst(mpf(1), mpf(high))))
    node = {"kind": "sketch", "columns": "3", "dim": "1", "lowest": "1", "highest": "1.4"}
    claim = {"kind": "approximate-dp", "epsilon": "0.2"}
    both_sides(node, claim, "delta", delta, within=1e-6)


def test_a_sketch_with_both_ends_is_as_its_worst_split():
    from tests.accounting import quadrature

    # two columns in two dimensions: both numbers at one end, at the other, or one at each
    low, high, epsilon = mpf("0.75"), mpf("1.3"), 0.4
    claim = {"kind": "approximate-dp", "epsilon": "0.4"}
    with mp.workdps(20):
        deltas = [
            value
            for up, down in ((high, low), (1 / low, 1 / high))
            for value in (
                quadrature.equal_sketch(epsilon, up, 4),
                quadrature.equal_sketch(epsilon, down, 4),
                quadrature.two_ended_sketch(epsilon, up, 2, down, 2),
            )
        ]
    node = {"kind": "sketch", "columns": "2", "dim": "2", "lowest": "0.75", "highest": "1.3"}
    both_sides(node, claim, "delta", float(max(deltas)))
    # its worst split is not that of several together
    twice = {"kind": "composition", "parts": [{"count": "2", "of": node}]}
    assert verdicts(twice, [{**claim, "delta": "0.9"}]) == ["not checkable"]


@pytest.mark.parametrize("shape", ["0.5", "40", "700"])
def test_both_tails_of_a_gamma_law_have_their_digits(shape):
    from flint import arb

    from tacit_check.projections import gamma_tails

    mp.dps = 40
    for factor in ("0.3", "0.99", "1.2"):
        x = mpf(shape) * mpf(factor)
        lower, upper = gamma_tails(arb(shape), arb(shape) * arb(factor))
        for found, truth in ((lower, (0, x)), (upper, (x, mp.inf))):
            value = mp.gammainc(mpf(shape), *truth, regularized=True)
            assert abs(mpf(found.mid().str(40, radius=False)) / value - 1) < 1e-30


def test_renyi_divergences_by_quadrature():
    rate, order = 0.2, 3

    def mixed(x):
        return (1 - rate) * stats.norm.pdf(x) + rate * stats.norm.pdf(x - 1)

    moment = integrate.quad(lambda x: mixed(x) ** order * stats.norm.pdf(x) ** (1 - order), -20, 25)
    value = math.log(moment[0]) / (order - 1)
    inner = {"kind": "gaussian", "sensitivity": "1", "noise": "1"}
    node = {"kind": "poisson-sampled", "rate": "0.2", "of": inner}
    both_sides(node, {"kind": "renyi", "order": "3"}, "epsilon", value, "add-remove", within=1e-6)


def test_what_no_theorem_reaches_is_not_counted():
    node = {"kind": "column", "dim": "10", "rank": "2", "alignment": "0.9"}
    assert verdicts(node, [{"kind": "approximate-dp", "epsilon": "9", "delta": "0.9"}]) == [
        "not checkable"
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"kind": "laplace", "sensitivity": "1", "scale": "100"},
        {"kind": "gaussian", "sensitivity": "0", "noise": "1"},
        {"kind": "response", "categories": "2", "truth": "0.7"},
        {"kind": "composition", "parts": [{"count": "2", "of": {"kind": "code", "sizes": ["2"]}}]},
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_code_beside_another_mechanism_may_tell_any_two_inputs_apart(other, first):
    parts = [{"count": "1", "of": {"kind": "code", "sizes": ["1000000"]}}]
    parts.insert(0 if first else 1, {"count": "3", "of": other})
    claims = [
        {"kind": "pure-dp", "epsilon": "5"},
        {"kind": "approximate-dp", "epsilon": "0.01", "delta": "0.9"},
        {"kind": "success", "prior": "0.5", "success": "0.99"},
        {"kind": "factor", "factor": "2.9"},
        {"kind": "renyi", "order": "2", "epsilon": "9"},
        {"kind": "gaussian-dp", "mu": "9"},
    ]
    proof = {
        "format": "tacit-proof",
        "version": 1,
        "adjacency": "inputs",
        "mechanism": {"kind": "composition", "parts": parts},
        "claims": claims,
    }
    found = check(parse(json.dumps({"proof": proof}).encode()))
    assert all(one.verdict != "holds" for one in found.verdicts), found


def test_a_projection_holds_where_its_loss_is_large():
    # of most X the loss is about ε: Φ(−13) is far below
    node = {"kind": "projection", "dim": "100", "rank": "99", "spectrum": "one"}
    node |= {"sensitivity": "28", "noise": "1"}
    true = float(projection(node)(mpf(392)))
    assert true > 0.4
    both_sides(node, {"kind": "approximate-dp", "epsilon": "392"}, "delta", true, "add-remove")


def test_renyi_divergences_of_turned_tables_add_up_order_by_order():
    rows = [["0.9", "0.1"], ["0.4", "0.6"]]
    parts = [{"count": "1", "of": {"kind": "table", "rows": one}} for one in (rows, rows[::-1])]
    node = {"kind": "composition", "parts": parts}
    p, q = ([mpf(one) for one in row] for row in rows)
    true = sum(
        mp.log(mp.fsum(a * a / b for a, b in zip(*pair, strict=True))) for pair in ((p, q), (q, p))
    )
    both_sides(node, {"kind": "renyi", "order": "2"}, "epsilon", float(true), within=1e-6)


def test_a_distance_that_is_rounded_up_proves_nothing_false():
    # (1, 1) Σ⁻¹ (1, 1)ᵀ = 1/4 exactly
    ones = {"low": ["1", "1"], "high": ["1", "1"]}
    node = {"kind": "boxes", "covariance": [["5", "3"], ["3", "5"]], "parts": [ones]}
    assert verdicts(node, [{"kind": "gaussian-dp", "mu": "0.5"}], "add-remove") != ["false"]
