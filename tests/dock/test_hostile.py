"""Each hostile request is refused with its status, and nothing of it is kept."""

from __future__ import annotations

import gc
import gzip
import hashlib
import io
import json
import pickle
import zipfile

import pytest

from tacit.guarantees import ApproximateDP, GaussianDP, InformationBound
from tacit_dock import AdmissionPolicy, DockSettings
from tacit_dock.tokens import now, token_table
from tests.dock.learnwares import OCTETS, card, dock, files, is_problem, specification, weights


def archive() -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("bomb", bytes(10 << 20))
    return held.getvalue()


def nothing_kept(dock) -> None:
    assert dock.store.learnwares().items == ()
    assert list(dock.store.blobs.digests()) == []
    assert list(dock.store.blobs.incoming.iterdir()) == []


FILES = {
    "a pickle": (pickle.dumps({"a": 1}), 415),
    "a zip bomb": (archive(), 415),
    "a gzip bomb": (gzip.compress(bytes(10 << 20), mtime=0), 415),
    "nothing": (b"", 422),
    "noise": (b"\x07" * 1000, 422),
    "truncated": (weights()[:-1], 422),
    "longer than it says": (weights() + b"x", 422),
    "a header that is no JSON": ((5).to_bytes(8, "little") + b"{nope", 422),
    "a header beyond the file": ((1 << 60).to_bytes(8, "little") + b"{}", 422),
    "a path as a name": (weights({"../../x": ("F32", (1,), bytes(4))}), 422),
    "an absolute name": (weights({"/etc/passwd": ("F32", (1,), bytes(4))}), 422),
    "a type that is none": (weights({"x": ("F31", (1,), bytes(4))}), 422),
    "a shape that lies": (weights({"x": ("F32", (2,), bytes(4))}), 422),
    "a negative shape": (weights({"x": ("F32", (-1,), bytes(4))}), 422),
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_no_safetensors(dock, name):
    content, status = FILES[name]
    is_problem(dock.submit(files(specification(1), model=content)), status, "model")
    nothing_kept(dock)


@pytest.mark.parametrize("name", [name for name in FILES if "name" not in name])
def test_specifications_that_are_none(dock, name):
    content, status = FILES[name]
    is_problem(dock.submit({"specification": content, "card": card()}), status, "specification")
    is_problem(dock.search(content), status, "specification")
    nothing_kept(dock)


def test_overlapping_tensors_are_refused(dock):
    text = json.dumps(
        {n: {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]} for n in ("a", "b")}
    ).encode()
    content = len(text).to_bytes(8, "little") + text + bytes(4)
    is_problem(dock.submit(files(specification(1), model=content)), 422, "overlap")


CARDS = {
    "no head": b"# Digits\n",
    "no title": b"---\ntags: []\n---\n",
    "not UTF-8": b"---\ntitle: \xff\n---\n",
    "an object of Python": b"---\ntitle: !!python/object/apply:os.system [id]\n---\n",
    "a bomb of aliases": b"---\ntitle: x\na: &a [x, x]\nb: [*a, *a]\n---\n",
    "depth": b"---\ntitle: x\na: " + b"[" * 50 + b"]" * 50 + b"\n---\n",
    "length": b"---\ntitle: x\na: [" + b"1," * 5000 + b"]\n---\n",
    "a name twice": b"---\ntitle: x\ntitle: y\n---\n",
    "a path as title": b"---\ntitle: ../../etc/passwd\n---\n",
    "a path as tag": b"---\ntitle: x\ntags: [../x]\n---\n",
    "a zero byte": b'---\ntitle: "a\\0b"\n---\n',
    "half a character": b'---\ntitle: "a\\ud800b"\n---\n',
    "not a number": b"---\ntitle: x\na: .nan\n---\n",
    "names that are numbers": b"---\ntitle: x\n1: y\n---\n",
    "an endless integer": b"---\ntitle: x\na: " + b"9" * 6000 + b"\n---\n",
    "an impossible date": b"---\ntitle: x\na: 2026-13-45\n---\n",
    "two titles' lines": b'---\ntitle: "a\\nb"\n---\n',
}


@pytest.mark.parametrize("name", CARDS)
def test_cards(dock, name):
    parts = {**files(specification(1)), "card": CARDS[name]}
    is_problem(dock.submit(parts), 422, "card")
    nothing_kept(dock)


