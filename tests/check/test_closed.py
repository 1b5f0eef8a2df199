"""Random closed forms at 50 digits: rounded up they hold, and a billionth below they are false."""

import json
import random

import pytest
from mpmath import mp, mpf

from tacit_check.claims import check
from tacit_check.reading import parse
from tests.check.oracle import curve, decimal

KINDS = {
    "gaussian": ("sensitivity", "noise"),
    "laplace": ("sensitivity", "scale"),
    "response": ("categories", "truth"),
    "exponential": ("range",),
    "replaced": ("rate", "sensitivity", "noise"),
    "poisson-sampled": ("rate",),
}


def made(kind: str, source: random.Random) -> dict:
    """A node of random parameters, of three digits each."""
    draws = {
        "sensitivity": lambda: f"{source.uniform(0.2, 3):.3g}",
        "noise": lambda: f"{source.uniform(0.5, 4):.3g}",
        "scale": lambda: f"{source.uniform(0.5, 9):.3g}",
        "range": lambda: f"{source.uniform(0.1, 5):.3g}",
        "rate": lambda: f"{source.uniform(0.01, 0.9):.3g}",
        "truth": lambda: f"{source.uniform(0.55, 0.99):.3g}",
        "categories": lambda: str(source.randint(2, 9)),
    }
    node = {"kind": kind, **{name: draws[name]() for name in KINDS[kind]}}
    if kind == "poisson-sampled":
        node["of"] = made("gaussian", source)
    return node


def adjacency_of(kind: str) -> str:
    return {"replaced": "replace", "poisson-sampled": "add-remove"}.get(kind, "inputs")


def both_sides(count: int, seed: int) -> int:
    source, told = random.Random(seed), 0
    with mp.workdps(50):
        while told < count:
            kind = source.choice(list(KINDS))
            node, epsilon = made(kind, source), f"{source.uniform(0.01, 2):.3g}"
            delta = curve(node)(mpf(epsilon))
            if not delta > mpf(10) ** -12:
                continue
            ends = (
                decimal(delta, 15, up=True),
                decimal(delta * (1 - mpf(10) ** -9), 15, up=False),
            )
            claims = [{"kind": "approximate-dp", "epsilon": epsilon, "delta": end} for end in ends]
            proof = {"format": "tacit-proof", "version": 1, "adjacency": adjacency_of(kind)}
            content = json.dumps({"proof": {**proof, "mechanism": node, "claims": claims}})
            found = [one.verdict for one in check(parse(content.encode())).verdicts]
            assert found == ["holds", "false"], (node, epsilon)
            told += 1
    return told


def test_closed_forms_on_both_sides():
    assert both_sides(40, 1) == 40


@pytest.mark.thorough
def test_five_hundred_closed_forms_on_both_sides():
    assert both_sides(500, 2) == 500
