"""A permission belongs to the content that is served, and a bound to all contents that are."""

from __future__ import annotations

from typing import Any

import pytest

from tacit.accounting import gaussian_shift
from tacit.specifications.release import certified
from tacit_dock import AdmissionPolicy, DockSettings
from tacit_dock.promised import claim, rounded_up
from tests.dock.learnwares import Dock, card, dock, files, is_problem, release, specification
from tests.dock.test_claims import changed, written

BARE = specification(1, guarantees=())


@pytest.fixture
def held(tmp_path: Any) -> Any:
    with dock(tmp_path, DockSettings(policy=AdmissionPolicy(without="quarantine"))) as found:
        yield found


def revised(found: Dock, place: str, before: str, parts: Any) -> Any:
    headers = found.headers(**{"If-Match": f'"{before}"'})
    return found.client.put(place, files=parts, headers=headers)


def digests_of(answer: Any) -> set[str]:
    return {word for word in answer.text.replace('"', " ").split() if word.startswith("sha256:")}


def test_a_quarantined_content_is_not_served_after_a_revision(held: Dock) -> None:
    model = b"model of the records"
    made = held.submit({**files(BARE), "model": _weights(model)})
    place, bare = made.headers["location"], made.json()["revision"]
    after = revised(held, place, bare, files(specification(2)))
    assert (after.status_code, after.json()["status"]) == (200, "listed")
    for name in ("specification", "model"):
        for headers in ({}, held.headers("other")):
            answer = held.client.get(f"{place}/{name}", params={"revision": bare}, headers=headers)
            is_problem(answer, 404, name)
        mine = held.client.get(f"{place}/{name}", params={"revision": bare}, headers=held.headers())
        assert mine.status_code == 200
    assert held.client.get(f"{place}/specification").content == specification(2).to_bytes()


@pytest.mark.parametrize("then", ["quarantined", "revised", "withdrawn"])
def test_no_digest_of_a_quarantined_content_is_told_to_others(held: Dock, then: str) -> None:
    made = held.submit(files(BARE))
    place, bare = made.headers["location"], made.json()["revision"]
    if then == "revised":
        assert revised(held, place, bare, files(specification(2))).status_code == 200
    elif then == "withdrawn":
        assert held.client.delete(place, headers=held.headers()).status_code == 204
    page = place.replace("/v1", "")
    for address in (place, page, "/v1/learnwares", "/"):
        for headers in ({}, held.headers("other"), {"Accept": "text/html"}):
            answer = held.client.get(address, headers=headers)
            assert bare not in answer.text, (address, headers)
            assert bare not in str(answer.headers)
    mine = held.client.get(place, headers=held.headers())
    assert bare in mine.text
    is_problem(
        held.client.get(f"{place}/specification", params={"revision": bare}),
        410 if then == "withdrawn" else 404,
    )


def test_what_an_operator_admits_is_served(held: Dock) -> None:
    made = held.submit(files(BARE))
    place = made.headers["location"]
    is_problem(held.client.get(f"{place}/specification"), 403, "quarantine")
    held.store.admit(made.json()["id"])
    assert held.client.get(f"{place}/specification").content == BARE.to_bytes()
    assert made.json()["revision"] in held.client.get(place).text


def test_all_revisions_are_counted_together(held: Dock) -> None:
    made = held.submit(files(specification(1)))
    place, before = made.headers["location"], made.json()["revision"]
    assert made.json()["guarantee"]["together"] is None
    for count in (2, 3):
        after = revised(held, place, before, files(specification(count)))
        told, before = after.json()["guarantee"], after.json()["revision"]
        exact = gaussian_shift(0.5 * count**0.5).epsilon(1e-5)
        assert told["together"]["revisions"] == count
        assert exact <= told["together"]["epsilon"] <= exact * (1 + 1e-6)
        assert told["epsilon"] < told["together"]["epsilon"]
    page = held.client.get(place.replace("/v1", "")).text
    assert "That is of this revision alone. 3 are kept and served: together ε ≤" in page
    for shown in (page, held.client.get("/").text):
        assert f"; 3 revisions together: ε ≤ {rounded_up(told['together']['epsilon'])}" in shown


def test_a_revision_without_a_bound_leaves_none_together(held: Dock) -> None:
    made = held.submit(files(BARE))
    place, before = made.headers["location"], made.json()["revision"]
    told = revised(held, place, before, files(specification(2))).json()["guarantee"]
    assert told["together"] == {"revisions": 2, "epsilon": None, "delta": 1e-5}
    assert claim(told).endswith("; 2 revisions together: no bound")
    assert "together they are not bounded" in held.client.get(place.replace("/v1", "")).text


def test_of_steps_on_samples_no_shift_is_added(held: Dock) -> None:
    from tacit.specifications.schedule import StepSchedule

    schedule = StepSchedule(steps=2, sampling_rate=0.5)
    told = certified(0.5, 1e-5, "labels", schedule)
    notes = (*specification(3).notes, schedule.sentence)
    sampled = changed(specification(3), guarantees=told, notes=notes)
    parts = {
        "specification": sampled.to_bytes(),
        "card": card(),
        "release": written(release(sampled, schedule=schedule)),
    }
    first = held.submit(parts)
    assert first.status_code == 201, first.text
    assert first.json()["guarantee"]["shift"] is None
    place, before = first.headers["location"], first.json()["revision"]
    after = revised(held, place, before, files(specification(2))).json()["guarantee"]
    assert after["together"]["epsilon"] is None


def _weights(text: bytes) -> bytes:
    from tests.dock.learnwares import weights

    return weights({"weight": ("U8", (len(text),), text)})


def test_a_guess_of_a_quarantined_content_is_not_confirmed(held: Dock) -> None:
    assert held.submit(files(BARE)).json()["status"] == "quarantined"
    guessed = held.submit(files(BARE), developer="other")
    assert (guessed.status_code, guessed.json()["status"]) == (201, "quarantined")
    is_problem(held.submit(files(BARE)), 409, "there already")
