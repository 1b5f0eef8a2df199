"""One table says who may ask, what is taken, what it costs and what is cached: as it is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tacit_dock import DockSettings
from tacit_dock.api import routes
from tacit_dock.api.routes import RULES, Rule
from tests.dock.learnwares import Dock, card, dock, files, is_problem, specification, weights

PLAIN = {"Idempotency-Key": "k", "If-Match": "*"}
NAMED = [pytest.param(rule, id=f"{rule.method} {rule.path}") for rule in RULES]
LIMITS = DockSettings(metrics=True, requests_per_minute=10**6, max_model=1000, max_card=1000)


def path_of(rule: Rule, found: Dock) -> str:
    """Return a path of a rule where something is."""
    held = found.store.learnwares(limit=1).items
    identifier = held[0].id if held else "0" * 32
    return rule.path.replace("{identifier}", identifier).replace("{path:path}", "page.css")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory):
    with dock(tmp_path_factory.mktemp("dock"), LIMITS) as found:
        found.submit(files(specification(1), model=weights()))
        yield found


@pytest.mark.parametrize("rule", NAMED)
def test_what_takes_no_body_is_sent_none(filled: Dock, rule: Rule) -> None:
    path = path_of(rule, filled)
    answer = filled.client.request(rule.method, path, content=b"x", headers=PLAIN)
    if not rule.parts:
        assert answer.status_code == 413
        assert filled.store.learnwares(limit=1).items
    else:
        assert answer.status_code in (401, 415, 422)


@pytest.mark.parametrize("rule", NAMED)
def test_a_cache_is_told_what_the_table_says(filled: Dock, rule: Rule) -> None:
    path, headers = path_of(rule, filled), dict(PLAIN)
    if rule.who == "developer":
        answer = filled.client.request(rule.method, path, headers=headers)
        assert (answer.status_code, answer.headers["cache-control"]) == (401, "no-store")
    elif rule.method == "GET":
        answer = filled.client.get(path)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, rule.cache), path
        known = answer.headers.get("etag")
        if known is not None and not path.startswith("/static"):
            again = filled.client.get(path, headers={"If-None-Match": known})
            assert (again.status_code, again.headers["cache-control"]) == (304, rule.cache)
    assert filled.client.get("/v1/nothing").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("rule", [held for held in NAMED if held.values[0].who == "developer"])
def test_a_form_takes_the_parts_of_the_table(filled: Dock, rule: Rule) -> None:
    if not rule.parts:
        return
    path, headers = path_of(rule, filled), filled.headers(**PLAIN)
    parts = {**files(specification(1)), "token": b"x"}
    is_problem(filled.client.request(rule.method, path, files=parts, headers=headers), 422, "parts")
    large = {**files(specification(1)), "card": card("x" * 999)}
    is_problem(filled.client.request(rule.method, path, files=large, headers=headers), 413, "card")
    described = filled.client.get("/openapi.json").json()["paths"][rule.path][rule.method.lower()]
    form = described["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert set(form["properties"]) == set(rule.parts)


@pytest.mark.parametrize("rule", NAMED)
def test_a_request_counts_for_what_it_costs(
    tmp_path: Path, rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 20
    with dock(tmp_path, DockSettings(requests_per_minute=most)) as found:
        path = path_of(rule, found)
        if rule.who == "anybody":
            assert {found.client.get(path).status_code for _ in range(most + 1)} <= {200, 404}
            return
        # nothing comes back meanwhile
        monkeypatch.setattr(found.client.app.state.dock.rates, "_clock", lambda: 0.0)
        asked = found.headers(**PLAIN) if rule.who == "developer" else dict(PLAIN)
        done = 0
        while found.client.request(rule.method, path, headers=asked).status_code != 429:
            done += 1
        assert done == most // rule.cost


def test_what_is_in_no_rule_does_not_start() -> None:
    def secret() -> None: ...

    with pytest.raises(RuntimeError, match="GET /secret is in no rule"):
        routes.check_routes([], [Route("/secret", secret)])
    with pytest.raises(RuntimeError, match=r"GET /files/.* is in no rule"):
        routes.check_routes([], [Mount("/files", StaticFiles(directory="."))])
    with pytest.raises(RuntimeError, match="GET /v1/spaces is in no rule"):
        routes.check_routes([], [Route("/v1/spaces", secret)])
