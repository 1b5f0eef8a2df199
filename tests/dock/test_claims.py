"""What a submission claims is worked out again from its release, then held against the policy."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from scipy.special import log_ndtr, ndtr

from tacit.guarantees import GaussianDP
from tacit.measured import Interval
from tacit.releases import Provenance, Use
from tacit.specifications import Specification
from tacit.specifications.release import certified
from tacit.specifications.schedule import StepSchedule
from tacit_dock import AdmissionPolicy, DockStore, RefusedError
from tacit_dock.claims import DELTA, decide, headline, together
from tests.dock.learnwares import SPACE, card, files, is_problem, keep, release, specification

MADE = specification(1)
USE = Use(name="top-1", unit="share", better="higher", measured=Interval(0.9, 0.6, 1.0, 0.95))


def written(held: Any) -> bytes:
    return json.dumps(held.to_dict()).encode()


def changed(made: Specification, **fields: Any) -> Specification:
    """Return a specification with other fields."""
    names = ("kind", "space", "factors", "method", "guarantees", "created", "notes")
    return Specification(**{**{name: getattr(made, name) for name in names}, **fields})


def test_a_release_that_agrees_is_taken(dock):
    assert decide(MADE, written(release(MADE)), AdmissionPolicy()).status == "listed"
    assert dock.submit(files(MADE)).status_code == 201


def test_what_is_the_holders_of_a_release_is_not_taken(dock):
    told = release(MADE)
    whole = replace(told, provenance=Provenance(command="make", data_fingerprint="sha256:0"))
    for held in (whole, replace(told, use=(USE,)), replace(told, remarks=("of the records",))):
        refused = dock.submit({**files(MADE), "release": written(held)})
        is_problem(refused, 422, "what may be published of it alone")
    assert dock.submit({**files(MADE), "release": written(told)}).status_code == 201


@pytest.mark.parametrize("content", ["a path", ["a list"], {"kind": "training"}, None, 3])
def test_what_is_no_release_of_a_specification_is_not_looked_at(content):
    with pytest.raises(RefusedError, match="expected that of a specification"):
        decide(MADE, json.dumps(content).encode(), AdmissionPolicy())


def test_a_guarantee_without_its_release_is_refused(dock):
    bare = {"specification": MADE.to_bytes(), "card": card()}
    is_problem(dock.submit(bare), 422, "release", "got none")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mu": 0.4}, "what the noise certifies"),
        ({"mu": math.inf}, "what the noise certifies"),
        ({"guarantees": certified(0.4, 1e-5, "labels")}, "what the noise certifies"),
        ({"guarantees": ()}, "what the noise certifies"),
        ({"guarantees": MADE.guarantees * 2}, "what the noise certifies"),
        ({"reproducible": True}, "a seed can repeat|guarantees of this release"),
        ({"reproducible": True, "seed": 7}, "a seed can repeat|guarantees of this release"),
        ({"specification": specification(2)}, "holds another"),
        ({"targets": "independent"}, "what the noise certifies"),
        ({"schedule": StepSchedule(steps=3)}, "what the noise certifies"),
        ({"notes": (*MADE.notes, "CHECKED AND CONFIRMED")}, "notes"),
    ],
)
@pytest.mark.parametrize("without", ["refuse", "accept", "quarantine"])
def test_a_release_that_does_not_is_refused_whatever_the_policy(change, said, without):
    forged = written(release(MADE, **change))
    with pytest.raises(RefusedError, match=said) as caught:
        decide(MADE, forged, AdmissionPolicy(without=without))
    assert caught.value.status == 422


def replaced(name: str, value: Any) -> tuple[Any, ...]:
    return (replace(MADE.guarantees[0], **{name: value}), *MADE.guarantees[1:])


FORGED = {
    "task": {"guarantees": replaced("task", "CHECKED AND CONFIRMED BY THE OPERATOR")},
    "law": {"guarantees": replaced("law", "certified by the dock")},
    "source": {"guarantees": replaced("source", "a proof")},
    "assumptions": {"guarantees": replaced("assumptions", ())},
    "strength": {"guarantees": replaced("success", 0.51)},
    "method": {"method": "compact"},
    "other method": {"method": "proven"},
    "notes": {"notes": (*MADE.notes, "confirmed by the operator")},
    "of no noise": {
        "guarantees": (
            GaussianDP(
                mu=1e-300, adjacency="r", evidence="theorem", assumptions=(), source="forged"
            ),
        )
    },
}


@pytest.mark.parametrize("fields", FORGED.values(), ids=FORGED.keys())
@pytest.mark.parametrize("with_release", [True, False])
def test_no_word_or_number_of_a_manifest_is_its_developers_own(fields, with_release):
    forged = changed(MADE, **fields)
    beside = release(forged, guarantees=forged.guarantees) if with_release else None
    with pytest.raises(RefusedError, match=r"release|specification") as caught:
        decide(
            forged, None if beside is None else written(beside), AdmissionPolicy(without="accept")
        )
    assert caught.value.status == 422


def test_noise_under_which_nothing_is_described_is_refused():
    told = certified(1e-300, 1e-5, "labels")
    forged = changed(MADE, guarantees=told)
    with pytest.raises(RefusedError, match=r"μ ≥ 0.001"):
        decide(forged, written(release(forged, mu=1e-300)), AdmissionPolicy())


def test_a_manifest_holds_no_more_guarantees_than_a_release_gives():
    forged = changed(MADE, guarantees=MADE.guarantees * 200)
    with pytest.raises(RefusedError, match="at most 8 guarantees, got 600"):
        decide(forged, None, AdmissionPolicy())


def test_accounting_that_takes_long_is_not_begun():
    content = release(MADE).to_dict()
    content["details"]["schedule"] = {"steps": 10**9, "sampling_rate": 1e-4, "step_size": 0.05}
    with pytest.raises(RefusedError, match="at most 10000 steps"):
        decide(MADE, json.dumps(content).encode(), AdmissionPolicy())


@pytest.mark.parametrize("mu", [0.001, 0.1, 0.5, 1.0, 3.0, 40.0])
def test_epsilon_told_is_that_of_the_noise_and_never_too_small(mu):
    made = changed(MADE, guarantees=certified(mu, 1e-7, "labels"))
    told = headline(release(made, mu=mu, delta=1e-7))
    epsilon = told["epsilon"]

    def delta(at: float) -> float:
        # δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)
        return float(ndtr(mu / 2 - at / mu) - math.exp(at + log_ndtr(-mu / 2 - at / mu)))

    assert delta(epsilon) <= DELTA * (1.0 + 1e-9)
    assert epsilon == 0.0 or delta(epsilon * (1.0 - 1e-5)) > DELTA * (1.0 - 1e-3)
    assert told["advantage"] == pytest.approx(2 * ndtr(mu / 2) - 1, rel=1e-9)
    assert told["advantage"] >= 2 * ndtr(mu / 2) - 1


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (AdmissionPolicy(max_epsilon=1.5), "ε = 1.9"),
        (AdmissionPolicy(max_advantage=0.1), "advantage of 0.197"),
    ],
)
def test_a_policy_is_held_against_what_the_noise_gives(policy, said):
    with pytest.raises(RefusedError, match=said):
        decide(MADE, written(release(MADE)), policy)


def test_nothing_is_worked_out_when_it_is_read(dock, monkeypatch):
    found = dock.submit(files(MADE)).json()

    def worked_out(*_: Any) -> Any:
        raise AssertionError("a reader made the dock work out a guarantee")

    monkeypatch.setattr(StepSchedule, "profile", worked_out)
    monkeypatch.setattr(GaussianDP, "approximate", worked_out)
    told = dock.client.get(f"/v1/learnwares/{found['id']}").json()["guarantee"]
    assert told == found["guarantee"] == json.loads(json.dumps(headline_of_made))
    assert dock.client.get("/v1/learnwares").status_code == 200
    assert dock.client.get("/").status_code == 200
    assert dock.search(specification(1, "task")).json()["items"][0]["guarantee"] == told


headline_of_made = headline(release(MADE))


def test_a_copy_under_another_name_is_refused(dock):
    first = dock.submit(files(MADE)).json()["id"]
    later = changed(MADE, created="2026-02-02T03:04:05+00:00")
    twice = changed(MADE, factors={name: 2 * held for name, held in MADE.factors.items()})
    for copy in (later, twice):
        again = dock.submit(files(copy), developer="other")
        is_problem(again, 409, "these very factors")
        assert again.json()["learnware"] == first
    opposite = changed(MADE, factors={name: -held for name, held in MADE.factors.items()})
    assert dock.submit(files(opposite)).status_code == 201
    dock.client.delete(f"/v1/learnwares/{first}", headers=dock.headers())
    assert dock.submit(files(later), developer="other").status_code == 201


def test_a_database_of_the_schema_before_is_opened(tmp_path):
    import sqlite3

    with DockStore(tmp_path) as store:
        kept = keep(store, files(MADE))
    with sqlite3.connect(tmp_path / "dock.sqlite") as held:
        held.execute("DROP INDEX ix_dock_revisions_direction")
        held.execute("ALTER TABLE dock_revisions DROP COLUMN direction")
        held.execute("ALTER TABLE dock_revisions DROP COLUMN headline")
        held.execute("UPDATE dock_meta SET value = '1' WHERE key = 'schema'")
    for _ in range(2):
        with DockStore(tmp_path) as store:
            found = store.learnware(kept["id"])
            assert found is not None
            assert found.guarantee is None
            assert found.space["layers"] == list(SPACE.layers)
    with DockStore(tmp_path) as store:
        keep(store, files(specification(2)), key="later")


def test_noise_that_bounds_no_epsilon_is_refused() -> None:
    mu = 1e8
    made = changed(MADE, guarantees=certified(mu, 1e-5, "labels"))
    with pytest.raises(RefusedError, match="expected noise that bounds"):
        decide(made, written(release(made, mu=mu)), AdmissionPolicy(without="accept"))
    told = {"shift": mu}
    assert together(told, [told])["together"]["epsilon"] is None
