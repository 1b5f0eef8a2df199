"""Which tests stand behind which command and which kind of release."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

import typer

Test = TypeVar("Test", bound=Callable[..., None])

CASES: dict[str, list[str]] = defaultdict(list)

# Commands that hold no secret, or are the holder's own tools and publish nothing.
SILENT = {
    "account": "computes from its flags",
    "audit store": "the holder's own measurement, and publishes nothing",
    "dock": "the server and its client; what a client sends is tested where it is sent",
    "doctor": "looks at the installation, and at no data",
    "gate": "reads a stored release, and tells its holder",
    "hidden attack": "the holder's own measurement, and publishes nothing",
    "hidden decode": "reads released codes alone",
    "hidden features": "the holder's own measurement, and publishes nothing",
    "hidden fit": "fits on public vectors and texts alone",
    "hidden geometry": "the holder's own measurement, and publishes nothing",
    "hidden sweep": "the holder's own measurement, and publishes nothing",
    "ledger": "the holder's own book",
    "model train": "trains on a public text",
    "show": "reads a stored release, and tells its holder",
    "training check": "passes examples of the holder's own through a model, and publishes nothing",
    "verify": "reads stored files, and tells whoever holds them",
}


def tells_nothing_beside(*names: str) -> Callable[[Test], Test]:
    """Enter a test for commands (``"hidden encode"``) and kinds of release (``"hidden-codes"``)."""
    if not names:
        raise ValueError("tells_nothing_beside: expected commands or kinds of release, got none")

    def register(test: Test) -> Test:
        if not test.__name__.startswith("test_"):
            raise ValueError(f"tells_nothing_beside: expected a test, got {test.__name__}")
        for name in names:
            CASES[name].append(f"{test.__module__}.{test.__name__}")
        return test

    return register


def is_silent(command: str) -> bool:
    """Whether a command, or the group it is in, is listed as one that tells nothing of a secret."""
    words = command.split()
    return any(" ".join(words[:count]) in SILENT for count in range(1, len(words) + 1))


def commands(group: Any, prefix: tuple[str, ...] = (), above: Any = None) -> list[str]:
    """Return every command below a group, spelled as it is typed."""
    found = []
    context = typer.Context(group, info_name=group.name, parent=above)
    # those that are imported when they are asked for, and the one that is not named
    for name in sorted({*group.list_commands(context), *group.commands}):
        command = group.get_command(context, name)
        # the group's own command has no name that is typed
        path = prefix if name == "/" else (*prefix, name)
        if hasattr(command, "commands"):
            found += commands(command, path, context)
        else:
            found.append(" ".join(path))
    return found
