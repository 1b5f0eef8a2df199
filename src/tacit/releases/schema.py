"""The format of stored releases as JSON Schema, made of the annotations that read and write it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tacit import codec
from tacit._ground.files import write_text_atomic
from tacit.documents import dumps
from tacit.releases.kinds import kind_named, known_kinds
from tacit.releases.release import ENVELOPE, Release

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def release_schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of a stored release of a kind.

    Args:
        kind: such as ``"classifier"``.

    Raises:
        ValueError: no installed distribution has the kind.

    Example:
        >>> sorted(release_schema("classifier")["properties"])[:4]
        ['assumptions', 'attacks', 'created', 'details']
    """
    whole = codec.schema(Release)
    details = codec.schema(kind_named(kind).details)
    fields = whole["$defs"].pop("Release")
    head = {"format": {"const": ENVELOPE.format}, "version": {"const": ENVELOPE.version}}
    inside = {name: part for name, part in details.items() if name != "$defs"}
    properties = {**fields["properties"], "kind": {"const": kind}, "details": inside}
    return {
        "$schema": DIALECT,
        "title": f"Tacit release: {kind}",
        **fields,
        "properties": {**head, **properties},
        "required": [*head, *fields["required"]],
        "$defs": {**whole["$defs"], **details["$defs"]},
    }


def write_schemas(folder: str | os.PathLike[str]) -> list[Path]:
    """Write the schema of every installed kind into a folder, as ``KIND.json``."""
    place = Path(os.fspath(folder))
    place.mkdir(parents=True, exist_ok=True)
    return [
        write_text_atomic(
            "folder", place / f"{name}.json", dumps(release_schema(name), indent=2) + "\n"
        )
        for name in sorted(known_kinds())
    ]
