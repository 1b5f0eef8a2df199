"""Write the test vectors: proof nodes and what is true of their claims, by the oracle.

python -m tests.check.vectors.make > tests/check/vectors/vectors.jsonl
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from typing import Any

from mpmath import mp, mpf

from tests.check.oracle import curve, decimal, epsilon_of

Node = dict[str, Any]
ADJACENCY = {"poisson-sampled": "add-remove", "groups": "add-remove", "replaced": "replace"}


def few(source: random.Random, low: float, high: float) -> str:
    """A decimal of three digits, uniform in its logarithm."""
    return f"{low * (high / low) ** source.random():.3g}"


def mechanisms(source: random.Random) -> Iterator[tuple[str, Node]]:
    """One node of each mechanism that the oracle knows."""
    normal = {"kind": "gaussian", "sensitivity": few(source, 0.3, 2), "noise": few(source, 0.5, 6)}
    yield "gaussian", normal
    flat = {"kind": "laplace", "sensitivity": few(source, 0.3, 2), "scale": few(source, 0.3, 6)}
    yield "laplace", flat
    shift = str(source.randint(1, 4))
    yield (
        "discrete-gaussian",
        {
            "kind": "discrete-gaussian",
            "sensitivity": shift,
            "variance": few(source, 1, 40),
            "coordinates": "1",
        },
    )
    yield (
        "discrete-laplace",
        {"kind": "discrete-laplace", "sensitivity": shift, "scale": few(source, 0.5, 5)},
    )
    answers = str(source.randint(2, 9))
    truth = f"{1 / int(answers) + (0.97 - 1 / int(answers)) * source.random():.3f}"
    yield "response", {"kind": "response", "categories": answers, "truth": truth}
    told = {"kind": "response", "categories": answers, "epsilon": few(source, 0.1, 5)}
    yield "response", told
    size = source.randint(2, 6)
    rows = [[few(source, 0.01, 1) for _ in range(size)] for _ in range(source.randint(2, 4))]
    yield "table", {"kind": "table", "rows": rows}
    yield "exponential", {"kind": "exponential", "range": few(source, 0.1, 6)}
    rate = few(source, 0.001, 0.9)
    yield "poisson-sampled", {"kind": "poisson-sampled", "rate": rate, "of": normal}
    yield "poisson-sampled", {"kind": "poisson-sampled", "rate": rate, "of": flat}
    yield "poisson-sampled", {"kind": "poisson-sampled", "rate": rate, "of": told}
    noise = few(source, 0.6, 4)
    yield "replaced", {"kind": "replaced", "rate": rate, "sensitivity": "1", "noise": noise}
    yield (
        "groups",
        {
            "kind": "groups",
            "rate": rate,
            "sensitivity": "1",
            "noise": few(source, 1, 6),
            "records": str(source.randint(1, 5)),
        },
    )
    rank = source.randint(1, 6)
    yield (
        "projection",
        {
            "kind": "projection",
            "dim": str(rank + source.randint(1, 20)),
            "rank": str(rank),
            "sensitivity": "1",
            "noise": few(source, 0.3, 3),
            "spectrum": "one",
        },
    )
    counts = [str(source.randint(1, 40)), str(source.randint(1, 10**6))]
    wide = {"kind": "gaussian", "sensitivity": "0.001", "noise": few(source, 0.5, 6)}
    parts = [{"count": counts[0], "of": normal}, {"count": counts[1], "of": wide}]
    yield "composition", {"kind": "composition", "parts": parts}
    small = {"kind": "response", "categories": answers, "epsilon": few(source, 0.02, 0.6)}
    parts = [{"count": str(source.randint(2, 12)), "of": small}]
    yield "composition", {"kind": "composition", "parts": parts}
    weights = [[few(source, 0.2, 1) for _ in range(3)] for _ in range(2)]
    parts.append({"count": str(source.randint(1, 3)), "of": {"kind": "table", "rows": weights}})
    yield "composition", {"kind": "composition", "parts": parts[1:]}


def exact(node: Node) -> bool:
    """Whether a checker has a lower bound too, so that it must say false."""
    if node["kind"] != "composition":
        return True
    return all(part["of"]["kind"] == "gaussian" for part in node["parts"])


def proof(node: Node, claims: list[Node]) -> Node:
    adjacency = ADJACENCY.get(node["kind"], "inputs")
    return {
        "format": "tacit-proof",
        "version": 1,
        "adjacency": adjacency,
        "mechanism": node,
        "claims": claims,
    }


def vectors(node: Node, source: random.Random) -> Iterator[Node]:
    """Claims rounded up, which hold, and lowered by 1%, which are false."""
    height, single = curve(node), node["kind"] != "composition"
    digits, wrong = (5 if single else 4), ("false" if exact(node) else "false or not shown")
    # δ at an ε, success at a prior, and ε at a δ by bisection where H is quick
    epsilon = few(source, 0.01, 1.5)
    delta = height(mpf(epsilon))
    if delta > mpf(10) ** -12:
        held = {"kind": "approximate-dp", "epsilon": epsilon}
        yield {
            "claims": [
                {**held, "delta": decimal(min(delta, mpf(1)), digits, up=True)},
                {**held, "delta": decimal(delta * mpf("0.99"), 8, up=False)},
            ],
            "verdicts": ["holds", wrong],
        }
    prior = source.choice(["0.5", "0.5", "0.25", "0.9"])
    share = mpf(prior)
    success = 1 - share + share * height(mp.log((1 - share) / share))
    blind = max(share, 1 - share)
    if success > blind * mpf("1.002"):
        less = blind + (success - blind) * mpf("0.99")
        yield {
            "claims": [
                {"kind": "success", "prior": prior, "success": decimal(success, digits, up=True)},
                {"kind": "success", "prior": prior, "success": decimal(less, 9, up=False)},
            ],
            "verdicts": ["holds", wrong],
        }
    if node["kind"] in ("projection", "composition", "discrete-gaussian", "discrete-laplace"):
        return
    wanted = source.choice(["1e-3", "1e-5", "1e-8"])
    try:
        found = epsilon_of(height, mpf(wanted))
    except ValueError:
        return
    if found > mpf("0.001"):
        yield {
            "claims": [
                {
                    "kind": "approximate-dp",
                    "epsilon": decimal(found, digits, up=True),
                    "delta": wanted,
                },
                {
                    "kind": "approximate-dp",
                    "epsilon": decimal(found * mpf("0.99"), 8, up=False),
                    "delta": wanted,
                },
            ],
            "verdicts": ["holds", wrong],
        }


def every(rounds: int, seed: int) -> Iterator[Node]:
    """Vectors of so many rounds over all mechanisms."""
    source = random.Random(seed)
    for _ in range(rounds):
        for _, node in list(mechanisms(source)):
            for found in vectors(node, source):
                for claim, verdict in zip(found["claims"], found["verdicts"], strict=True):
                    yield {"proof": proof(node, [claim]), "verdict": verdict}


if __name__ == "__main__":
    for vector in every(5, 2026):
        sys.stdout.write(json.dumps(vector, separators=(",", ":")) + "\n")
