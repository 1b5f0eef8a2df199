"""Claims that `tacit.accounting` makes of random mechanisms hold; lowered by 1% they never do."""

from __future__ import annotations

import json
import os
import random
from collections import Counter

import pytest
from mpmath import mpf

from tacit import accounting
from tacit_check.claims import check
from tacit_check.reading import parse
from tests.check.oracle import decimal

# Of every mechanism; the whole campaign is `TACIT_CLAIMS=125 make test-thorough TEST=tests/check`.
CLAIMS = int(os.environ.get("TACIT_CLAIMS", "4"))


def text(source: random.Random, low: float, high: float) -> str:
    return f"{low * (high / low) ** source.random():.4g}"


def steps_of(source: random.Random) -> str:
    return str(int(float(text(source, 2, 5000))))


def composed(count: str, of: dict) -> dict:
    return {"kind": "composition", "parts": [{"count": count, "of": of}]}


def mechanism(kind: str, source: random.Random):
    """A node, its adjacency, and the profile that Tacit gives it."""
    count, noise = steps_of(source), text(source, 0.7, 4)
    rate = text(source, 0.001, 0.3)
    number, gaussian = float(noise), {"kind": "gaussian", "sensitivity": "1", "noise": noise}
    if kind == "gaussian":
        return gaussian, "inputs", accounting.gaussian(1.0, number)
    if kind == "sampled":
        node = {"kind": "poisson-sampled", "rate": rate, "of": gaussian}
        told = accounting.subsampled_gaussian(float(rate), number, int(count))
        return composed(count, node), "add-remove", told
    if kind == "replaced":
        node = {"kind": "replaced", "rate": rate, "sensitivity": "1", "noise": noise}
        told = accounting.subsampled_gaussian(float(rate), number, int(count), "replace")
        return composed(count, node), "replace", told
    few = str(source.randint(2, 60))
    if kind == "laplace":
        scale = text(source, 2, 40)
        node = {"kind": "laplace", "sensitivity": "1", "scale": scale}
        return composed(few, node), "inputs", accounting.laplace(1.0, float(scale)) * int(few)
    if kind == "response":
        epsilon, answers = text(source, 0.02, 1), str(source.randint(2, 20))
        node = {"kind": "response", "categories": answers, "epsilon": epsilon}
        told = accounting.randomized_response(float(epsilon), int(answers)) * int(few)
        return composed(few, node), "inputs", told
    if kind == "groups":
        records = str(source.randint(1, 6))
        node = {
            "kind": "groups",
            "rate": rate,
            "sensitivity": "1",
            "noise": noise,
            "records": records,
        }
        told = accounting.subsampled_group(float(rate), number, int(few), int(records))
        return composed(few, node), "add-remove", told
    if kind == "allocation":
        wide, bins = text(source, 1, 5), str(source.randint(5, 300))
        node = {"kind": "random-allocation", "sensitivity": "1", "noise": wide, "steps": bins}
        told = accounting.random_allocation(float(wide), steps=int(bins))
        return node, "add-remove", told
    rank, dim = str(source.randint(1, 40)), str(source.randint(50, 2000))
    node = {
        "kind": "projection",
        "dim": dim,
        "rank": rank,
        "sensitivity": "1",
        "noise": text(source, 0.05, 1),
        "spectrum": source.choice(["one", "any"]),
    }
    told = accounting.noisy_projection(
        dim=int(dim),
        rank=int(rank),
        sensitivity=1.0,
        noise_std=float(node["noise"]),
        difference_rank=1 if node["spectrum"] == "one" else None,
    )
    return node, "inputs", told


KINDS = ("gaussian", "sampled", "replaced", "laplace", "response", "groups", "projection")
SLOW = ("allocation",)


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
        node, adjacency, profile = mechanism(kind, source)
        delta = source.choice(["1e-4", "1e-5", "1e-6"])
        epsilon = profile.epsilon(float(delta))
        if not 0.05 < epsilon < 50:
            continue
        told = verdict(node, adjacency, decimal(mpf(epsilon), 4, up=True), delta)
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
    found = campaign(kind, CLAIMS, 17)
    assert found["false"] == 0
    assert found["holds"] >= CLAIMS - CLAIMS // 25
