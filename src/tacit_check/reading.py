"""The proof node of a file, read without trust: every surprise is a `RefusedFileError`."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flint import fmpq, fmpz

from tacit_check.balls import RefusedFileError, require

ADJACENCIES = ("add-remove", "replace", "inputs")
MOST_BYTES, MOST_CLAIMS, MOST_GIVEN = 32 << 20, 256, 256
# Characters of a sentence and of a number.
MOST_TEXT, LONGEST = 2000, 400
DECIMAL = rf"(?=.{{1,{LONGEST}}}\Z)-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{{1,4}})?"
# What makes a value of what stands in a field, told the name of the field.
Field = Callable[[Any, str], Any]
Fields = Mapping[str, Field]
NONE: Fields = {}


class Bare(str):
    """A JSON number as it is written: in a proof node it is one too many."""


HOOKS: dict[str, Any] = dict.fromkeys(("parse_int", "parse_float", "parse_constant"), Bare)


@dataclass(frozen=True)
class Proof:
    """A proof node whose outside is in order."""

    adjacency: str
    mechanism: Any
    claims: list[Any]
    given: list[str]


def contents(path: str | Path) -> bytes:
    """Return the bytes of a file that is not too long."""
    try:
        with Path(path).open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise RefusedFileError(f"cannot be read ({type(error).__name__})") from None
    require(len(content) <= MOST_BYTES, f"more than {MOST_BYTES >> 20} MB")
    return content


def strict(content: bytes) -> Any:
    """Return what JSON holds, numbers and NaN as they are written; no name twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        require(len(found) == len(pairs), "a name stands twice in one object")
        return found

    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=once, **HOOKS)
    except RecursionError:
        raise RefusedFileError("nested too deeply") from None
    except ValueError:
        raise RefusedFileError("not strict JSON") from None


def parse(content: bytes) -> Proof:
    """Return the proof node of JSON."""
    whole = strict(content)
    node = whole.get("proof") if isinstance(whole, dict) else None
    require(type(node) is dict, "no proof node: nothing is claimed that could be checked")
    found = fields(node, "proof", HEAD, {"given": listed(sentence, MOST_GIVEN, least=0)})
    return Proof(found["adjacency"], found["mechanism"], found["claims"], found.get("given", []))


def fields(node: Any, where: str, needed: Fields, optional: Fields = NONE) -> dict[str, Any]:
    """Return the values of a node; one with a name too many or too few is refused."""
    require(type(node) is dict, f"{where}: expected an object")
    known = {**needed, **optional}
    for name in needed:
        require(name in node, f"{where}: {name} is missing")
    for name in node:
        require(name in known, f"{where}: there is no {str(name)[:40]!r}")
    return {name: known[name](value, name) for name, value in node.items()}


def kind_of(node: Any, where: str, kinds: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the kind of a node, one of those known, and what else it holds."""
    kind = node.get("kind") if isinstance(node, dict) else None
    require(type(kind) is str and kind in kinds, f"{where}: no kind {str(kind)[:40]!r}")
    return str(kind), {name: value for name, value in node.items() if name != "kind"}


def anything(value: Any, _: str) -> Any:
    """Return a value that something else reads."""
    return value


def sentence(value: Any, name: str) -> str:
    """Return a short text without control characters."""
    fine = type(value) is str and len(value) <= MOST_TEXT and value.isprintable()
    require(fine, f"{name}: expected a sentence")
    return str(value)


def matched(value: Any, name: str, pattern: str, expected: str) -> str:
    """Return a string that a pattern fits."""
    fine = type(value) is str and re.fullmatch(pattern, value)
    require(bool(fine), f"{name}: expected {expected}")
    return str(value)


def digest(value: Any, name: str) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    return matched(value, name, "[0-9a-f]{64}", "64 hexadecimal digits")


def word(*known: str) -> Field:
    """Return what reads one of a few words."""

    def field(value: Any, name: str) -> str:
        # a number that is written as the word is another thing
        fine = any(type(value) is type(one) and value == one for one in known)
        require(fine, f"{name}: expected {' or '.join(known)}")
        return str(value)

    return field


def decimal(value: Any, name: str) -> fmpq:
    """Return the decimal that a string means, exactly."""
    text = matched(value, name, DECIMAL, "a decimal number as a string")
    mantissa, _, power = text.lower().partition("e")
    whole, _, part = mantissa.partition(".")
    shift = int(power or 0) - len(part)
    return fmpq(int(whole + part) * fmpz(10) ** max(shift, 0), fmpz(10) ** max(-shift, 0))


def within(low: int | None = None, high: int | None = None, *, above: bool = False) -> Field:
    """Return what reads a decimal within [low, high]; ``above``: not low itself."""

    def field(value: Any, name: str) -> fmpq:
        found = decimal(value, name)
        fine = low is None or found > low or (found == low and not above)
        require(fine and (high is None or found <= high), f"{name}: out of range")
        return found

    return field


def count(low: int = 1, high: int = 10**12) -> Field:
    """Return what reads a whole number within [low, high]."""

    def field(value: Any, name: str) -> int:
        # of ASCII digits alone, and no more of them than any count has
        found = int(matched(value, name, "[0-9]{1,30}", "a whole number as a string"))
        require(low <= found <= high, f"{name}: expected from {low} to {high}")
        return found

    return field


def listed(entry: Field, most: int, *, least: int = 1) -> Field:
    """Return what reads a list of so many entries."""

    def field(value: Any, name: str) -> list[Any]:
        fine = type(value) is list and least <= len(value) <= most
        require(fine, f"{name}: expected a list of {least} to {most}")
        return [entry(one, name) for one in value]

    return field


def rows(most: int) -> Field:
    """Return what reads rows of numbers, of one length, of at most so many numbers together."""

    def field(value: Any, name: str) -> list[list[fmpq]]:
        found: list[list[fmpq]] = listed(listed(decimal, most), most)(value, name)
        fine = len({len(row) for row in found}) == 1 and len(found) * len(found[0]) <= most
        require(fine, f"{name}: expected rows of one length, {most} numbers at most")
        return found

    return field


HEAD: Fields = {
    "format": word("tacit-proof"),
    "version": word(Bare("1")),
    "adjacency": word(*ADJACENCIES),
    "mechanism": anything,
    "claims": listed(anything, MOST_CLAIMS),
}
