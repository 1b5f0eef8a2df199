"""The application of a dock: routes, limits and refusals around a store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from tacit import __version__
from tacit_dock.api import problems
from tacit_dock.api.contents import router as contents
from tacit_dock.api.guard import Guard, WatchedApplication, write
from tacit_dock.api.learnwares import router as learnwares
from tacit_dock.api.rates import Rates
from tacit_dock.api.routes import check_routes, describe_security
from tacit_dock.api.searching import router as searching
from tacit_dock.api.shapes import ProblemShape
from tacit_dock.api.state import Dock
from tacit_dock.api.watching import router as watching
from tacit_dock.errors import RefusedError, UnavailableError
from tacit_dock.pages.mounting import mount
from tacit_dock.search.index import Index
from tacit_dock.settings import DockSettings
from tacit_dock.store import DockStore

DESCRIPTION = (
    "Learnwares: models with a specification of what they can do and a statement of what the "
    "specification tells about their data. Every refusal is an RFC 9457 problem."
)

# All that is lost by one is time at the next start.
SETTLED_LATER = (OSError, RefusedError, UnavailableError)


def application(store: DockStore, settings: DockSettings) -> FastAPI:
    """Return the application: as `tacit_dock.create_application`."""
    index = Index(
        store,
        settings.index,
        lambda name, error: write("unreadable", learnware=name, error=error),
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        removed = await run_in_threadpool(store.collect)
        await run_in_threadpool(index.refresh)
        await run_in_threadpool(store.reserve.fill, settings.reserve)
        app.state.ready = True
        write("started", orphans_removed=removed, index=index.status())
        settling = asyncio.create_task(run_in_threadpool(_settle, index))
        yield
        app.state.ready = False
        index.stop()
        await settling
        write("stopped")

    app = FastAPI(
        title="Tacit dock",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        # their pages would load scripts from elsewhere
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,
    )
    app.state.dock = Dock(store, settings, index, Rates(settings.requests_per_minute))
    problems.install(app)
    app.state.ready, app.state.watched = False, WatchedApplication(settings)
    routers = (learnwares, contents, searching, watching)
    for router in routers:
        app.include_router(router)
    check_routes((*routers, *mount(app)), app.routes)
    _describe(app)
    app.add_middleware(Guard, settings=settings, watched=app.state.watched)
    return app


def _settle(index: Index) -> None:
    """Put on the disk what the next start is quick by, and read what this one was quick by."""
    try:
        if written := index.keep():
            write("kept", rows=written)
    except SETTLED_LATER as error:
        write("not kept", error=type(error).__name__)
    # a full disk is no reason to believe what was kept
    if checked := index.status()["unchecked"]:
        try:
            write("checked", rows=checked, wrong=index.check())
        except SETTLED_LATER as error:
            write("not kept", error=type(error).__name__)


def _describe(app: FastAPI) -> None:
    """Add what a refusal looks like to the description, which every path refers to."""
    described = app.openapi

    def openapi() -> dict[str, Any]:
        told = described()
        schemas = told.setdefault("components", {}).setdefault("schemas", {})
        schemas["Problem"] = ProblemShape.model_json_schema()
        describe_security(told)
        return told

    app.openapi = openapi  # type: ignore[method-assign]
