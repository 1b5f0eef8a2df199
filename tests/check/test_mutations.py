"""Edits of real files never hold with a claim below the truth."""

import json
import random
from pathlib import Path

import pytest
from mpmath import mp, mpf

from tacit_check.balls import RefusedFileError
from tacit_check.claims import HOLDS, check
from tacit_check.reading import parse
from tests.check.oracle import curve
from tests.releases.files import real

# Releases that workflows make, whose truth is a closed form: shifts and codes.
REAL = ("table", "rows", "answer", "states", "specification", "codes", "store")
LINES = (Path(__file__).parent / "vectors" / "vectors.jsonl").read_text("utf-8").splitlines()
# Mechanisms whose truth the oracle knows in a millisecond.
QUICK = ("gaussian", "laplace", "response", "table", "exponential", "poisson-sampled", "replaced")
FILES = [
    json.loads(line)["proof"]
    for line in LINES
    if json.loads(line)["proof"]["mechanism"]["kind"] in QUICK
]


def edited(proof: dict, source: random.Random) -> bytes:
    """One to three edits: a character, a number, a kind, a claim, or a part put elsewhere."""
    text = json.dumps({"proof": proof})
    for _ in range(source.randint(1, 3)):
        place = source.randrange(len(text))
        way = source.randrange(6)
        if way == 0:
            text = text[:place] + source.choice('0123456789.-e"{}[],: ') + text[place + 1 :]
        elif way == 1:
            text = text[:place] + text[place + 1 :]
        elif way == 2:
            digits = [at for at, one in enumerate(text) if one.isdigit()]
            at = source.choice(digits)
            text = text[:at] + str(source.randrange(10)) + text[at + 1 :]
        elif way == 3:
            one, other = source.sample(QUICK, 2)
            text = text.replace(f'"{one}"', f'"{other}"')
        elif way == 4:
            kinds = ["approximate-dp", "success", "pure-dp", "gaussian-dp", "factor", "nats"]
            one, other = source.sample(kinds, 2)
            text = text.replace(f'"{one}"', f'"{other}"')
        else:
            start = source.randrange(len(text))
            text = text[:start] + text[place : place + 12] + text[start:]
    return text.encode()


def true_of(proof: dict) -> bool:
    """Whether every claim is true, by the oracle at 25 digits."""
    height = curve(proof["mechanism"])
    slack = mpf(10) ** -18
    for claim in proof["claims"]:
        if claim["kind"] == "success":
            share = mpf(claim["prior"])
            if share == 1 or mpf(claim["success"]) == 1:
                continue
            least = 1 - share + share * height(mp.log((1 - share) / share))
            if least > mpf(claim["success"]) + slack:
                return False
        elif claim["kind"] in ("approximate-dp", "pure-dp"):
            if claim["epsilon"] == "Infinity":
                continue
            delta = mpf(claim.get("delta", "0"))
            if height(mpf(claim["epsilon"])) > delta * (1 + slack) + slack:
                return False
        elif claim["kind"] == "gaussian-dp":
            node = proof["mechanism"]
            assert node["kind"] == "gaussian" or mpf(claim["mu"]) >= 0
            if node["kind"] == "gaussian":
                found = mpf(node["sensitivity"]) / mpf(node["noise"])
                if found > mpf(claim["mu"]) * (1 + slack):
                    return False
    return True


def squared(node: dict, adjacency: str) -> mpf:
    """μ² of a tree of shifts: distances, boxes under independent noise, and their sums."""
    if node["kind"] == "composition":
        return sum(mpf(part["count"]) * squared(part["of"], adjacency) for part in node["parts"])
    if node["kind"] == "gaussian":
        return (mpf(node["sensitivity"]) / mpf(node["noise"])) ** 2
    if node["kind"] in ("differences", "swaps"):
        return mpf(node["distance"]) ** 2
    assert node["kind"] == "boxes"
    (variances,) = node["covariance"]
    boxes = []
    for part in node["parts"]:
        boxes += [(one, one) for one in part["listed"]] if "listed" in part else []
        boxes += [(part["low"], part["high"])] if "low" in part else []
    ends = [[(mpf(a), mpf(b)) for a, b in zip(*box, strict=True)] for box in boxes]
    if adjacency == "replace":
        ends = [
            [(a - d, b - c) for (a, b), (c, d) in zip(one, two, strict=True)]
            for one in ends
            for two in ends
        ]
    # each number alone at its farthest end
    return max(
        sum(max(abs(a), abs(b)) ** 2 / mpf(v) for (a, b), v in zip(box, variances, strict=True))
        for box in ends
    )


def values_of(node: dict) -> mpf:
    """How many values a code has, and all of several."""
    if node["kind"] == "composition":
        return mp.fprod(values_of(part["of"]) ** int(part["count"]) for part in node["parts"])
    assert node["kind"] == "code"
    return mp.fprod(mpf(size) for size in node["sizes"])


def true_of_real(proof: dict) -> bool:
    """Whether every claim of a stored release is true: of a code, or of a shift."""
    node, slack = proof["mechanism"], 1 + mpf(10) ** -15
    if '"code"' in json.dumps(node):
        many = values_of(node)
        truths = {
            "factor": lambda one: many <= mpf(one["factor"]) * slack,
            "information": lambda one: mp.log(many) <= mpf(one["nats"]) * slack,
            "success": lambda one: min(1, many * mpf(one["prior"])) <= mpf(one["success"]) * slack,
        }
        return all(truths[one["kind"]](one) for one in proof["claims"])
    mu = mp.sqrt(squared(node, proof["adjacency"]))
    shift = {"kind": "gaussian", "sensitivity": mp.nstr(mu, 25), "noise": "1"}
    renyi = [one for one in proof["claims"] if one["kind"] == "renyi"]
    rest = [one for one in proof["claims"] if one["kind"] != "renyi"]
    if any(mpf(one["order"]) * mu**2 / 2 > mpf(one["epsilon"]) * slack for one in renyi):
        return False
    return true_of({**proof, "mechanism": shift, "claims": rest})


def real_campaign(count: int, seed: int) -> tuple[int, int]:
    return campaign(count, seed, [real(name)["proof"] for name in REAL], true_of_real)


def campaign(count: int, seed: int, files: list = FILES, true_of=true_of) -> tuple[int, int]:
    source, held, refused = random.Random(seed), 0, 0
    with mp.workdps(25):
        for _ in range(count):
            content = edited(source.choice(files), source)
            try:
                result = check(parse(content))
            except RefusedFileError:
                refused += 1
                continue
            if any(one.verdict == HOLDS for one in result.verdicts):
                proof = json.loads(content)["proof"]
                claims = zip(proof["claims"], result.verdicts, strict=True)
                told = [claim for claim, one in claims if one.verdict == HOLDS]
                assert true_of({**proof, "claims": told}), content
                held += 1
    return held, refused


def test_a_few_edits_never_hold_below_the_truth():
    held, refused = campaign(250, 7)
    assert held > 10
    assert refused > 80


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(10))
def test_five_thousand_edits_never_hold_below_the_truth(seed):
    held, refused = campaign(500, 100 + seed)
    assert held > 20
    assert refused > 160


def test_a_few_edits_of_real_files_never_hold_below_the_truth():
    held, refused = real_campaign(200, 11)
    assert held > 10
    assert refused > 80


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(10))
def test_five_thousand_edits_of_real_files_never_hold_below_the_truth(seed):
    held, refused = real_campaign(500, 200 + seed)
    assert held > 20
    assert refused > 160
