"""A stored training release is worked out again, and refused where it was edited."""

import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from tacit.documents import dumps
from tacit.gate import Policy, check_release
from tacit.measured import Interval
from tacit.pages.words import lines
from tacit.releases import Attack, Use, load
from tacit.report import write_report
from tests.training.runs import released, run_of, task


@pytest.fixture(scope="module")
def release():
    return released()


def written(release, folder, **edits):
    content = json.loads(dumps(release.to_dict()))
    for path, value in edits.items():
        *way, last = path.split("__")
        place = content
        for step in way:
            place = place[int(step) if step.isdigit() else step]
        place[int(last) if last.isdigit() else last] = value
    path = folder / "training.json"
    path.write_text(dumps(content))
    return path


def test_it_is_judged_by_its_loosest_reference(release, tmp_path):
    path = written(release, tmp_path)
    assert check_release(path, Policy(max_success=0.7)).passed
    assert not check_release(path, Policy(max_success=0.6)).passed


@pytest.mark.parametrize(
    "edits",
    [
        {"details__squared__3": 0.01},
        {"details__squared__3": -1.0},
        {"guarantees__0__success": 0.55},
        {"guarantees__1__bounds__3": 0.01},
        {"guarantees__0__assumptions": []},
        {"details__taken__0": 5},
        {"notes": []},
        {"details__references__3": "without nobody"},
        {"details__delta": 1e-3},
        {"reproducible": True},
        {"seed": 3},
        {"details__counts": [1]},
        {"method": "no noise"},
    ],
    ids=str,
)
def test_an_edited_file_is_refused(release, tmp_path, edits):
    with pytest.raises(ValueError, match=r"\w+: expected|details"):
        check_release(written(release, tmp_path, **edits), Policy(max_success=0.99))


def test_a_seeded_run_guarantees_nothing(tmp_path):
    model, inputs, targets = task()
    run = run_of(model, rng=1)
    run.step((inputs, targets), np.arange(10) % 5)
    assert not check_release(written(run.release(), tmp_path), Policy(max_success=0.99)).passed


def test_its_page_says_that_it_is_no_privacy(release, tmp_path):
    write_report(release, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "no guarantee of privacy" in page
    assert "67.82%" in page


def test_an_attack_has_the_upper_end_that_its_trials_give(release, tmp_path):
    """Two of four right may be chance up to 93.3%: 84% is no interval of four."""
    told = Interval(value=0.5, low=0.067, high=0.933, confidence=0.95)
    attack = Attack(name="one", task="another game", success=told, prior=0.5, trials=4)
    attacked = replace(release, attacks=(attack,))
    assert check_release(written(attacked, tmp_path), Policy(max_attack=0.94)).passed
    path = written(attacked, tmp_path, attacks__0__success__high=0.84)
    with pytest.raises(ValueError, match=r"attacks\[0\]\.success\.high: 4 trials"):
        check_release(path, Policy(max_attack=0.85))


def numbers(content, way=()):
    """The path of every number of a file."""
    parts = content.items() if isinstance(content, dict) else enumerate(content)
    for name, value in parts:
        if isinstance(value, (dict, list)):
            yield from numbers(value, (*way, str(name)))
        elif isinstance(value, (int, float)):
            yield "__".join((*way, str(name)))


@pytest.mark.parametrize("value", ["Infinity", "-Infinity", "NaN", None, 1e308, 2**70, True])
def test_no_number_of_a_file_is_more_than_a_sentence_to_its_readers(release, tmp_path, value):
    use = Use(name="accuracy", unit="share", better="higher", measured=Interval(0.5, 0.4, 0.6))
    whole = replace(release, use=(use,))
    for path in numbers(json.loads(dumps(whole.to_dict()))):
        edited = written(whole, tmp_path, **{path: value})
        for read in (
            lambda place: check_release(place, Policy(max_success=0.99)),
            lambda place: list(lines(load(place))),
        ):
            # anything else than a refusal fails here
            with suppress(ValueError):
                read(edited)
