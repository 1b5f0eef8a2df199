"""What the requests of one application share."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from tacit_dock.api.rates import Rates
from tacit_dock.search.index import Index
from tacit_dock.settings import DockSettings
from tacit_dock.store import DockStore


@dataclass(frozen=True)
class Dock:
    """The store, the index and the limits of an application."""

    store: DockStore
    settings: DockSettings
    index: Index
    rates: Rates


def dock_of(request: Request) -> Dock:
    """Return what the application of a request was made with."""
    found: Dock = request.app.state.dock
    return found
