"""The HTTP interface does what its contract says."""

from __future__ import annotations

import base64
import hashlib
import threading
from dataclasses import replace

import pytest

from tacit_dock import AdmissionPolicy, DockSettings
from tests.dock.learnwares import (
    OCTETS,
    SPACE,
    card,
    dock,
    files,
    is_problem,
    specification,
    weights,
)


def test_a_submission_is_answered_listed_fetched_and_found(dock):
    made = specification(1)
    answer = dock.submit(files(made, model=weights()))
    assert answer.status_code == 201
    told = answer.json()
    assert told["revision"] == made.revision
    assert told["developer"] == "me"
    assert told["status"] == "listed"
    assert told["guarantee"]["type"] == "SuccessBound"
    assert "noise that its developer claims" in told["guarantee"]["checked"]
    assert told["guarantee"]["checked"].endswith("checked by tacit_check 1.0: holds")
    place = answer.headers["location"]
    assert place == f"/v1/learnwares/{told['id']}"
    record = dock.client.get(place).json()
    assert record["title"] == "Digits"
    assert record["card"]["text"] == "Tells digits.\n"
    assert record["model"]["digest"] == f"sha256:{hashlib.sha256(weights()).hexdigest()}"
    fetched = dock.client.get(f"{place}/specification")
    assert fetched.content == made.to_bytes()
    assert fetched.headers["etag"] == f'"{made.revision}"'
    known = {"If-None-Match": fetched.headers["etag"]}
    assert dock.client.get(f"{place}/specification", headers=known).status_code == 304
    assert dock.client.get(f"{place}/model").content == weights()
    found = dock.search(specification(1, "task", noise=0.1)).json()
    assert found["items"][0]["id"] == told["id"]
    assert found["items"][0]["rank"] == 1
    expected = made.cosine(specification(1, "task", noise=0.1))
    assert found["items"][0]["similarity"] == pytest.approx(expected, abs=1e-6)
    assert found["verdict"]["good_match"] is True


def test_what_fits_nothing_is_told_so(dock):
    dock.submit(files(specification(1)))
    found = dock.search(specification(2, "task")).json()
    assert found["items"][0]["similarity"] < found["verdict"]["threshold"]
    assert found["verdict"]["good_match"] is False
    assert "No good match" in found["verdict"]["sentence"]


def test_an_empty_dock_finds_nothing(dock):
    found = dock.search(specification(2, "task"))
    assert found.status_code == 200
    assert found.json()["items"] == []
    assert found.json()["verdict"]["good_match"] is False


def test_the_same_key_is_answered_the_same_and_another_body_refused(dock):
    parts = files(specification(1))
    first = dock.submit(parts, key="k")
    again = dock.submit(parts, key="k")
    assert (again.status_code, again.content) == (201, first.content)
    is_problem(dock.submit(files(specification(2)), key="k"), 422, "Idempotency-Key")
    # a key is the developer's own
    assert dock.submit(files(specification(2)), key="k", developer="other").status_code == 201
    assert len(dock.client.get("/v1/learnwares").json()["items"]) == 2


def test_one_key_many_times_at_once_is_one_record(dock):
    parts, answers = files(specification(1)), []
    line = threading.Barrier(8)

    def submit():
        line.wait()
        answers.append(dock.submit(parts, key="k"))

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert len(dock.store.learnwares().items) == 1


def test_a_revision_that_is_there_is_refused(dock):
    first = dock.submit(files(specification(1))).json()
    again = dock.submit(files(specification(1)), developer="other")
    is_problem(again, 409, "there already")
    assert again.json()["learnware"] == first["id"]


