"""A dock's application and the server that runs it."""

from __future__ import annotations

import math
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from tacit._ground.checks import integer
from tacit._ground.lazy import install_with
from tacit_dock.settings import DockSettings
from tacit_dock.store import DockStore

if TYPE_CHECKING:
    from fastapi import FastAPI
    from uvicorn import Server

NEEDED = ("fastapi", "uvicorn", "python_multipart", "yaml", "markdown_it")
BACKLOG = 512
# Of all kinds, idle ones too; what comes beside them is told to come again.
MOST_CONNECTIONS = 8192
# Files beside connections: the database, contents that arrive or are read, and the connections that
# are taken together before one of them can be closed. Without any left nothing is answered.
SPARE_FILES, FEWEST = 1024 + BACKLOG, 64
LONGEST_HEAD = 64 << 10
STOP_SECONDS = 30


def create_application(store: DockStore, settings: DockSettings | None = None) -> FastAPI:
    """Return the FastAPI application of a dock.

    Args:
        store: of the learnwares.
        settings: limits and policy; the defaults when left out.

    Returns:
        An ASGI application; its index is made when it starts.

    Raises:
        ImportError: what the extra ``dock`` brings is missing.

    Example:
        >>> import tempfile
        >>> from tacit_dock import DockStore, create_application
        >>> with tempfile.TemporaryDirectory() as folder, DockStore(folder) as store:
        ...     create_application(store).title
        'Tacit dock'
    """
    check_installed()
    from tacit_dock.api.application import application

    return application(store, DockSettings() if settings is None else settings)


def check_installed() -> None:
    """Refuse to go on without the packages that the extra brings.

    Raises:
        ImportError: the first that is missing, and how it is installed.
    """
    import importlib.util

    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            raise ImportError(f"the dock needs {name}: {install_with('dock')}")


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        ValueError: the port is taken or forbidden, or the host is none of this machine.
    """
    integer("port", port, minimum=0, maximum=65535)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ValueError(f"host: {host!r} is no address of this machine ({error})") from None
    try:
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise ValueError(f"port: cannot listen on {host}:{port} ({error.strerror})") from None
    return listening


def serve(store: DockStore, settings: DockSettings, listening: socket.socket) -> None:
    """Answer requests until the process is told to stop; those under way are finished.

    Args:
        store: of the learnwares.
        settings: limits and policy.
        listening: socket that `listen` returned.
    """
    app = create_application(store, settings)
    from tacit_dock.api.guard import log_to_stderr

    log_to_stderr()
    server_of(app, settings).run(sockets=[listening])


def most_connections() -> int:
    """Take as many files as the system allows; return how many of them may be connections.

    One too many is closed at once: a server that finds no file for it is busy with that alone.
    """
    try:
        import resource
    except ImportError:
        return MOST_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    left = MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else soft - SPARE_FILES
    return max(FEWEST, min(MOST_CONNECTIONS, left))


def server_of(app: FastAPI, settings: DockSettings) -> Server:
    """Return the server of an application, which closes what does not keep to its times."""
    import uvicorn

    from tacit_dock.api.protocol import protocol_of

    most = most_connections()
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=protocol_of(settings.header_seconds, settings.least_speed, most + most // 2),
            backlog=min(BACKLOG, most),
            log_config=None,
            access_log=False,
            server_header=False,
            # who sends for others is told by the operator, not believed
            proxy_headers=bool(settings.proxies),
            forwarded_allow_ips=list(settings.proxies),
            limit_concurrency=most,
            timeout_keep_alive=math.ceil(settings.header_seconds),
            timeout_graceful_shutdown=STOP_SECONDS,
            h11_max_incomplete_event_size=LONGEST_HEAD,
            ws="none",
            lifespan="on",
        )
    )
