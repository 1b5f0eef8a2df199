"""Stored releases that were edited, cut or made by another program."""

import json

import numpy as np
import pytest

from tacit import Draw, Effort, Rows, Table, load, privatize
from tacit.releases import Release
from tacit.statistics import Session

ROWS = np.random.default_rng(0).normal(size=(40, 2))
QUICK = Effort(simulations=60, trials=40)
STORED = {
    "draw": privatize("mean", ROWS, Draw(success=0.6), QUICK),
    "rows": privatize("mean+std", ROWS, Rows(success=0.6), QUICK),
    "median": privatize("median", ROWS, Rows(success=0.6), QUICK),
    "table": privatize("mean", ROWS, Table(success=0.6, bounds=[(-5, 5)] * 2), QUICK),
    "answer": Session(ROWS, Rows(success=0.6)).ask("mean", share=0.5),
}
STORED = {name: json.loads(json.dumps(release.to_dict())) for name, release in STORED.items()}


def edited(path, value, name="draw"):
    content = json.loads(json.dumps(STORED[name]))
    place = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return content


def every_path(node, path=()):
    entries = node.items() if isinstance(node, dict) else enumerate(node[:2])
    for key, value in entries:
        yield (*path, key)
        if isinstance(value, (dict, list)):
            yield from every_path(value, (*path, key))


@pytest.mark.parametrize("name", STORED)
def test_an_edited_field_is_a_sentence_or_another_release(name):
    for path in every_path(STORED[name]):
        for value in (None, "x", -1, [], {}, True, [[1]], 10**400, 5e-324):
            sentence = ""
            try:
                load(edited(path, value, name))
            except ValueError as error:
                sentence = str(error)
            assert len(sentence) < 400, (path, str(value)[:9])


def test_a_count_beyond_all_floats_is_a_sentence():
    promise = Table(epsilon=1.0, person="x0", clip=1)
    release = privatize("count", ROWS, promise, Effort(trials=0), columns=["x0", "x1"])
    content = json.loads(json.dumps(release.to_dict()))
    content["details"]["quantiles"] = 10**400
    with pytest.raises(ValueError, match="quantiles"):
        load(content)


A_MILLIONTH = STORED["draw"]["numbers"]["errors"][1] * (1 + 2e-6)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("numbers", "errors", 0), 0.0),
        pytest.param(("numbers", "errors", 1), A_MILLIONTH, id="two millionths"),
        (("numbers", "truth"), "another"),
        (("secret",), "another"),
        (("guarantees",), []),
        (("guarantees", 0, "success"), 0.51),
        (("guarantees", 0, "task"), "another"),
        (("guarantees", 1, "nats"), 1e-9),
        (("details", "noise_power"), 1e-9),
        (("details", "promise", "success"), 0.7),
        (("details", "candidates"), 3),
        (("details", "principal_noise_variance", 0), 1e-9),
        (("details", "output_variance"), [1.0, 1.0]),
        (("details", "design", "covariance"), {"type": "isotropic", "variance": 1.0, "dim": 2}),
        (("attacks", 0, "success"), {"value": 0.99, "low": 0.98, "high": 1.0, "confidence": 0.95}),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(path, value):
    with pytest.raises(ValueError, match="contradicts itself"):
        load(edited(path, value))


def test_a_covariance_of_another_size_is_refused_before_it_is_written_out():
    huge = {"type": "isotropic", "variance": 1.0, "dim": 2**40}
    with pytest.raises(ValueError, match="release"):
        load(edited(("details", "design", "covariance"), huge))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("digests",), [None], r"digests\[0\]"),
        (("digests",), [["model", 3]], r"digests\[0\]\[1\]: expected text"),
        (("notes",), [None], r"notes\[0\]: expected text"),
        (("numbers", "names", 0), None, r"numbers.names\[0\]: expected text"),
        (("attacks", 0, "task"), 3, r"attacks\[0\].task: expected text"),
        (("attacks", 0, "success"), None, r"attacks\[0\].success: expected"),
        (("provenance",), "x", "provenance: expected"),
        (("created",), 3, "created: expected text"),
        (("seed",), -1, "seed: expected an integer >= 0"),
        (("seed",), 3, "seed"),
        (("version",), True, "expected version 2, got True"),
        (("title",), 10**400, "title: expected text, got int"),
    ],
)
def test_a_field_of_a_release_is_what_it_says(path, value, message):
    with pytest.raises(ValueError, match=message):
        load(edited(path, value))


@pytest.mark.parametrize("name", STORED)
def test_a_release_is_read_back_from_what_it_wrote(name):
    release = load(STORED[name])
    assert isinstance(release, Release)
    assert release.to_dict() == STORED[name]
    public = release.public().to_dict()
    assert load(public).to_dict() == public
