"""What the requests of one application share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import Request

from tacit.compute import available_workers
from tacit_dock.api.rates import Rates
from tacit_dock.search.index import Index
from tacit_dock.settings import DockSettings
from tacit_dock.store import DockStore

T = TypeVar("T")


def _one_a_core() -> CapacityLimiter:
    return CapacityLimiter(available_workers())


@dataclass(frozen=True)
class Dock:
    """The store, the index and the limits of an application."""

    store: DockStore
    settings: DockSettings
    index: Index
    rates: Rates
    # more threads than cores only take turns, and whoever came first is no longer done first
    comparing: CapacityLimiter = field(default_factory=_one_a_core)

    async def compared(self, work: Callable[[], T]) -> T:
        """Return what a search works out in a thread, in the order in which searches came."""
        return await to_thread.run_sync(work, limiter=self.comparing)


def dock_of(request: Request) -> Dock:
    """Return what the application of a request was made with."""
    found: Dock = request.app.state.dock
    return found