def test_a_revision_replaces_and_history_stays(dock):
    old, new = specification(1), specification(2)
    place = dock.submit(files(old)).headers["location"]
    stale = dock.headers(**{"If-Match": f'"{new.revision}"'})
    is_problem(dock.client.put(place, files=files(new), headers=stale), 412)
    is_problem(dock.client.put(place, files=files(new), headers=dock.headers()), 428)
    fresh = {"If-Match": f'"{old.revision}"'}
    foreign = dock.headers("other", **fresh)
    is_problem(dock.client.put(place, files=files(new), headers=foreign), 403)
    answer = dock.client.put(place, files=files(new), headers=dock.headers(**fresh))
    assert answer.status_code == 200
    record = dock.client.get(place).json()
    assert [held["revision"] for held in record["history"]] == [new.revision, old.revision]
    assert dock.client.get(f"{place}/specification").content == new.to_bytes()
    former = dock.client.get(f"{place}/specification", params={"revision": old.revision})
    assert former.content == old.to_bytes()
    # the index follows
    best = dock.search(specification(2, "task")).json()["items"]
    assert len(best) == 1
    assert best[0]["similarity"] == pytest.approx(1.0)


def test_a_withdrawal_leaves_a_tombstone_alone(dock):
    place = dock.submit(files(specification(1), model=weights())).headers["location"]
    is_problem(dock.client.delete(place, headers=dock.headers("other")), 403)
    gone = dock.client.delete(place, headers=dock.headers(), params={"reason": "a bug"})
    assert gone.status_code == 204
    assert dock.client.delete(place, headers=dock.headers()).status_code == 204
    told = dock.client.get(place)
    is_problem(told, 410, "withdrawn")
    assert told.json()["withdrawal"]["reason"] == "a bug"
    for name in ("specification", "model"):
        is_problem(dock.client.get(f"{place}/{name}"), 410)
    assert dock.search(specification(1, "task")).json()["items"] == []
    assert list(dock.store.blobs.digests()) == []
    # what was withdrawn may be submitted again
    assert dock.submit(files(specification(1))).status_code == 201


