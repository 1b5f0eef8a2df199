"""What installed distributions hook in with, read without the mail parser of importlib.metadata."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

INFO = (".dist-info", ".egg-info")


@dataclass(frozen=True)
class EntryPoint:
    """A name under which a distribution offers an object of a module of its own.

    Attributes:
        name: as the group that it stands in knows it.
        value: ``module:object``.
    """

    name: str
    value: str

    @property
    def module(self) -> str:
        """The module that holds the object."""
        return self.value.partition(":")[0].strip()

    @property
    def attr(self) -> str:
        """The object's name in its module."""
        return self.value.partition(":")[2].partition("[")[0].strip()

    def load(self) -> Any:
        """Return the object; its module is imported."""
        found: Any = import_module(self.module)
        for part in filter(None, self.attr.split(".")):
            found = getattr(found, part)
        return found


def entry_points(group: str) -> list[EntryPoint]:
    """Return what stands in a group, of the first distribution of each name on ``sys.path``.

    Example:
        >>> [place.value for place in entry_points("tacit.kinds") if place.name == "classifier"]
        ['tacit.classifiers.release:CLASSIFIER']
    """
    if any(os.path.isfile(place) for place in sys.path):
        # a zip file's distributions are the standard reader's
        from importlib import metadata

        standing = metadata.entry_points(group=group)
        return [EntryPoint(place.name, place.value) for place in standing]
    seen, found = set[str](), list[EntryPoint]()
    for folder, info in _distributions():
        name = info.rpartition(".")[0].partition("-")[0].lower().replace(".", "_")
        if name not in seen:
            seen.add(name)
            found += _standing(Path(folder, info, "entry_points.txt"), group)
    return found


def _distributions() -> Iterator[tuple[str, str]]:
    for folder in dict.fromkeys(place or os.curdir for place in sys.path):
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        yield from ((folder, name) for name in names if name.endswith(INFO))


def _standing(file: Path, group: str) -> Iterator[EntryPoint]:
    try:
        lines = file.read_text("utf-8").splitlines()
    except OSError:
        return
    section = ""
    for line in map(str.strip, lines):
        if line.startswith("["):
            section = line.strip("[] ")
        elif section == group and "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield EntryPoint(name.strip(), value.strip())
