"""Stored releases that were edited, cut or made by another program."""

import json

import numpy as np
import pytest

from tacit.releases import Form, load
from tacit.report import read_release
from tacit.statistics import StatisticRelease, privatize

ROWS = np.random.default_rng(0).normal(size=(40, 2))
STORED = privatize("mean", ROWS, Draw(success=0.6), Effort(simulations=60, trials=40)).to_dict()


def edited(path, value):
    content = json.loads(json.dumps(STORED))
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


@pytest.mark.parametrize("read", [load, StatisticRelease.from_dict, read_release])
def test_an_edited_field_is_a_sentence_or_another_release(read):
    for path in every_path(STORED):
        for value in (None, "x", -1, [], {}, True, [None], [[1]], 10**400):
            sentence = ""
            try:
                read(edited(path, value))
            except ValueError as error:
                sentence = str(error)
            assert len(sentence) < 400, (path, str(value)[:9])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("release", 0), 5.0),
        (("names", 0), "another"),
        (("method",), "another"),
        (("seed",), 3),
        (("created",), "yesterday"),
        (("reproducible",), True),
        (("form", "reproducible"), True),
        (("form", "numbers"), []),
        (("form", "numbers", 0, "value"), 5.0),
        (("form", "numbers", 0, "error"), 0.0),
        pytest.param(
            ("form", "numbers", 1, "error"),
            STORED["form"]["numbers"][1]["error"] * (1 + 1e-6),
            id="a millionth",
        ),
        (("diagnostics", "noise_variance", 0), 1e-9),
        (("diagnostics", "noise_variance"), []),
        (("form", "guarantees"), []),
        (("form", "guarantees", 0, "success"), 0.51),
        (("membership", "success"), 0.51),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(path, value):
    with pytest.raises(ValueError, match="contradicts itself"):
        load(edited(path, value))


def test_errors_are_those_of_the_noise_where_a_page_leaves_the_covariance_out():
    shortened = edited(("design", "covariance"), None)
    assert load(shortened).numbers == load(STORED).numbers
    shortened["form"]["numbers"][0]["error"] /= 2
    with pytest.raises(ValueError, match="contradicts itself about 'error'"):
        load(shortened)


def test_a_covariance_of_another_size_is_refused_before_it_is_written_out():
    huge = {"type": "isotropic", "variance": 1.0, "dim": 2**40}
    with pytest.raises(ValueError, match="contradicts itself about 'error'"):
        load(edited(("design", "covariance"), huge))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("digests",), [None], "digests: expected pairs"),
        (("digests",), [["model", 3]], "digests: expected text"),
        (("notes",), [None], "notes: expected text"),
        (("publishable",), [3], "publishable: expected text"),
        (("numbers", 0, "name"), None, "numbers: name: expected text"),
        (("attacks", 0, "task"), 3, "attacks: task: expected text"),
        (("attacks", 0, "success"), None, "success: expected an interval"),
        (("provenance",), "x", "provenance: expected a mapping"),
        (("seed",), -1, "seed: expected an integer >= 0"),
        (("version",), True, "expected version 1, got True"),
        (("title",), 10**400, "title: expected text, got int"),
    ],
)
def test_a_field_of_a_form_is_what_it_says(path, value, message):
    with pytest.raises(ValueError, match=message):
        load(edited(("form", *path), value))


def test_a_form_is_read_back_from_what_it_wrote():
    form = load(STORED)
    again = load(form.to_dict())
    assert isinstance(again, Form)
    assert again.to_dict() == form.to_dict()
