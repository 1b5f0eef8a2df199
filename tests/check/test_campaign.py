"""Claims that `tacit.accounting` makes of random mechanisms hold; lowered by 1% they never do."""

from __future__ import annotations

import json
import math
import os
import random
from collections import Counter

import numpy as np
import pytest
from mpmath import mpf
from scipy import special

from tacit import accounting
from tacit_check.claims import check
from tacit_check.reading import parse
from tests.check.oracle import decimal

# Of every mechanism; the whole campaign is `TACIT_CLAIMS=125 make test-thorough TEST=tests/check`.
CLAIMS = int(os.environ.get("TACIT_CLAIMS", "4"))


def text(source: random.Random, low: float, high: float) -> str:
    return f"{low * (high / low) ** source.random():.4g}"


def drawn(source: random.Random, low: float, high: float) -> float:
    return float(text(source, low, high))


def finite(own, other):
    """The profile of two laws on a few outcomes, as weights, for Tacit to compose."""
    p, q = (np.array(law) / sum(law) for law in (own, other))

    def curve(one, two):
        return lambda epsilon: np.maximum(
            one - np.exp(np.asarray(epsilon))[..., None] * two, 0
        ).sum(-1)

    return accounting.profile_from_curves(
        curve(p, q), curve(q, p), name="table", source="its definition", assumptions=("declared",)
    )


def of_table(source: random.Random):
    rows = [[source.randint(2, 40) for _ in range(source.randint(2, 6))]]
    rows.append([max(1, weight + source.randint(-2, 3)) for weight in rows[0]])
    node = {"kind": "table", "rows": [[str(weight) for weight in row] for row in rows]}
    return finite(*rows), node


def of_whole(source: random.Random):
    shift, variance = source.randint(1, 5), drawn(source, 4, 150)
    # beyond 13 deviations lies less than 1e-37
    reach = math.ceil(13 * math.sqrt(variance)) + shift
    places = np.arange(-reach, reach + 1)
    weights = [np.exp(-((places - moved) ** 2) / 2 / variance) for moved in (shift, 0)]
    node = {"kind": "discrete-gaussian", "sensitivity": str(shift), "variance": str(variance)}
    return finite(*weights), {**node, "coordinates": "1"}


def of_geometric(source: random.Random):
    shift, scale = source.randint(1, 5), drawn(source, 2, 60)
    node = {"kind": "discrete-laplace", "sensitivity": str(shift), "scale": str(scale)}
    return accounting.discrete_laplace(shift, scale), node


def many(found, count: int, node: dict | None = None):
    """A composition: its profile, and its node where Tacit says none."""
    told = found * count
    part = {"count": str(count), "of": node or found.mechanism}
    return told, {"kind": "composition", "parts": [part]}


def mechanism(kind: str, source: random.Random):
    """The profile that Tacit gives a mechanism, its node, and its adjacency."""
    steps, few = int(drawn(source, 2, 5000)), source.randint(2, 60)
    rate, noise = drawn(source, 0.001, 0.3), drawn(source, 0.7, 4)
    told, node, adjacency = None, None, "add-remove"
    if kind == "gaussian":
        told = accounting.gaussian(1.0, noise)
    elif kind == "sampled":
        told = accounting.subsampled_gaussian(rate, noise, steps)
    elif kind == "replaced":
        told, adjacency = accounting.subsampled_gaussian(rate, noise, steps, "replace"), "replace"
    elif kind == "laplace":
        told = accounting.laplace(1.0, drawn(source, 2, 40)) * few
    elif kind == "response":
        told = accounting.randomized_response(drawn(source, 0.02, 1), source.randint(2, 20)) * few
    elif kind == "groups":
        told = accounting.subsampled_group(rate, noise, few, source.randint(1, 6))
    elif kind == "mixed":
        told = accounting.subsampled_gaussian(rate, noise, steps)
        told = told.compose(accounting.laplace(1.0, drawn(source, 4, 40)) * source.randint(1, 9))
        told = told.compose(accounting.gaussian(1.0, drawn(source, 2, 9)))
    elif kind == "table":
        told, node = many(*swapped(of_table(source), few))
    elif kind == "geometric":
        told, node = many(*swapped(of_geometric(source), few))
    elif kind == "whole":
        told, node = many(*swapped(of_whole(source), few))
    elif kind == "keys":
        told, node = of_keys(source)
    elif kind == "sketch":
        columns, dim = source.randint(1, 30), source.randint(1, 6)
        ends = (drawn(source, 0.7, 1), drawn(source, 1, 1.4))
        low, high = source.choice([ends, (ends[0], 1.0), (1.0, ends[1])])
        told = accounting.sketch_within(rank=columns, dim=dim, lowest=low, highest=high)
    elif kind == "allocation":
        # where noise is less than 1 a lattice of equal steps is about 1% loose
        told = accounting.random_allocation(drawn(source, 1, 5), steps=source.randint(5, 3000))
    else:
        dim, rank = source.randint(50, 2000), source.randint(1, 40)
        told = accounting.noisy_projection(
            dim=dim,
            rank=rank,
            sensitivity=1.0,
            noise_std=drawn(source, 0.05, 1),
            difference_rank=source.choice([1, None]),
        )
        if kind == "projections":
            told = told * source.randint(2, 40)
    return told, node or told.mechanism, adjacency


