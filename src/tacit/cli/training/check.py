"""``tacit training check``: how each layer of a model gives the gradient of every example."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.text import Text

from tacit.cli.options import Force, Json
from tacit.cli.output import json_output
from tacit.statistics.user_code import query_error

WANTED = "a function of your own as module:function, which returns (model, inputs, losses)"


def check(
    model: Annotated[
        str,
        typer.Argument(
            help="module:function that returns (model, inputs, losses); losses(model, inputs) is "
            "one number for each example."
        ),
    ],
    json: Json = None,
    force: Force = False,
) -> None:
    """Show how each layer finds the gradient of every example; exit status 1 where one is wrong.

    A layer with a rule costs little; one that is run again for each example costs a pass of its
    own. Gradients of the first and the last example are compared with passes of each alone.
    """
    output = json_output(json, force)
    network, inputs, losses = _made(model)
    from tacit.training import check_model

    found = check_model(network, inputs, losses)
    for line in str(found).splitlines():
        output.console.print(Text(line, "bold red" if " WRONG by " in line else ""))
    layers = [asdict(one) for one in found.layers]
    private, plain = found.seconds
    output.write(
        {
            "right": found.right,
            "layers": layers,
            "frozen": found.frozen,
            "seconds": {"examples": private, "plain": plain},
            "double": found.double,
        }
    )
    output.tell()
    raise typer.Exit(0 if found.right else 1)


def _made(name: str) -> tuple[Any, Any, Any]:
    """Return what the user's function returns."""
    module, colon, function = name.partition(":")
    if not colon or not all(one.isidentifier() for one in f"{module}.{function}".split(".")):
        raise ValueError(f"MODEL: expected {WANTED}, got {name!r}")
    # found beside the caller
    sys.path.insert(0, os.getcwd())
    try:
        made = getattr(import_module(module), function, None)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        # of another module it is the user's own that fails
        if missing is not None and f"{module}.".startswith(f"{missing}."):
            raise ValueError(f"MODEL: expected {WANTED}; there is no {name!r}") from None
        raise query_error(f"MODEL {name}", error, " while its module was imported") from error
    if made is None:
        raise ValueError(f"MODEL: expected {WANTED}; there is no {name!r}")
    try:
        found = made()
    except (Exception, SystemExit) as error:
        raise query_error(f"MODEL {name}", error) from error
    if not isinstance(found, tuple) or len(found) != 3 or not callable(found[2]):
        raise ValueError(f"MODEL: expected {WANTED}, got one that returns {type(found).__name__}")
    return found