def test_sizes_are_refused_while_they_arrive(tmp_path):
    settings = DockSettings(
        max_specification=4000, max_card=500, max_model=2000, max_release=10_000
    )
    with dock(tmp_path, settings) as found:
        long = {
            "specification": bytes(4001),
            "card": card("x" * 501),
            "model": bytes(2001),
            "release": bytes(10_001),
        }
        for name, content in long.items():
            is_problem(found.submit({**files(specification(1)), name: content}), 413, name)
        is_problem(found.submit(files(specification(1), model=bytes(1 << 20))), 413)
        is_problem(found.search(bytes(4001)), 413)
        endless = (bytes(1000) for _ in range(100))
        answer = found.client.post("/v1/search", content=endless, headers=OCTETS)
        is_problem(answer, 413)
        nothing_kept(found)


@pytest.mark.parametrize("name", ["../../etc/passwd", "a\\b", "/x", "..", "a\x00b"])
def test_file_names_are_no_paths(dock, name):
    body = (
        b'--b\r\nContent-Disposition: form-data; name="card"; filename="'
        + name.encode()
        + b'"\r\n\r\n'
        + card()
        + b"\r\n--b--\r\n"
    )
    headers = dock.headers(
        **{"Idempotency-Key": "k", "Content-Type": "multipart/form-data; boundary=b"}
    )
    answer = dock.client.post("/v1/learnwares", content=body, headers=headers)
    is_problem(answer, 422, "card")
    nothing_kept(dock)


@pytest.mark.parametrize(
    "path", ["../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%00", "A" * 32, "x" * 5000]
)
def test_ids_are_no_paths(dock, path):
    for more in ("", "/specification", "/model"):
        answer = dock.client.get(f"/v1/learnwares/{path}{more}")
        assert answer.status_code == 404
        assert "root:" not in answer.text


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"garbage", 422),
        (b'--b\r\nContent-Disposition: form-data; name="card"\r\n\r\nx', 422),
        (b'--b\r\nContent-Disposition: form-data; name="stranger"\r\n\r\nx\r\n--b--\r\n', 422),
        (b"--b\r\nX: " + b"y" * 20000 + b"\r\n\r\nx\r\n--b--\r\n", 422),
        (
            b'--b\r\nContent-Disposition: form-data; name="card"\r\n\r\nx\r\n' * 2 + b"--b--\r\n",
            422,
        ),
        (
            b'--b\r\nContent-Disposition: form-data; name="card"\r\nContent-Encoding: gzip'
            b"\r\n\r\nx\r\n--b--\r\n",
            415,
        ),
    ],
)
def test_forms_that_are_none(dock, body, status):
    headers = dock.headers(
        **{"Idempotency-Key": "k", "Content-Type": "multipart/form-data; boundary=b"}
    )
    is_problem(dock.client.post("/v1/learnwares", content=body, headers=headers), status)
    nothing_kept(dock)


def test_media_that_are_not_taken(dock):
    for media in ("application/json", "multipart/form-data", "text/plain; boundary=b"):
        headers = dock.headers(**{"Idempotency-Key": "k", "Content-Type": media})
        is_problem(dock.client.post("/v1/learnwares", content=b"{}", headers=headers), 415)
    answer = dock.client.post("/v1/search", content=b"{}", headers={"Content-Type": "text/plain"})
    is_problem(answer, 415)
    squeezed = gzip.compress(specification(1, "task").to_bytes())
    headers = {**OCTETS, "Content-Encoding": "gzip"}
    is_problem(dock.client.post("/v1/search", content=squeezed, headers=headers), 415)


def test_digests_that_are_wrong(dock):
    parts = files(specification(1), model=weights())
    for name in ("specification", "model"):
        for told in ("sha256:" + "0" * 64, "md5:1", "ÿ", ""):
            is_problem(dock.submit(parts, data={f"{name}_digest": told}), 422, "digest")
    is_problem(dock.submit(parts, data={"model_digest": "x" * 1000}), 413)
    right = f"sha256:{hashlib.sha256(weights()).hexdigest()}"
    assert dock.submit(parts, data={"model_digest": right}).status_code == 201