def swapped(made, count: int):
    found, node = made
    return found, count, node


class Shown:
    """What a mechanism gives beside a chance that gives all away: δ = c + (1 − c) δ'."""

    def __init__(self, base, chance: float) -> None:
        self.base, self.chance = base, chance

    def epsilon(self, delta: float) -> float:
        left = (delta - self.chance) / (1 - self.chance)
        return self.base.epsilon(left) if left > 0 else math.inf


def of_keys(source: random.Random):
    length, most = source.randint(100, 5000), source.randint(1, 5)
    spread = length * drawn(source, 1, 8)
    variance, threshold = round(spread**2), round(length + drawn(source, 4, 6) * spread)
    node = {"kind": "weighted-keys", "length": str(length), "most": str(most)}
    node |= {"threshold": str(threshold), "variance": str(variance)}
    gaps = [threshold - math.isqrt(length**2 // k) - 1 for k in range(1, most + 1)]
    # ndtr has its digits in this tail
    chance = max(k * special.ndtr(-gap / variance**0.5) for k, gap in enumerate(gaps, 1))
    base = accounting.gaussian(float(length), math.sqrt(variance - 16))
    return Shown(base, float(chance) * (1 + 1e-12)), node


KINDS = (
    *("gaussian", "sampled", "replaced", "laplace", "response", "groups", "projection", "table"),
    *("geometric", "whole", "keys", "mixed"),
)
SLOW = ("allocation", "sketch", "projections")


def verdict(node: dict, adjacency: str, epsilon: str, delta: str) -> str:
    claim = {"kind": "approximate-dp", "epsilon": epsilon, "delta": delta}
    proof = {
        "format": "tacit-proof",
        "version": 1,
        "adjacency": adjacency,
        "mechanism": node,
        "claims": [claim],
    }
    (found,) = check(parse(json.dumps({"proof": proof}).encode())).verdicts
    return found.verdict


def campaign(kind: str, rounds: int, seed: int) -> Counter[str]:
    """Verdicts of claims at four digits; each lowered by 1% is not held."""
    source, found = random.Random(f"{kind} {seed}"), Counter()
    while sum(found.values()) < rounds:
        profile, node, adjacency = mechanism(kind, source)
        delta = source.choice(["1e-4", "1e-5", "1e-6"])
        epsilon = profile.epsilon(float(delta))
        if not 0.05 < epsilon < 50:
            continue
        told = verdict(node, adjacency, decimal(mpf(epsilon), 4, up=True), delta)
        if told == "not checkable":
            continue
        found[told] += 1
        if told != "holds":
            print(told, epsilon, delta, node)
        lowered = decimal(mpf(epsilon) * mpf("0.99"), 8, up=False)
        # of compositions every lattice is tried first: in the whole campaign alone
        if kind in ("gaussian", "projection") or rounds > 1:
            assert verdict(node, adjacency, lowered, delta) != "holds", node
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_claim_of_tacit_holds(kind):
    assert campaign(kind, 1, 3) == {"holds": 1}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [*KINDS, *SLOW])
def test_claims_of_tacit_hold(kind):
    # a composition of projections takes half a minute
    claims = max(1, CLAIMS // 4) if kind == "projections" else CLAIMS
    found = campaign(kind, claims, 17)
    assert found["false"] == 0
    assert found["holds"] >= claims - claims // 25
