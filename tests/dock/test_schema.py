"""Requests made from the OpenAPI description find no server error."""

from __future__ import annotations

import tempfile

import pytest
from hypothesis import HealthCheck, given, settings

from tacit_dock import AdmissionPolicy, DockSettings, DockStore, create_application
from tests.dock.learnwares import dock, files, keep, specification

schemathesis = pytest.importorskip("schemathesis")

from tests.dock import raw, stateful  # noqa: E402


@pytest.fixture(scope="module")
def schema():
    with tempfile.TemporaryDirectory() as folder, DockStore(folder) as store:
        keep(store, files(specification(1)))
        limits = DockSettings(
            policy=AdmissionPolicy(without="accept"), requests_per_minute=10**9, body_seconds=5.0
        )
        app = create_application(store, limits)
        loaded = schemathesis.openapi.from_asgi("/openapi.json", app)
        loaded.token = store.create_token("me")[0]
        yield loaded


def answered(schema, operation, examples):
    headers = {"Authorization": f"Bearer {schema.token}", "Idempotency-Key": "k"}

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def call(case):
        answer = case.call(headers=headers)
        assert answer.status_code < 500, answer.text
        assert "Traceback" not in answer.text
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == ["application/problem+json"]

    call()


def operations(schema):
    found = [result.ok() for result in schema.get_all_operations()]
    assert len(found) == 13
    return found


def test_no_server_error(schema):
    for operation in operations(schema):
        answered(schema, operation, 6)


@pytest.mark.thorough
def test_no_server_error_in_many_requests(schema):
    for operation in operations(schema):
        answered(schema, operation, 200)


@pytest.mark.parametrize(
    ("examples", "steps"), [(3, 12), pytest.param(60, 30, marks=pytest.mark.thorough)]
)
def test_what_follows_from_answers_finds_no_server_error(examples, steps):
    told = stateful.round_of(3, examples=examples, steps=steps)
    # it got to what there is, to what is new and to what is gone
    assert {200, 201, 204, 410} <= set(told)


@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.thorough)])
def test_bytes_that_are_hardly_requests_find_no_server_error(count):
    told = raw.sent(count, 11)
    assert sum(told.values()) == count
    assert {"200", "400", "404", "405"} <= set(told)


def test_the_description_has_examples_and_names_every_path(tmp_path):
    with dock(tmp_path) as found:
        told = found.client.get("/openapi.json").json()
        assert {
            "/v1/learnwares",
            "/v1/learnwares/{identifier}",
            "/v1/learnwares/{identifier}/specification",
            "/v1/learnwares/{identifier}/model",
            "/v1/search",
            "/v1/spaces",
            "/v1/health",
        } <= set(told["paths"])
        assert "example" in told["components"]["schemas"]["SearchShape"]
        assert "example" in told["components"]["schemas"]["SubmissionShape"]
        assert "Problem" in str(told["components"]["schemas"].keys())
        form = told["paths"]["/v1/learnwares"]["post"]["requestBody"]["content"]
        example = form["multipart/form-data"]["schema"]["properties"]["card"]["example"]
        assert (
            found.submit({**files(specification(1)), "card": example.encode()}).status_code == 201
        )
