"""Kinds of release: what a workflow says of its own once, and everything else reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tacit._ground.entry_points import EntryPoint, entry_points
from tacit._ground.reprs import shown

# The group of entry points under which a distribution names its kinds.
GROUP = "tacit.kinds"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What report, gate, ledger and commands ask of a kind of release.

    Attributes:
        name: as a release has it, and as its entry point is named.
        details: the frozen value that a workflow keeps beside the fields that all releases have.
        recompute: works out again from the fields and the details what they determine, and raises
            ``ValueError`` where they disagree; it returns what could not be worked out, in words
            that end a sentence, empty where everything was.
        sections: ``module:function`` that returns the parts of the page that are the kind's own,
            imported when a page is made; None for none.
        proof: ``module:function`` that returns the proof of a release: what a checker that shares
            no code works its guarantees out from; None for none.
        record: what one record is, as the end of "One record is …"; empty where the adjacency of
            the promise says it.
        kept: what is released where it is no numbers, and where it is kept, in words that end a
            sentence; empty where it is in the release, or is the file that carries it.
        caution: what the promise is not, in a sentence that stands right under its title; empty
            for none.
        rows: holds a file of rows against the release that it carries, and returns what it cannot
            as ``recompute`` does; None where no file of rows carries such a release.
    """

    name: str
    details: Any
    recompute: Callable[[Any], str]
    sections: str | None = None
    proof: str | None = None
    record: str = ""
    kept: str = ""
    caution: str = ""
    rows: Callable[[Any, Path], str] | None = None


def kind_named(name: str) -> Kind:
    """Return the kind of a name, from whichever distribution brings it.

    Raises:
        ValueError: no installed distribution has it.

    Example:
        >>> kind_named("prophecy")
        Traceback (most recent call last):
        ValueError: release.kind: expected one that is installed, got 'prophecy'
    """
    place = known_kinds().get(name)
    if place is None:
        raise ValueError(f"release.kind: expected one that is installed, got {shown(name)}")
    kind = place.load()
    if not isinstance(kind, Kind) or kind.name != name:
        raise ValueError(f"release.kind: the distribution that brings {name!r} brings another")
    return kind


@cache
def known_kinds() -> Mapping[str, EntryPoint]:
    """Return where every kind that is installed is found, by name.

    Raises:
        ValueError: two distributions bring one of the same name.
    """
    found: dict[str, EntryPoint] = {}
    for place in entry_points(GROUP):
        if found.setdefault(place.name, place).value != place.value:
            raise ValueError(f"release.kind: two distributions bring {place.name!r}")
    return found
