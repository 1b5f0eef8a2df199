"""``tacit dock submit | search | fetch | withdraw | list``: what a user asks, and of which dock."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from tacit.cli.console import in_one_line, line
from tacit.cli.options import Force, Json, grouped
from tacit.cli.output import json_output
from tacit_dock.connection import as_docks_answer

if TYPE_CHECKING:
    from tacit_dock import DockClient


HERE = "http://127.0.0.1:8765"
URL, TOKEN = "TACIT_DOCK_URL", "TACIT_DOCK_TOKEN"
LONGEST = 1000


@dataclass(frozen=True, kw_only=True)
class Address:
    """The flags of every command that asks a dock."""

    url: Annotated[
        str | None,
        typer.Option(help=f"Of the dock; else ${URL}, else {HERE}.", show_default=False),
    ] = None
    token_file: Annotated[
        str | None,
        typer.Option(help=f"File that holds the token alone; else ${TOKEN}.", show_default=False),
    ] = None
    allow_http: Annotated[
        bool, typer.Option("--allow-http", help="Send the token in the clear to another machine.")
    ] = False
    json: Json = None

    def client(self) -> DockClient:
        """Return a connection to the dock."""
        from tacit_dock import DockClient

        url = self.url or os.environ.get(URL) or HERE
        try:
            return DockClient(url, self._token(), allow_http=self.allow_http)
        except ImportError as error:
            raise ValueError(str(error)) from None

    def _token(self) -> str | None:
        if self.token_file is None:
            return os.environ.get(TOKEN, "").strip() or None
        from tacit._ground.files import read_bytes

        content = read_bytes("--token-file", self.token_file)
        if os.name == "posix" and os.stat(self.token_file).st_mode & 0o077:
            raise ValueError(
                f"--token-file: expected a file that nobody else can read, got {self.token_file}: "
                "chmod 600 it"
            )
        if len(content) > LONGEST or not content.strip().isascii():
            raise ValueError("--token-file: expected a file that holds the token alone")
        return content.decode("ascii").strip()


Identifier = Annotated[str, typer.Argument(metavar="ID", help="Of the learnware.")]


@dataclass(frozen=True, kw_only=True)
class AskedFilter:
    """The flags of what is asked for."""

    tag: Annotated[str | None, typer.Option(help="Of the card.")] = None
    modality: Annotated[str | None, typer.Option(help="Of the card: image, text.")] = None
    developer: Annotated[str | None, typer.Option(help="Who submitted.")] = None
    guarantee: Annotated[
        str | None, typer.Option(help="any, none or a type, such as GaussianDP.")
    ] = None
    license: Annotated[str | None, typer.Option(help="Of the card, such as mit.")] = None
    language: Annotated[str | None, typer.Option(help="Of the card, such as en.")] = None
    for_task: Annotated[
        str | None,
        typer.Option(help="Of the card, such as image-classification."),
    ] = None
    words: Annotated[
        str | None,
        typer.Option(
            help="Words, or beginnings of words, that the title, the tags or the card hold."
        ),
    ] = None
    max_epsilon: Annotated[
        float | None, typer.Option(help="Largest ε at δ = 1e-5 of all revisions of a learnware.")
    ] = None


Unprotected = Annotated[
    bool,
    typer.Option(
        "--unprotected",
        help="Send a specification without a guarantee, from which its records may be read.",
    ),
]


@grouped
def submit(
    specification: Annotated[
        str,
        typer.Argument(
            help="File of the specification (safetensors), or a folder with "
            "specification, card and model."
        ),
    ],
    card: Annotated[
        str | None,
        typer.Argument(help="File of the card: Markdown below a YAML head with a title."),
    ] = None,
    *,
    model: Annotated[str | None, typer.Option(help="Model to keep, safetensors.")] = None,
    release: Annotated[str | None, typer.Option(help="JSON of the release.")] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--idempotency-key",
            help="Key of this submission. What is sent twice under one key is kept once.",
        ),
    ] = None,
    unprotected: Unprotected = False,
    address: Address,
    force: Force = False,
) -> None:
    """Submit a learnware: files, or a folder as Hugging Face has it.

    In a folder the specification is specification.safetensors, beside its release
    specification.json; README.md is the card and model.safetensors the model.
    """
    from tacit_dock.client import files_in

    held = files_in(specification) if os.path.isdir(specification) else {}
    others = {
        "SPECIFICATION": str(held.get("specification", specification)),
        "CARD": card or _path(held, "card"),
        "--model": model or _path(held, "model"),
        "--release": release or _path(held, "release"),
    }
    output = json_output(address.json, force, others)
    with address.client() as dock:
        found = dock.submit(
            specification, card, model=model, release=release, key=key, unprotected=unprotected
        )
        url = dock.url
    with as_docks_answer():
        line(output.console, str(found["status"]), f"{found['id']}: {found['policy']['reason']}")
    if held:
        line(output.console, "sent", ", ".join(os.path.basename(o) for o in others.values() if o))
    line(output.console, "revision", str(found["revision"]))
    line(output.console, "page", f"{url}/learnwares/{found['id']}")
    output.write(found)
    output.tell()


@grouped
def search(
    task: Annotated[str, typer.Argument(help="Specification of the task, safetensors.")],
    *,
    limit: Annotated[int, typer.Option(help="How many at most.", min=1, max=100)] = 10,
    unprotected: Unprotected = False,
    narrow: AskedFilter,
    address: Address,
    force: Force = False,
) -> None:
    """Find the models whose specifications are most similar to that of a task."""
    output = json_output(address.json, force, {"TASK": task})
    with address.client() as dock:
        found = dock.search(task, limit=limit, unprotected=unprotected, **vars(narrow))
    with as_docks_answer():
        verdict = found["verdict"]
        output.console.print(
            Text(in_one_line(str(verdict["sentence"])), "bold" if verdict["good_match"] else "red")
        )
        for note in found.get("notes", ()):
            line(output.console, "note", str(note))
        for item in found["items"]:
            start = f"{item['rank']:>4}  {item['similarity']:.3f}  {item['id']}  "
            told = in_one_line(f"{start}{item['title']}  ({_claim(item)})")
            output.console.print(Text(told))
    output.write(found)
    output.tell()


@grouped
def fetch(
    identifier: Identifier,
    folder: Annotated[
        str, typer.Argument(help="Folder to write to. It is made where it is missing.")
    ],
    *,
    revision: Annotated[
        str | None,
        typer.Option(
            help="Digest of a revision in the learnware's history. The newest when left out."
        ),
    ] = None,
    address: Address,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --json.")] = False,
) -> None:
    """Write specification, card and model to a folder, each held against its digest."""
    output = json_output(address.json, force)
    with address.client() as dock:
        fetched = dock.fetch(identifier, folder, revision=revision)
    with as_docks_answer():
        record = fetched.record
        line(output.console, "fetched", f"{record['title']}, by {record['developer']}")
        line(output.console, "revision", fetched.specification.revision)
        line(output.console, "guarantee", _claim(record))
    line(output.console, "folder", str(fetched.folder))
    if fetched.model is None:
        line(output.console, "model", "none is kept by this dock: ask its developer")
    output.write(fetched.record)
    output.tell()


@grouped
def withdraw(
    identifier: Identifier,
    *,
    reason: Annotated[str, typer.Option(help="For everyone to read.")] = "",
    address: Address,
    force: Force = False,
) -> None:
    """Withdraw your own learnware: its content is removed, time and reason stay."""
    output = json_output(address.json, force)
    with address.client() as dock:
        dock.withdraw(identifier, reason)
        trail = dock.history(identifier)
    with as_docks_answer():
        line(output.console, "withdrawn", f"{identifier}, {trail['withdrawal']['time']}")
    output.write({"id": identifier, **trail})
    output.tell()


@grouped
def show(
    *,
    limit: Annotated[int, typer.Option(help="How many at most.", min=1)] = 50,
    narrow: AskedFilter,
    address: Address,
    force: Force = False,
) -> None:
    """List the learnwares of a dock, the newest first."""
    from itertools import islice

    output = json_output(address.json, force)
    with address.client() as dock:
        items = list(islice(dock.list(**vars(narrow)), limit))
    if not items:
        output.console.print("No learnware is here, or none has all of that.")
    with as_docks_answer():
        for item in items:
            start = f"{item['id']}  {item['created'][:10]}  {item['developer']:<16}  "
            told = in_one_line(f"{start}{item['title']}  ({_claim(item)})")
            output.console.print(Text(told))
    output.write({"items": items})
    output.tell()


def _claim(item: Mapping[str, Any]) -> str:
    from tacit_dock.promised import claim

    held = item["guarantee"]
    return claim(held) if held is None else f"{claim(held)}, claimed"


def _path(held: Mapping[str, Path], name: str) -> str | None:
    return str(held[name]) if name in held else None
