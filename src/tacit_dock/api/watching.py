"""For whoever runs the dock: whether it lives, whether it is ready, and what it does."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tacit_dock.api.metrics import MEDIA
from tacit_dock.api.problems import Json
from tacit_dock.api.shapes import HealthShape, ReadyShape, problems
from tacit_dock.api.state import dock_of
from tacit_dock.errors import RefusedError

router = APIRouter(tags=["operation"])


@router.get("/v1/health", response_model=HealthShape, responses=problems())
def health(request: Request) -> Response:
    """Say that the dock answers, its database too; of a private dock nothing is counted here."""
    dock = dock_of(request)
    told = dock.store.health()
    if dock.settings.private:
        return Json({name: told[name] for name in ("status", "database")})
    return Json({**told, "index": dock.index.status()})


@router.get("/v1/ready", response_model=ReadyShape, responses=problems())
def ready(request: Request) -> Response:
    """Say whether requests should be sent here: 503 before the index is made and while stopping."""
    dock = dock_of(request)
    if not request.app.state.ready:
        raise RefusedError(503, "this server is starting or stopping", retry_after=1)
    dock.store.health()
    return Json({"status": "ready"})


@router.get("/metrics", include_in_schema=False)
def metrics(request: Request) -> Response:
    """Return counts and times in Prometheus's text format, where the operator asked for them."""
    dock = dock_of(request)
    if not dock.settings.metrics:
        raise RefusedError(404, "there is nothing at this path")
    watched, index = request.app.state.watched, dock.index.status()
    now = {
        **watched.now(),
        **{
            f"index_{name}": index[name] for name in ("learnwares", "spaces", "bytes", "unreadable")
        },
        "free_bytes": dock.store.blobs.free,
    }
    return Response(watched.metrics.text(now), media_type=MEDIA)
