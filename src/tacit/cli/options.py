"""Flags that several commands share: a dataclass that a command takes as one argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

Json = Annotated[
    str | None,
    typer.Option("--json", metavar="PATH", help="JSON to write; - for standard output."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Print the guarantees and the errors to expect; draw and write nothing."
    ),
]
Seed = Annotated[
    int | None, typer.Option(help="Make the draw repeatable. This voids the guarantee.")
]
Attacked = Annotated[bool, typer.Option(help="Attack simulated releases and measure.")]
Report = Annotated[str | None, typer.Option(help="HTML report to write.")]
LedgerFile = Annotated[
    str | None, typer.Option(help="Ledger to spend from: a file or a database URL.")
]
Secret = Annotated[
    str | None, typer.Option(help="Name in the ledger; the rows' fingerprint when left out.")
]
NoBudget = Annotated[
    bool,
    typer.Option(
        "--no-budget", help="Release though the secret has no budget and others have one."
    ),
]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one flag for every field of the dataclasses among its arguments."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    flags = []
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if is_dataclass(kind):
            groups[parameter.name] = kind
            flags += _flags(kind)
        else:
            flags.append(_flag(parameter.name, parameter.default, kind))

    @wraps(command)
    def whole(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    whole.__annotations__ = {flag.name: flag.annotation for flag in flags}
    whole.__signature__ = inspect.Signature(flags)  # type: ignore[attr-defined]
    return whole


def _flags(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        _flag(
            field.name,
            inspect.Parameter.empty if field.default is MISSING else field.default,
            hints[field.name],
        )
        for field in fields(group)
    ]


def _flag(name: str, default: Any, kind: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
