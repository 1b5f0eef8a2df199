"""``tacit specification compare``: which of several models fits a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tacit.cli.console import line
from tacit.cli.options import Force, Json
from tacit.cli.output import json_output

if TYPE_CHECKING:
    from tacit.specifications import Specification


def compare(
    task: Annotated[str, typer.Argument(help="Specification of the task.")],
    models: Annotated[list[str], typer.Argument(help="Specifications of models.")],
    limit: Annotated[int, typer.Option(help="How many to show.")] = 10,
    json: Json = None,
    force: Force = False,
) -> None:
    """Rank models by the cosine of their specification and the task's, and say whether one fits.

    Files of another backbone, A, subspace or objective are refused, and not compared.
    """
    from tacit._ground.files import read_bytes
    from tacit.specifications import identify, specification_from_bytes

    def read(path: str) -> Specification:
        return specification_from_bytes(read_bytes(path, path), name=path)

    output = json_output(json, force, {"TASK": task})
    found = identify(read(task), {name: read(name) for name in models}, limit=limit)
    console = output.console
    console.print(Text(found.verdict.sentence, "bold" if found.verdict.good_match else "bold red"))
    for rank, match in enumerate(found.matches, start=1):
        # the last guarantee is (ε, δ)
        told = [held.describe() for held in match.specification.guarantees]
        line(console, f"{rank}", f"{match.similarity:+.3f}  {match.name}")
        line(console, "", told[-1] if told else "nothing is certified of this specification")
    output.write(
        {
            "compared": found.compared,
            "good_match": found.verdict.good_match,
            "threshold": found.verdict.threshold,
            "sentence": found.verdict.sentence,
            "matches": [
                {
                    "rank": rank,
                    "name": match.name,
                    "similarity": match.similarity,
                    "revision": match.specification.revision,
                    "guarantees": [held.to_dict() for held in match.specification.guarantees],
                }
                for rank, match in enumerate(found.matches, start=1)
            ],
        }
    )
    output.tell()
