"""Hostile files end in one sentence and a status, within limits that the checker sets itself."""

import json
import subprocess
import sys

import pytest

GAUSSIAN = {"kind": "gaussian", "sensitivity": "1", "noise": "1"}
CLAIM = {"kind": "approximate-dp", "epsilon": "1", "delta": "1e-5"}


def node(mechanism=GAUSSIAN, claims=(CLAIM,), **other):
    proof = {"format": "tacit-proof", "version": 1, "adjacency": "add-remove"}
    return {"proof": {**proof, "mechanism": mechanism, "claims": list(claims), **other}}


def nested(levels):
    tree = GAUSSIAN
    for _ in range(levels):
        tree = {"kind": "composition", "parts": [{"count": "1", "of": tree}]}
    return tree


def many(count, of):
    return {"kind": "composition", "parts": [{"count": count, "of": of}]}


def sampled(rate, noise="1"):
    return {"kind": "poisson-sampled", "rate": rate, "of": {**GAUSSIAN, "noise": noise}}


def sampled_often(times):
    tree = GAUSSIAN
    for _ in range(times):
        tree = {"kind": "poisson-sampled", "rate": "0.5", "of": tree}
    return tree


def apart(count):
    """A composition of so many mechanisms, each of its own."""
    noise = {"kind": "laplace", "sensitivity": "1"}
    parts = [{"count": "3", "of": {**noise, "scale": f"9.{i:04d}"}} for i in range(count)]
    return {"kind": "composition", "parts": parts}


REFUSED = {
    "empty": b"",
    "no-json": b"\x00\xff\xfe",
    "list": b"[]",
    "number": b"1",
    "no-node": b"{}",
    "node-is-text": b'{"proof": "holds"}',
    "deep": b"[" * 1_000_000,
    "deep-objects": b'{"proof":' * 300_000,
    "nan": json.dumps(node()).replace('"1e-5"', "NaN").encode(),
    "infinity": json.dumps(node()).replace('"1e-5"', "Infinity").encode(),
    "bare-number": json.dumps(node()).replace('"1e-5"', "0.5").encode(),
    "twice": b'{"proof": {}, "proof": {}}',
    "twice-inside": json.dumps(node()).replace('"noise"', '"sensitivity"').encode(),
    "huge-exponent": node(claims=[{**CLAIM, "delta": "1e-99999"}]),
    "huge-digits": node({**GAUSSIAN, "noise": "9" * 5_000_000}),
    "huge-bare-digits": b'{"proof": ' + b"9" * 5_000_000 + b"}",
    "signs": node({**GAUSSIAN, "noise": "+1"}),
    "spaces": node({**GAUSSIAN, "noise": " 1"}),
    "other-digits": node({**GAUSSIAN, "noise": "\u0661"}),
    "hexadecimal": node({**GAUSSIAN, "noise": "0x1"}),
    "negative-noise": node({**GAUSSIAN, "noise": "-1"}),
    "no-noise": node({**GAUSSIAN, "noise": "0"}),
    "delta-above-one": node(claims=[{**CLAIM, "delta": "1.5"}]),
    "rate-above-one": node(sampled("1.01")),
    "no-claims": node(claims=[]),
    "many-claims": node(claims=[CLAIM] * 257),
    "unknown-kind": node({"kind": "magic"}),
    "unknown-name": node({**GAUSSIAN, "trust": "me"}),
    "unknown-claim": node(claims=[{"kind": "private"}]),
    "version-two": json.dumps(node()).replace('"version": 1', '"version": 2').encode(),
    "version-text": node(version="1"),
    "version-true": node(version=True),
    "levels": node(nested(70)),
    "count-beyond": node(many("1000000000000000", GAUSSIAN)),
    "product-of-counts": node(many("1000000", many("10000000", sampled("0.1")))),
    "count-negative": node(many("-1", GAUSSIAN)),
    "wide-table": node({"kind": "table", "rows": [["1"] * 5000, ["1"] * 5000]}),
    "ragged-table": node({"kind": "table", "rows": [["1"], ["1", "2"]]}),
    "distinct-parts": node(apart(4000)),
    "distinct-parts-257": node(apart(257)),
    "nodes": node(
        {**many("1", many("1", GAUSSIAN)), "parts": many("1", many("1", GAUSSIAN))["parts"] * 2100}
    ),
    "square-of-text": node({"kind": "boxes", "covariance": "1", "parts": []}),
    "indefinite": node(
        {
            "kind": "boxes",
            "covariance": [["1", "2"], ["2", "1"]],
            "parts": [{"listed": [["1", "1"]]}],
        }
    ),
    "corners": node(
        {
            "kind": "boxes",
            "covariance": [["1" if i == j else "0.5" for i in range(40)] for j in range(40)],
            "parts": [{"low": ["-1"] * 40, "high": ["1"] * 40}],
        }
    ),
    "infinite-noise": node({**GAUSSIAN, "noise": "Infinity"}),
    "null": node({**GAUSSIAN, "noise": None}),
    "claim-is-text": node(claims=["holds"]),
    "table-of-work": node({"kind": "table", "rows": [["1"] * 13] * 300}),
    "empty-row": node({"kind": "table", "rows": [[], []]}),
    "control-characters": node(given=["\u001b[2Jholds"]),
    "wrong-adjacency": node(sampled("0.1"), adjacency="replace"),
}
# Files in order that ask for much: none of these claims is true.
WORK = {
    "many-steps": node(many("1000000000000", sampled("0.001")), [CLAIM]),
    "tiny-noise": node(many("1000", sampled("0.5", "0.0001")), [CLAIM]),
    "groups": node(
        {
            "kind": "groups",
            "rate": "0.5",
            "sensitivity": "1",
            "noise": "0.1",
            "records": "512",
        }
    ),
    "table": node(
        {"kind": "table", "rows": [[str(i + j + 1) for i in range(64)] for j in range(64)]}
    ),
    "projection": node(
        {
            "kind": "projection",
            "dim": "10000000",
            "rank": "9999999",
            "sensitivity": "1",
            "noise": "0.001",
            "spectrum": "one",
        }
    ),
}
# And the verdict of each that was run to its end: what holds is true.
LONG = {
    "tiny-delta": (
        "false",
        node(
            many("1000", {"kind": "laplace", "sensitivity": "1", "scale": "2"}),
            [{**CLAIM, "delta": "1e-9999"}],
        ),
    ),
    "huge-factor": (
        "not shown",
        node(
            many("1000000000000", {"kind": "table", "rows": [["1", "2"], ["2", "1"]]}),
            [{"kind": "factor", "factor": "1.5"}],
        ),
    ),
    "whole-apart": (
        "not shown",
        node(
            many(
                "1000",
                {
                    "kind": "discrete-gaussian",
                    "sensitivity": "19000",
                    "variance": "0.0001",
                    "coordinates": "1",
                },
            )
        ),
    ),
    "all-told": (
        "false",
        node(
            {**GAUSSIAN, "noise": "0.00001"},
            [{"kind": "naming", "candidates": "100000", "success": "0.5"}],
        ),
    ),
    "samples-deep": ("holds", node(many("1000", sampled_often(50)))),
    "orders": (
        "false",
        node(
            many("1000000000000", sampled("0.5", "0.001")),
            [{"kind": "renyi", "order": "1024", "epsilon": "1"}] * 256,
        ),
    ),
    "allocation": (
        "holds",
        node({"kind": "random-allocation", "sensitivity": "2", "noise": "1", "steps": "100000000"}),
    ),
}


