"""Example tasks of a dock: specifications that its page searches with at one click."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit._ground.files import write_bytes_atomic
from tacit.documents import dumps, loads
from tacit_dock.store import DockStore
from tacit_dock.texts import check_text

FOLDER = "examples"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,119}")
LONGEST = 200


@dataclass(frozen=True)
class Example:
    """A task that a visitor may try.

    Attributes:
        name: of its file and in the address.
        title: one line.
        content: the bytes of its specification.
    """

    name: str
    title: str
    content: bytes


def keep_example(store: DockStore, example: Example) -> None:
    """Keep an example task beside the contents of a dock.

    Raises:
        ValueError: its name is none of small letters, digits, dots and dashes.
    """
    if not NAME.fullmatch(example.name):
        raise ValueError("name: expected small letters, digits, dots and dashes")
    check_text("title", example.title, longest=LONGEST)
    folder = _folder(store)
    folder.mkdir(exist_ok=True, mode=0o700)
    write_bytes_atomic(
        "example", folder / f"{example.name}.safetensors", example.content, mode=0o600
    )
    # an example is listed once it has a title, and then its content is there
    title = dumps({"title": example.title}, name="example").encode()
    write_bytes_atomic("example", folder / f"{example.name}.json", title, mode=0o600)


def examples(store: DockStore) -> tuple[tuple[str, str], ...]:
    """Return the name and the title of every example task, by name."""
    found = []
    for path in sorted(_folder(store).glob("*.json")):
        if NAME.fullmatch(path.stem):
            told: Any = loads(path.read_text("utf-8"), name="example", source="its title")
            found.append((path.stem, str(told["title"])))
    return tuple(found)


def find_example(store: DockStore, name: str) -> Example | None:
    """Return an example task by its name, None where there is none."""
    title = dict(examples(store)).get(name)
    if title is None:
        return None
    return Example(name, title, (_folder(store) / f"{name}.safetensors").read_bytes())


def _folder(store: DockStore) -> Path:
    return store.blobs.folder.parent / FOLDER
