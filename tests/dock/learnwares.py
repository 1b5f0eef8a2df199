"""Learnwares to submit, and a dock to submit them to."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from fastapi.testclient import TestClient

from tacit.documents import dumps
from tacit.guarantees.base import Guarantee
from tacit.releases import Release
from tacit.specifications import CertifiedSpecification, Specification, SpecificationSpace
from tacit.specifications.release import KIND, SECRET, bare_note, certified, notes_of
from tacit.specifications.schedule import StepSchedule
from tacit_dock import DockSettings, DockStore, create_application, examine
from tacit_dock.blobs import Upload

SPACE = SpecificationSpace(
    backbone="sha256:0",
    layers=("fc",),
    shapes=((16, 2),),
    factor="seed:7",
    subspace="none",
    output="scatter",
)
OCTETS = {"Content-Type": "application/octet-stream"}
MU = 0.5
PRIVATE = certified(MU, 1e-5, "labels")
CREATED = "2026-01-02T03:04:05+00:00"


def specification(
    seed: int,
    kind: str = "model",
    *,
    space: SpecificationSpace = SPACE,
    guarantees: tuple[Guarantee, ...] = PRIVATE,
    noise: float = 0.0,
) -> Specification:
    """Return the direction of a seed, with noise where it is asked for."""
    source = np.random.default_rng(seed)
    notes = notes_of(MU if guarantees else math.inf, space.output, StepSchedule())
    factors = {
        name: source.normal(size=shape)
        for name, shape in zip(space.layers, space.shapes, strict=True)
    }
    other = np.random.default_rng(seed + 10**6)
    factors = {n: value + noise * other.normal(size=value.shape) for n, value in factors.items()}
    return Specification(
        kind=kind,
        space=space,
        factors=factors,
        method="dp" if guarantees else "compact",
        guarantees=guarantees,
        created=CREATED,
        notes=notes,
    )


def release(made: Specification, **changes: Any) -> Release[CertifiedSpecification]:
    """Return the release that a specification comes with; details and fields may be others."""
    bare = not made.guarantees
    own = CertifiedSpecification.__dataclass_fields__
    details = CertifiedSpecification(
        **{
            "specification": made,
            "backbone": "tacit/vision",
            "records": 100,
            "classes": 2,
            "mu": math.inf if bare else MU,
            "delta": 1e-5,
            "targets": "labels",
            "schedule": StepSchedule(),
            **{name: value for name, value in changes.items() if name in own},
        }
    )
    fields = {
        "kind": KIND,
        "title": "A specification",
        "secret": SECRET,
        "method": made.method,
        "guarantees": made.guarantees,
        "details": details,
        "reproducible": False,
        "withheld": bare_note(made.space.output) if bare else "",
        "digests": details.digests,
        "notes": made.notes,
        "created": CREATED,
        **{name: value for name, value in changes.items() if name not in own},
    }
    return Release(**fields)


def card(
    title: str = "Digits", tags: tuple[str, ...] = ("mnist",), modality: str = "image"
) -> bytes:
    listed = ", ".join(tags)
    head = f"title: {title}\nmodality: {modality}\ntags: [{listed}]\n"
    return f"---\n{head}---\nTells digits.\n".encode()


def weights(tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]] | None = None) -> bytes:
    """Return a safetensors file, written here and not by the library."""
    if tensors is None:
        tensors = {"weight": ("F32", (2, 2), bytes(16))}
    header: dict[str, Any] = {}
    at = 0
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [at, at + len(content)],
        }
        at += len(content)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(c for _, _, c in tensors.values())


def files(made: Specification, **more: bytes) -> dict[str, bytes]:
    """Return the parts of a submission; with its release where it claims something."""
    claimed = {"release": dumps(release(made).to_dict()).encode()} if made.guarantees else {}
    return {"specification": made.to_bytes(), "card": card(), **claimed, **more}


def keep(
    store: DockStore,
    parts: Mapping[str, bytes],
    developer: str = "me",
    key: str = "key",
    settings: DockSettings | None = None,
) -> dict[str, Any]:
    """Submit to a store without a server."""
    settings = DockSettings() if settings is None else settings
    uploads: dict[str, Upload] = {}
    try:
        for name, content in parts.items():
            uploads[name] = store.blobs.upload(name, 1 << 30)
            uploads[name].write(content)
        return store.submit(examine(uploads, {}, settings), developer, key, settings)
    finally:
        for upload in uploads.values():
            upload.discard()


class Dock:
    """A client of an application, with tokens of two developers."""

    def __init__(self, client: TestClient, store: DockStore) -> None:
        self.client, self.store = client, store
        self.tokens = {name: store.create_token(name)[0] for name in ("me", "other")}
        self._keys = 0

    def headers(self, developer: str = "me", **more: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[developer]}", **more}

    def submit(
        self,
        parts: Mapping[str, Any],
        *,
        key: str | None = None,
        developer: str = "me",
        data: Mapping[str, str] | None = None,
        **more: str,
    ) -> Any:
        self._keys += 1
        headers = self.headers(developer, **{"Idempotency-Key": key or f"key-{self._keys}", **more})
        return self.client.post("/v1/learnwares", files=parts, data=data, headers=headers)

    def search(self, query: Specification | bytes, **filters: Any) -> Any:
        content = query if isinstance(query, bytes) else query.to_bytes()
        return self.client.post("/v1/search", content=content, headers=OCTETS, params=filters)


@contextmanager
def dock(
    folder: Path, settings: DockSettings | None = None, database: str | None = None
) -> Iterator[Dock]:
    """Start an application on a folder."""
    with DockStore(folder, database) as store:
        app = create_application(store, settings)
        with TestClient(app, raise_server_exceptions=False) as client:
            yield Dock(client, store)


def is_problem(answer: Any, status: int, *parts: str) -> None:
    """An RFC 9457 body of this status, whose sentence has these parts."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told["status"] == status
    assert {"type", "title", "detail", "instance"} <= set(told)
    assert "Traceback" not in answer.text
    for part in parts:
        assert part in told["detail"], told["detail"]
