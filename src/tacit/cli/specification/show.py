"""``tacit specification show``: what a file describes and what is certified of it."""

from __future__ import annotations

from typing import Annotated

import typer

from tacit.cli.console import line
from tacit.cli.options import Force, Json
from tacit.cli.output import json_output


def show(
    file: Annotated[str, typer.Argument(help="File that `tacit specification make` wrote.")],
    json: Json = None,
    force: Force = False,
) -> None:
    """Print what a specification is about, what it may be compared with, and what is certified."""
    from tacit._ground.files import read_bytes
    from tacit.specifications import specification_from_bytes

    output = json_output(json, force, {"FILE": file})
    held = specification_from_bytes(read_bytes(file, file), name=file)
    console, space = output.console, held.space
    told = [guarantee.describe() for guarantee in held.guarantees]
    for label, text in (
        ("describes", f"a {held.kind}, method {held.method}, {held.created}"),
        *(("certified", text) for text in told or ["nothing: it is not to be published"]),
        *([("pictures", held.inputs)] if held.inputs else []),
        ("numbers", f"{space.size:,} of {', '.join(space.layers)}"),
        ("space", f"{space.digest[:23]}…: backbone {space.backbone[:23]}…, A {space.factor}"),
        ("output", f"{space.output}, subspace {space.subspace[:23]}"),
        ("revision", held.revision),
        *(("note", note) for note in held.notes),
    ):
        line(console, label, text)
    output.write({**held.manifest(), "revision": held.revision, "space_digest": space.digest})
    output.tell()
