"""``tacit dock serve``: answer submissions and searches over HTTP."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer
from rich.text import Text

from tacit.cli.completion import offered
from tacit.cli.console import consoles, line
from tacit.cli.options import grouped
from tacit_dock.cli.place import FOLDER, Database, Folder, open_store

MEBIBYTE = 1 << 20
LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")


@dataclass(frozen=True, kw_only=True)
class ListeningFlags:
    """Where it listens, and to whom it answers."""

    panel: ClassVar[str] = "Listening"

    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any free one.")] = 8765
    host_name: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of the host that requests may be addressed to; may be repeated. When left "
            "out any, or those of this machine where only this machine can reach it."
        ),
    ] = None
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            help="Address of a proxy in front, whose X-Forwarded-For and X-Forwarded-Proto are "
            "believed; may be repeated."
        ),
    ] = None
    metrics: Annotated[
        bool, typer.Option("--metrics", help="Tell counts and times at /metrics, for Prometheus.")
    ] = False
    index: Annotated[
        str,
        typer.Option(
            autocompletion=offered("auto", "exact", "quantised"),
            help="How it searches: auto (by size), exact, quantised.",
        ),
    ] = "auto"


@dataclass(frozen=True, kw_only=True)
class AdmissionFlags:
    """What is taken, and who may read."""

    panel: ClassVar[str] = "Admission"

    policy: Annotated[
        str,
        typer.Option(
            "--admission",
            autocompletion=offered("refuse", "accept", "quarantine"),
            help="Submissions without a guarantee, or with too weak a one: refuse, accept or "
            "quarantine them.",
        ),
    ] = "refuse"
    max_epsilon: Annotated[
        float,
        typer.Option(
            help="Largest ε of a submission that is accepted, at δ = 1e-5.", show_default="none"
        ),
    ] = math.inf
    max_advantage: Annotated[
        float,
        typer.Option(
            help="Largest advantage over blind guessing, at telling members from "
            "others, of a submission that is accepted."
        ),
    ] = 1.0
    private: Annotated[
        bool, typer.Option("--private", help="Ask for a token to read and to search, too.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class LimitFlags:
    """How much of everything."""

    panel: ClassVar[str] = "Limits"

    max_model: Annotated[int, typer.Option(help="Largest model, in MiB.")] = 512
    max_learnwares: Annotated[int, typer.Option(help="Learnwares of one developer.")] = 1000
    max_bytes: Annotated[int, typer.Option(help="MiB of one developer.")] = 16384
    requests: Annotated[int, typer.Option(help="Requests a minute of one developer.")] = 600
    concurrency: Annotated[int, typer.Option(help="Requests answered at a time.")] = 64


@grouped
def serve(
    *,
    folder: Folder = FOLDER,
    database: Database = None,
    listening: ListeningFlags,
    admission: AdmissionFlags,
    limits: LimitFlags,
) -> None:
    """Serve a dock until it is interrupted; requests under way are finished."""
    from tacit_dock import AdmissionPolicy, DockSettings, listen
    from tacit_dock import serve as run
    from tacit_dock.serving import check_installed

    settings = DockSettings(
        policy=AdmissionPolicy(
            without=admission.policy,  # type: ignore[arg-type]
            max_epsilon=admission.max_epsilon,
            max_advantage=admission.max_advantage,
        ),
        private=admission.private,
        metrics=listening.metrics,
        max_model=limits.max_model * MEBIBYTE,
        max_learnwares=limits.max_learnwares,
        max_bytes=limits.max_bytes * MEBIBYTE,
        requests_per_minute=limits.requests,
        concurrency=limits.concurrency,
        hosts=_hosts(listening.host, listening.host_name),
        proxies=_words("--proxy", listening.proxy),
        index=listening.index,  # type: ignore[arg-type]
    )
    try:
        check_installed()
    except ImportError as error:
        raise ValueError(str(error)) from None
    at = (listening.host, listening.port)
    with open_store(folder, database, create=True) as store, listen(*at) as socket:
        address = socket.getsockname()
        console = consoles(False)
        shown = f"[{address[0]}]" if ":" in address[0] else address[0]
        console.print(Text(f"The dock is at http://{shown}:{address[1]}/", "bold"))
        line(console, "folder", str(store.blobs.folder.parent))
        line(console, "database", store.database.label)
        line(console, "stop it", "Ctrl-C")
        run(store, settings, socket)


def _hosts(host: str, names: list[str] | None) -> tuple[str, ...]:
    """Return the names that are answered for: a page elsewhere may give this machine another."""
    if names:
        return _words("--host-name", names)
    return (*LOOPBACK, host) if host in LOOPBACK else ()


def _words(flag: str, words: list[str] | None) -> tuple[str, ...]:
    for word in words or ():
        if not word or set(word) & set(" /,@"):
            raise ValueError(f"{flag}: expected a name or an address, got {word!r}")
    return tuple(words or ())
