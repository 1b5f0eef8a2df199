"""What HTTP promises: conditions, parts, heads, methods, and every content read back."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fastapi import APIRouter

from tacit_dock import DockStore, create_application
from tacit_dock.api import routes
from tacit_dock.api.access import Reader
from tests.cli_runner import Tacit
from tests.dock.learnwares import card, files, is_problem, release, specification, weights
from tests.dock.learnwares import dock as started


def test_a_tag_that_was_read_is_a_tag_to_write_with(dock):
    made = dock.submit(files(specification(1)))
    place = made.headers["location"]
    seen = dock.client.get(place).headers["etag"]
    assert made.headers["etag"] == seen
    for tag in (f"W/{seen}", '"other"', f"W/{seen}, W/{seen}", "", seen.strip('"'), '"'):
        headers = dock.headers(**{"If-Match": tag})
        is_problem(dock.client.put(place, files=files(specification(2)), headers=headers), 412)
    lists = (seen, f'"x", {seen}', "*", f'W/"x",{seen} ')
    for number, tag in enumerate(lists, 2):
        if number > 2:
            seen = dock.client.get(place).headers["etag"]
            tag = re.sub(r'"sha256[^"]*"', seen, tag)
        headers = dock.headers(**{"If-Match": tag})
        answer = dock.client.put(place, files=files(specification(number)), headers=headers)
        assert answer.status_code == 200, (tag, answer.text)
        assert answer.headers["etag"] == dock.client.get(place).headers["etag"] != seen
    stale = dock.headers(**{"If-Match": '"x"'})
    is_problem(dock.client.delete(place, headers=stale), 412)
    fresh = dock.headers(**{"If-Match": dock.client.get(place).headers["etag"]})
    assert dock.client.delete(place, headers=fresh).status_code == 204


@pytest.mark.parametrize("more", ["", "/specification", "/model", "/release", "/card"])
def test_what_is_known_is_not_sent_again(dock, more):
    place = dock.submit(files(specification(1), model=weights())).headers["location"] + more
    tag = dock.client.get(place).headers["etag"]
    for known in (tag, f"W/{tag}", f'"a", W/{tag}', "*"):
        answer = dock.client.get(place, headers={"If-None-Match": known})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
    for other in ('"a"', f'"{tag}', tag[:-2] + '"', ""):
        assert dock.client.get(place, headers={"If-None-Match": other}).status_code == 200


def test_a_part_of_a_file(dock):
    content = weights({"w": ("F32", (300,), bytes(range(240)) * 5)})
    place = dock.submit(files(specification(1), model=content)).headers["location"] + "/model"
    whole = dock.client.get(place)
    size, tag = len(content), whole.headers["etag"]
    assert whole.headers["accept-ranges"] == "bytes"
    for asked, first, last in (
        ("bytes=0-0", 0, 0), ("bytes=5-9", 5, 9), (f"bytes={size - 1}-", size - 1, size - 1),
        ("bytes=-7", size - 7, size - 1), (f"bytes=3-{10 * size}", 3, size - 1),
        (f"bytes=-{10 * size}", 0, size - 1),
    ):  # fmt: skip
        for headers in ({"Range": asked}, {"Range": asked, "If-Range": tag}):
            part = dock.client.get(place, headers=headers)
            assert part.status_code == 206, asked
            assert part.content == content[first : last + 1]
            assert part.headers["content-range"] == f"bytes {first}-{last}/{size}"
            assert part.headers["content-length"] == str(last - first + 1)
    for asked in (f"bytes={size}-", "bytes=-0"):
        answer = dock.client.get(place, headers={"Range": asked})
        is_problem(answer, 416)
        assert answer.headers["content-range"] == f"bytes */{size}"
    for headers in (
        {"Range": "bytes=0-1,3-4"}, {"Range": "rows=0-1"}, {"Range": "bytes=9-5"},
        {"Range": "bytes=-"}, {"Range": "bytes=0-1", "If-Range": '"other"'},
        {"Range": "bytes=0-1", "If-Range": f"W/{tag}"},
    ):  # fmt: skip
        answer = dock.client.get(place, headers=headers)
        assert (answer.status_code, answer.content) == (200, content), headers


def test_a_head_is_that_of_the_answer(dock):
    made = dock.submit(files(specification(1), model=weights()))
    place = made.headers["location"]
    paths = ["/", "/search", "/submit", "/v1/health", "/v1/spaces", "/v1/learnwares", place]
    paths += [f"{place}/{name}" for name in ("specification", "model", "release", "card")]
    changing = {"x-request-id", "content-length"}
    for path in paths:
        full, head = dock.client.get(path), dock.client.head(path)
        assert (head.status_code, head.content) == (full.status_code, b""), path
        kept = {k: v for k, v in full.headers.items() if k not in changing}
        assert {k: v for k, v in head.headers.items() if k not in changing} == kept
        assert int(head.headers["content-length"]) > 0
    missing = dock.client.head(f"/v1/learnwares/{'0' * 32}")
    assert (missing.status_code, missing.content) == (404, b"")


def test_a_path_says_which_methods_are_done(dock):
    place = dock.submit(files(specification(1))).headers["location"]
    for path, methods in (
        (place, "DELETE, GET, HEAD, OPTIONS, PUT"),
        ("/v1/learnwares", "GET, HEAD, OPTIONS, POST"),
        ("/v1/search", "OPTIONS, POST"),
        (f"{place}/model", "GET, HEAD, OPTIONS"),
    ):
        asked = dock.client.options(path)
        assert (asked.status_code, asked.headers["allow"], asked.content) == (204, methods, b"")
        refused = dock.client.patch(path)
        is_problem(refused, 405)
        assert refused.headers["allow"] == methods
    is_problem(dock.client.options("/v1/nothing"), 404)


def test_a_slash_at_the_end_changes_nothing(dock):
    place = dock.submit(files(specification(1))).headers["location"]
    for path in ("/v1/learnwares", "/v1/health", place, f"{place}/card", "/search"):
        plain, slashed = dock.client.get(path), dock.client.get(f"{path}/")
        assert (plain.status_code, slashed.status_code) == (200, 200), path
    assert dock.client.get("/v1/nothing/").status_code == 404


def test_every_operation_says_whether_it_needs_a_token(dock):
    told = dock.client.get("/openapi.json").json()
    assert told["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    needed = {
        (method, path): operation["security"]
        for path, operations in told["paths"].items()
        for method, operation in operations.items()
    }
    for (method, path), security in needed.items():
        writes = method in ("put", "delete") or (method, path) == ("post", "/v1/learnwares")
        assert ({} not in security and security != []) == writes, (method, path)
        place = path.format(identifier="0" * 32)
        answer = dock.client.request(method, place, headers={"If-Match": "*"})
        assert (answer.status_code == 401) == writes


def test_a_route_without_a_rule_does_not_start(tmp_path, monkeypatch):
    stray = APIRouter()

    @stray.get("/v1/health")
    def health(reader: Reader) -> None:
        del reader

    with pytest.raises(RuntimeError, match="GET /v1/health does not check the rights"):
        routes.check_routes([stray])

    @stray.get("/v1/secret")
    def secret() -> None: ...

    stray.routes.reverse()
    with pytest.raises(RuntimeError, match="GET /v1/secret is in no rule"):
        routes.check_routes([stray])
    with pytest.raises(RuntimeError, match="has a rule and no route"):
        routes.check_routes([])
    rules = {place: rule for place, rule in routes.BY_PLACE.items() if "{" not in place[1]}
    monkeypatch.setattr(routes, "BY_PLACE", rules)
    with DockStore(tmp_path) as store, pytest.raises(RuntimeError, match="is in no rule"):
        create_application(store)


def test_every_revision_is_read_back_with_its_own_card_and_release(dock):
    old = files(specification(1), card=card("Old"), model=weights())
    new = files(specification(2), card=card("New"))
    made = dock.submit(old)
    place, first = made.headers["location"], made.json()["revision"]
    headers = dock.headers(**{"If-Match": made.headers["etag"]})
    second = dock.client.put(place, files=new, headers=headers).json()["revision"]
    for revision, parts in ((first, old), (second, new), (None, new)):
        asked = {} if revision is None else {"revision": revision}
        for name in ("specification", "release", "card"):
            assert dock.client.get(f"{place}/{name}", params=asked).content == parts[name], name
    assert dock.client.get(f"{place}/model", params={"revision": first}).content == weights()
    is_problem(dock.client.get(f"{place}/model"), 404)
    kinds = {"release": "application/json", "card": "text/markdown; charset=utf-8"}
    for name, kind in kinds.items():
        answer = dock.client.get(f"{place}/{name}")
        assert answer.headers["content-type"] == kind
        assert f".{name}." in answer.headers["content-disposition"]
    dock.client.delete(place, headers=dock.headers())
    for name in ("release", "card"):
        is_problem(dock.client.get(f"{place}/{name}", params={"revision": first}), 410)


def test_what_was_claimed_is_what_a_reader_gates(tacit: Tacit, tmp_path: Path) -> None:
    with started(tmp_path / "dock") as dock:
        place = dock.submit(files(specification(1))).headers["location"]
        content = dock.client.get(f"{place}/release").content
    assert json.loads(content) == release(specification(1)).to_dict()
    claimed = tmp_path / "release.json"
    claimed.write_bytes(content)
    assert tacit("gate", claimed, "--max-success", ".99").code == 0
    told = json.loads(content)
    told["details"]["mu"] /= 2
    claimed.write_text(json.dumps(told))
    assert tacit("gate", claimed, "--max-success", ".99").code != 0
