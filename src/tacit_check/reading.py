"""The proof node of a file, read without trust: every surprise is a `RefusedFileError`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from flint import fmpq, fmpz

from tacit_check.balls import RefusedFileError

ADJACENCIES = ("add-remove", "replace", "inputs")
MOST_BYTES, MOST_CLAIMS, MOST_GIVEN = 32 << 20, 256, 256
# Characters of a sentence and of a number.
MOST_TEXT, LONGEST = 2000, 400
DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?", re.ASCII)
# What makes a value of what stands in a field, told the name of the field.
Field: TypeAlias = Callable[[Any, str], Any]
Fields: TypeAlias = Mapping[str, Field]


class Bare(str):
    """A JSON number as it is written: in a proof node it is one too many."""


@dataclass(frozen=True)
class Proof:
    """A proof node whose outside is in order."""

    adjacency: str
    mechanism: Any
    claims: list[Any]
    given: list[str]


def read(path: str | Path) -> Proof:
    """Return the proof node of a file."""
    return parse(contents(path))


def contents(path: str | Path) -> bytes:
    """Return the bytes of a file that is not too long."""
    try:
        with Path(path).open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise RefusedFileError(f"cannot be read ({type(error).__name__})") from None
    if len(content) > MOST_BYTES:
        raise RefusedFileError(f"more than {MOST_BYTES >> 20} MB")
    return content


def strict(content: bytes) -> Any:
    """Return what JSON holds, numbers as they are written; no name twice, no NaN."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise RefusedFileError("a name stands twice in one object")
        return found

    def constant(word: str) -> Any:
        raise RefusedFileError(f"{word} is not strict JSON")

    hooks: dict[str, Any] = {"object_pairs_hook": once, "parse_constant": constant}
    try:
        return json.loads(content.decode("utf-8"), parse_int=Bare, parse_float=Bare, **hooks)
    except RecursionError:
        raise RefusedFileError("nested too deeply") from None
    except ValueError:
        raise RefusedFileError("not strict JSON") from None


def parse(content: bytes) -> Proof:
    """Return the proof node of JSON."""
    whole = strict(content)
    node = whole.get("proof") if isinstance(whole, dict) else None
    if not isinstance(node, dict):
        raise RefusedFileError("no proof node: nothing is claimed that could be checked")
    found = fields(node, "proof", HEAD, {"given": listed(sentence, MOST_GIVEN, least=0)})
    return Proof(found["adjacency"], found["mechanism"], found["claims"], found.get("given", []))


def fields(node: Any, where: str, needed: Fields, optional: Fields | None = None) -> dict[str, Any]:
    """Return the values of a node; one with a name too many or too few is refused."""
    if not isinstance(node, dict):
        raise RefusedFileError(f"{where}: expected an object")
    known = {**needed, **(optional or {})}
    for name in needed:
        if name not in node:
            raise RefusedFileError(f"{where}: {name} is missing")
    for name in node:
        if name not in known:
            raise RefusedFileError(f"{where}: there is no {str(name)[:40]!r}")
    return {name: known[name](value, name) for name, value in node.items()}


def kind_of(node: Any, where: str, kinds: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the kind of a node, one of those known, and what else it holds."""
    kind = node.get("kind") if isinstance(node, dict) else None
    if type(kind) is not str or kind not in kinds:
        raise RefusedFileError(f"{where}: no kind {str(kind)[:40]!r}")
    return kind, {name: value for name, value in node.items() if name != "kind"}


def anything(value: Any, _: str) -> Any:
    """Return a value that something else reads."""
    return value


def sentence(value: Any, name: str) -> str:
    """Return a short text without control characters."""
    if type(value) is not str or len(value) > MOST_TEXT or not value.isprintable():
        raise RefusedFileError(f"{name}: expected a sentence")
    return value


def digest(value: Any, name: str) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    if type(value) is not str or len(value) != 64 or set(value) - set("0123456789abcdef"):
        raise RefusedFileError(f"{name}: expected 64 hexadecimal digits")
    return value


def word(*known: str) -> Field:
    """Return what reads one of a few words."""

    def field(value: Any, name: str) -> str:
        # a number that is written as the word is another thing
        if not any(type(value) is type(one) and value == one for one in known):
            raise RefusedFileError(f"{name}: expected {' or '.join(known)}")
        return str(value)

    return field


def decimal(value: Any, name: str) -> fmpq:
    """Return the decimal that a string means, exactly."""
    if type(value) is not str or len(value) > LONGEST or not DECIMAL.fullmatch(value):
        raise RefusedFileError(f"{name}: expected a decimal number as a string")
    mantissa, _, power = value.lower().partition("e")
    whole, _, part = mantissa.partition(".")
    shift = int(power or 0) - len(part)
    return fmpq(int(whole + part) * fmpz(10) ** max(shift, 0), fmpz(10) ** max(-shift, 0))


def within(low: int | None = None, high: int | None = None, *, above: bool = False) -> Field:
    """Return what reads a decimal within [low, high]; ``above``: not low itself."""

    def field(value: Any, name: str) -> fmpq:
        found = decimal(value, name)
        bad_low = low is not None and (found < low or (above and found == low))
        if bad_low or (high is not None and found > high):
            raise RefusedFileError(f"{name}: out of range")
        return found

    return field


def count(low: int = 1, high: int = 10**12) -> Field:
    """Return what reads a whole number within [low, high]."""

    def field(value: Any, name: str) -> int:
        # of ASCII digits alone, and no more of them than any count has
        if type(value) is not str or not re.fullmatch("[0-9]{1,30}", value):
            raise RefusedFileError(f"{name}: expected a whole number as a string")
        if not low <= int(value) <= high:
            raise RefusedFileError(f"{name}: expected from {low} to {high}")
        return int(value)

    return field


def listed(entry: Field, most: int, *, least: int = 1) -> Field:
    """Return what reads a list of so many entries."""

    def field(value: Any, name: str) -> list[Any]:
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise RefusedFileError(f"{name}: expected a list of {least} to {most}")
        return [entry(one, name) for one in value]

    return field


def rows(most: int) -> Field:
    """Return what reads rows of numbers, of one length, of at most so many numbers together."""

    def field(value: Any, name: str) -> list[list[fmpq]]:
        found: list[list[fmpq]] = listed(listed(decimal, most), most)(value, name)
        if any(len(row) != len(found[0]) for row in found) or len(found) * len(found[0]) > most:
            raise RefusedFileError(f"{name}: expected rows of one length, {most} numbers at most")
        return found

    return field


HEAD: Fields = {
    "format": word("tacit-proof"),
    "version": word(Bare("1")),
    "adjacency": word(*ADJACENCIES),
    "mechanism": anything,
    "claims": listed(anything, MOST_CLAIMS),
}