def test_tokens_that_do_not_hold(dock):
    parts = files(specification(1))
    held = dock.tokens["me"]
    for forged in (
        "",
        "Bearer",
        "Bearer x",
        f"Basic {held}",
        f"Bearer {held[:-1]}",
        f"Bearer {held}x",
    ):
        headers = {"Authorization": forged, "Idempotency-Key": "k"}
        answer = dock.client.post("/v1/learnwares", files=parts, headers=headers)
        is_problem(answer, 401)
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert dock.client.get("/v1/learnwares", headers=headers).status_code == 401
    is_problem(
        dock.client.post("/v1/learnwares", files=parts, headers={"Idempotency-Key": "k"}), 401
    )
    with dock.store.database.writing() as (connection, _):
        connection.execute(token_table.update().values(expires=now()))
    is_problem(dock.submit(parts), 401)
    dock.tokens["me"], made = dock.store.create_token("me")
    assert dock.submit(parts).status_code == 201
    dock.store.revoke_token(made.number)
    is_problem(dock.submit(files(specification(2))), 401)


def test_a_token_is_kept_nowhere(tmp_path):
    with dock(tmp_path) as found:
        token = found.tokens["me"]
        found.submit(files(specification(1)))
        assert len(token) >= 43
    held = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert token.encode() not in held
    assert hashlib.sha256(token.encode()).hexdigest().encode() in held


@pytest.mark.parametrize("key", [None, "", "x" * 201, "a b"])
def test_keys_that_are_none(dock, key):
    headers = dock.headers(**({} if key is None else {"Idempotency-Key": key}))
    answer = dock.client.post("/v1/learnwares", files=files(specification(1)), headers=headers)
    is_problem(answer, 400, "Idempotency-Key")


def test_specifications_that_may_not_be_submitted(dock):
    is_problem(dock.submit(files(specification(1, "task"))), 422, "task")
    zero = specification(1)
    empty = type(zero)(
        **{
            name: getattr(zero, name)
            for name in ("kind", "space", "method", "guarantees", "created")
        },
        factors={"fc": zero.factors["fc"] * 0.0},
    )
    is_problem(dock.submit(files(empty)), 422, "zero")
    is_problem(dock.search(empty), 422, "zero")
    is_problem(dock.submit({"card": card()}), 422, "specification")
    is_problem(dock.submit({"specification": specification(1).to_bytes()}), 422, "card")


def claimed(held):
    return specification(1, guarantees=(held,))


def shared(**more):
    return {"evidence": "theorem", "source": "test", "assumptions": (), **more}


@pytest.mark.parametrize(
    "held",
    [
        GaussianDP(mu=float("inf"), adjacency="replace", **shared()),
        ApproximateDP(epsilon=float("inf"), delta=0.0, adjacency="replace", **shared()),
        InformationBound(nats=float("inf"), secret="rows", **shared()),
        GaussianDP(mu=1.0, adjacency="replace", **shared(assumptions=("VOID: a seed",))),
    ],
)
@pytest.mark.parametrize("without", ["refuse", "accept", "quarantine"])
def test_guarantees_that_are_none_are_refused_whatever_the_policy(tmp_path, held, without):
    with dock(tmp_path, DockSettings(policy=AdmissionPolicy(without=without))) as found:
        is_problem(found.submit(files(claimed(held))), 422, "guarantee")


def test_a_guarantee_of_a_type_that_is_none(dock):
    content = specification(1).to_bytes()
    forged = content.replace(b"GaussianDP", b"GaussianXX")
    is_problem(dock.submit({"specification": forged, "card": card()}), 422, "type")


def test_guarantees_beyond_the_limits_are_refused(tmp_path):
    with dock(tmp_path, DockSettings(policy=AdmissionPolicy(max_epsilon=1.0))) as found:
        is_problem(found.submit(files(specification(1))), 422, "at most 1 is asked")
    with dock(tmp_path, DockSettings(policy=AdmissionPolicy(max_advantage=0.1))) as found:
        is_problem(found.submit(files(specification(1))), 422, "advantage")


@pytest.mark.parametrize(
    "content", [b"", b"null", b"[]", b"{}", b'{"form": {}}', b'{"a": NaN}', b"[" * 5000, b"\xff"]
)
def test_releases_that_are_none(dock, content):
    # nothing is left to be finalised where the recursion is deepest
    gc.collect()
    is_problem(dock.submit(files(specification(1), release=content)), 422)
    nothing_kept(dock)


def test_filters_and_reasons_that_no_record_holds(dock):
    is_problem(dock.client.get("/v1/learnwares", params={"tag": "a\x00b"}), 422)
    place = dock.submit(files(specification(1))).headers["location"]
    long = dock.client.delete(place, headers=dock.headers(), params={"reason": "x" * 501})
    is_problem(long, 422)
    is_problem(dock.client.delete(place, headers=dock.headers(), params={"reason": "\x1b[2J"}), 422)
