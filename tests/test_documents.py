"""Strict JSON, written and read in one place."""

import json
import math
import subprocess
import sys

import pytest

from tacit.documents import Envelope, decoded, dumps, encoded, loads, read


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("", "record: the text is not JSON"),
        ("{", "record: the text is not JSON"),
        ("[" * 100_000, "record: the text is not JSON"),
        ("9" * 5000, "record: the text is not JSON"),
        ('{"nats": NaN}', "not strict JSON .it holds NaN"),
        ('{"nats": Infinity}', "not strict JSON .it holds Infinity"),
        ('{"nats": -Infinity}', "not strict JSON .it holds -Infinity"),
        ('{"nats": 1e400}', "not strict JSON .it holds a number beyond double precision"),
        ('{"a": {"nats": 1, "nats": 2}}', "not strict JSON .it holds the field 'nats' twice"),
        (b"\xff\xfe", "record: the text is not UTF-8 text"),
        ("\ufeff{}", "record: the text is not JSON"),
    ],
)
def test_what_is_not_strict_json_is_refused_by_name(document, message):
    with pytest.raises(ValueError, match=message):
        loads(document, name="record")


def test_a_name_that_stands_twice_among_many_is_found_at_once_and_told_short():
    # of names compared with each other this would be ten billion comparisons
    many, last = ",".join(f'"{n}":0' for n in range(150_000)), "9" * 500
    with pytest.raises(ValueError, match="holds the field '999") as refused:
        loads(f'{{{many},"{last}":1,"{last}":2}}')
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("value", [math.nan, math.inf, object(), {1, 2}, b"x", {(1, 2): 3}])
def test_what_strict_json_cannot_hold_is_not_written(value):
    with pytest.raises(ValueError, match="record: expected JSON-able values"):
        dumps({"value": value}, name="record")


def test_a_circle_is_not_written():
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(ValueError, match="document: expected JSON-able values"):
        dumps(circle)


@pytest.mark.parametrize("content", [{}, {"ε": [1, 0.1, None, True, "a\u2028b"]}, [], 1e308, "x"])
def test_what_is_written_is_read_back(content):
    assert loads(dumps(content)) == loads(dumps(content, ascii_only=True, indent=2)) == content
    assert dumps(content) == json.dumps(content, ensure_ascii=False)


def test_infinities_are_words():
    numbers = (1.0, (math.inf, -math.inf), "Infinite", None)
    assert encoded(numbers) == [1.0, ["Infinity", "-Infinity"], "Infinite", None]
    assert decoded(loads(dumps(encoded(numbers)))) == [
        1.0,
        [math.inf, -math.inf],
        "Infinite",
        None,
    ]


def test_a_file_is_named_in_the_sentence(tmp_path):
    path = tmp_path / "out.json"
    with pytest.raises(ValueError, match=f"release: no such file: {path}"):
        read("release", path)
    path.write_text('{"nats": NaN}', encoding="utf-8")
    with pytest.raises(ValueError, match=f"release: {path} is not strict JSON"):
        read("release", path)


def test_an_envelope_reads_its_own_format_and_version():
    envelope = Envelope("tacit.example", 2)
    document = envelope.closed({"nats": 1.0})
    assert document == {"format": "tacit.example", "version": 2, "nats": 1.0}
    assert envelope.opened("example", document, dict) == {"nats": 1.0}
    refused = [None, [], {}, {**document, "format": "x" * 500}, {**document, "version": 3}]
    for other in [*refused, {**document, "version": True}]:
        with pytest.raises(ValueError, match="example: expected") as caught:
            envelope.opened("example", other, dict)
        assert len(str(caught.value)) < 200
    for make in (
        lambda fields: fields["missing"],
        lambda fields: fields["nats"][0],
        lambda fields: fields["nats"].shape,
        lambda fields: float(10**400),
        lambda fields: [][0],
    ):
        with pytest.raises(ValueError, match="example: a field is missing or malformed"):
            envelope.opened("example", document, make)


def test_a_stored_guarantee_is_read_by_a_process_that_knows_no_other():
    """Every type is known to the reader, not only those that something else has imported."""
    program = (
        "from tacit.guarantees import guarantee_from_json\n"
        "print(type(guarantee_from_json(input())).__name__)"
    )
    stored = {
        "type": "GaussianDP",
        "schema": 1,
        "mu": 1.0,
        "adjacency": "replace one record",
        "evidence": "theorem",
        "assumptions": [],
        "source": "example",
        "confidence": None,
    }
    run = subprocess.run(
        [sys.executable, "-c", program],
        input=dumps(stored),
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "GaussianDP"