def test_pages_hold_everything_once_by_an_opaque_cursor(dock):
    made = [dock.submit(files(specification(i))).json()["id"] for i in range(7)]
    found, cursor = [], None
    while True:
        params = {"limit": 3, **({"cursor": cursor} if cursor else {})}
        page = dock.client.get("/v1/learnwares", params=params).json()
        found += [held["id"] for held in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert found == made[::-1]
    for forged in ("x", "YWZ0ZXI6", "!!", "9" * 99):
        answer = dock.client.get("/v1/learnwares", params={"cursor": forged})
        is_problem(answer, 422, "cursor")


def test_filters_narrow_lists_and_searches(dock):
    for seed, tags in ((1, ("mnist",)), (2, ("cifar", "mnist")), (3, ("text",))):
        dock.submit({**files(specification(seed)), "card": card(tags=tags)})
    listed = dock.client.get("/v1/learnwares", params={"tag": "mnist"}).json()["items"]
    assert len(listed) == 2
    found = dock.search(specification(3, "task"), tag="mnist").json()
    assert found["compared"] == 2
    assert {held["id"] for held in found["items"]} == {held["id"] for held in listed}
    assert dock.client.get("/v1/learnwares", params={"guarantee": "none"}).json()["items"] == []
    assert dock.search(specification(3, "task"), developer="other").json()["items"] == []


@pytest.mark.parametrize("field", ["backbone", "factor", "output"])
def test_another_space_is_refused_and_the_field_named(dock, field):
    dock.submit(files(specification(1)))
    other = replace(SPACE, **{field: "another"})
    answer = dock.search(specification(1, "task", space=other))
    is_problem(answer, 409, field)
    assert answer.json()["differing"] == [field]


def test_spaces_are_counted(dock):
    wide = replace(SPACE, shapes=((32, 2),))
    for seed in (1, 2):
        dock.submit(files(specification(seed)))
    dock.submit(files(specification(3, space=wide)))
    held = dock.client.get("/v1/spaces").json()["items"]
    assert [one["learnwares"] for one in held] == [2, 1]
    assert held[0]["backbone"] == SPACE.backbone


def test_the_policy_decides_about_what_has_no_guarantee(tmp_path):
    bare = files(specification(1, guarantees=()))
    with dock(tmp_path / "refuse") as found:
        is_problem(found.submit(bare), 422, "no guarantee")
    with dock(tmp_path / "accept", DockSettings(policy=AdmissionPolicy(without="accept"))) as found:
        told = found.submit(bare).json()
        assert told["guarantee"] is None
        assert told["policy"]["decision"] == "listed"
        assert "no guarantee" in told["policy"]["reason"]
    with dock(
        tmp_path / "quarantine", DockSettings(policy=AdmissionPolicy(without="quarantine"))
    ) as found:
        told = found.submit(bare).json()
        assert told["status"] == "quarantined"
        place = f"/v1/learnwares/{told['id']}"
        assert found.search(specification(1, "task")).json()["items"] == []
        assert found.client.get("/v1/learnwares").json()["items"] == []
        is_problem(found.client.get(f"{place}/specification"), 403)
        own = found.client.get(f"{place}/specification", headers=found.headers())
        assert own.status_code == 200
        found.store.admit(told["id"])
        assert len(found.search(specification(1, "task")).json()["items"]) == 1
        assert found.client.get(f"{place}/specification").status_code == 200


def test_quotas_rates_and_privacy(tmp_path):
    with dock(tmp_path / "quota", DockSettings(max_learnwares=1)) as found:
        place = found.submit(files(specification(1))).headers["location"]
        full = found.submit(files(specification(2)))
        is_problem(full, 429, "at most 1 learnwares")
        assert int(full.headers["retry-after"]) > 0
        found.client.delete(place, headers=found.headers())
        assert found.submit(files(specification(2))).status_code == 201
    with dock(tmp_path / "bytes", DockSettings(max_bytes=100)) as found:
        is_problem(found.submit(files(specification(1))), 429, "bytes")
        assert list(found.store.blobs.digests()) == []
    with dock(tmp_path / "rate", DockSettings(requests_per_minute=3)) as found:
        answers = [found.client.get("/v1/learnwares") for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert 0 < int(answers[-1].headers["retry-after"]) <= 20
        assert found.client.get("/v1/health").status_code == 200
    with dock(tmp_path / "private", DockSettings(private=True)) as found:
        is_problem(found.client.get("/v1/learnwares"), 401)
        is_problem(found.search(specification(1, "task")), 401)
        assert set(found.client.get("/v1/health").json()) == {"status", "database"}
        listed = found.client.get("/v1/learnwares", headers=found.headers())
        assert listed.status_code == 200


def test_every_answer_is_named_and_guarded(dock):
    seen = set()
    for path in ("/v1/health", "/v1/nothing", "/openapi.json"):
        headers = dock.client.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers
        seen.add(headers["x-request-id"])
    assert len(seen) == 3
    is_problem(dock.client.get("/v1/nothing"), 404)
    is_problem(dock.client.put("/v1/learnwares"), 405)
    is_problem(dock.client.get("/v1/learnwares", params={"limit": "many"}), 422)


def test_a_failure_tells_nothing_of_itself(dock, monkeypatch):
    def fail():
        raise RuntimeError("cell 41")

    monkeypatch.setattr(dock.store, "spaces", fail)
    answer = dock.client.get("/v1/spaces")
    is_problem(answer, 500)
    assert "cell" not in answer.text
    assert answer.headers["x-request-id"] in answer.text


def test_a_digest_of_the_body_is_held_to(dock):
    dock.submit(files(specification(1)))
    content = specification(1, "task").to_bytes()
    for body, status in ((content, 200), (content + b"x", 400)):
        digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
        headers = {**OCTETS, "Content-Digest": f"sha-256=:{digest}:"}
        assert (
            dock.client.post("/v1/search", content=content, headers=headers).status_code == status
        )


def test_a_restart_finds_the_same(tmp_path):
    query = specification(3, "task", noise=0.5)
    with dock(tmp_path) as found:
        for seed in range(20):
            found.submit(files(specification(seed)))
        before = found.search(query).json()
        extra = found.store.learnwares().items[0].id
        found.store.withdraw(extra, "me")
        without = found.search(query).json()
    with dock(tmp_path) as found:
        assert found.search(query).json() == without
    assert before != without


def test_two_applications_on_one_store_see_each_other(tmp_path):
    with dock(tmp_path) as one, dock(tmp_path) as two:
        told = one.submit(files(specification(1))).json()
        assert two.search(specification(1, "task")).json()["items"][0]["id"] == told["id"]
        two.store.withdraw(told["id"], "me")
        assert one.search(specification(1, "task")).json()["items"] == []