def run(folder, files, *options):
    for name, content in files.items():
        text = content if isinstance(content, bytes) else json.dumps(content).encode()
        (folder / f"{name}.json").write_bytes(text)
    paths = [str(folder / f"{name}.json") for name in files]
    return subprocess.run(
        [sys.executable, "-m", "tacit_check", *options, *paths], capture_output=True, text=True
    )


def test_each_is_refused_in_one_sentence(tmp_path):
    done = run(tmp_path, REFUSED)
    assert len(REFUSED) >= 39
    assert done.returncode == 2
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == len(REFUSED), lines
    for name, line in zip(REFUSED, lines, strict=True):
        assert f"{name}.json: refused: " in line, line
        assert len(line) < 300 + len(str(tmp_path))


@pytest.mark.thorough
@pytest.mark.parametrize("name", WORK)
def test_each_ends_and_nothing_is_held(tmp_path, name):
    done = run(tmp_path, {name: WORK[name]}, "--json")
    assert done.returncode in (1, 2)
    assert json.loads(done.stdout)["word"] != "holds"


@pytest.mark.thorough
@pytest.mark.parametrize("name", LONG)
def test_what_takes_long_ends_with_its_verdict(tmp_path, name):
    word, content = LONG[name]
    done = run(tmp_path, {name: content}, "--json")
    assert done.stderr == ""
    assert json.loads(done.stdout)["word"] == word


def test_a_file_that_is_not_there_is_refused(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tacit_check", str(tmp_path / "nothing")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "refused: cannot be read" in done.stdout


def test_a_refusal_names_the_data_where_that_is_refused(tmp_path):
    done = run(tmp_path, {"held": node()}, "--data", str(tmp_path / "nothing"))
    assert done.returncode == 2
    assert "held.json: refused: --data: cannot be read" in done.stdout


def test_what_holds_exits_with_nothing_and_what_is_false_with_one(tmp_path):
    assert run(tmp_path, {"held": node(claims=[{**CLAIM, "epsilon": "4.378"}])}).returncode == 0
    told = run(tmp_path, {"false": node(claims=[CLAIM])})
    assert told.returncode == 1
    assert "false: ε <= 1 at δ = 1e-5" in told.stdout
    nothing = {"kind": "statistical", "statement": "an attack reached 52%", "confidence": "0.95"}
    told = run(tmp_path, {"evidence": node(claims=[nothing])})
    assert told.returncode == 1
    assert "not checkable" in told.stdout
