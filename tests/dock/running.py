"""A dock that answers on a port, in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tacit_dock import DockSettings, DockStore, create_application, listen
from tacit_dock.serving import server_of


@dataclass(frozen=True)
class Running:
    """Where it is, its store and the token of a developer."""

    url: str
    store: DockStore
    token: str


@contextmanager
def running(folder: Path, settings: DockSettings | None = None) -> Iterator[Running]:
    """Serve a dock until the block ends."""
    with DockStore(folder) as store, listen("127.0.0.1", 0) as listening:
        app = create_application(store, settings)
        server = server_of(app, settings or DockSettings())
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        try:
            yield Running(url, store, store.create_token("me")[0])
        finally:
            server.should_exit = True
            thread.join(30)
