"""A function of the caller's own file, named as FILE.py:FUNCTION."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def function_of(flag: str, named: str) -> Callable[..., Any]:
    """Return a function of a Python file.

    Args:
        flag: what a ValueError calls it.
        named: ``FILE.py:FUNCTION``.

    Raises:
        ValueError: the file or the function is not there, or running the file fails.
    """
    place, _, name = named.rpartition(":")
    if not place.endswith(".py") or not name.isidentifier():
        raise ValueError(f"{flag}: expected FILE.py:FUNCTION, got {named!r}")
    path = Path(place)
    if not path.is_file():
        raise ValueError(f"{flag}: there is no file {place}")
    described = importlib.util.spec_from_file_location(f"_tacit_caller_{path.stem}", path)
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    # dataclasses look their module up by its name
    sys.modules[described.name] = module
    try:
        described.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{flag}: running {place} raised {type(error).__name__}") from error
    found = getattr(module, name, None)
    if not callable(found):
        raise ValueError(f"{flag}: expected a function {name!r} in {place}, got none")
    function: Callable[..., Any] = found
    return function
