"""The proof node of a file, read without trust: every surprise is a `RefusedFileError`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flint import fmpq

from tacit_check.balls import RefusedFileError, exact

FORMAT, READS = "tacit-proof", "1"
ADJACENCIES = ("add-remove", "replace", "inputs")
MOST_BYTES, MOST_CLAIMS, MOST_GIVEN = 32 << 20, 256, 256
MOST_TEXT = 2000


class Bare(str):
    """A JSON number as it is written: in a proof node it is one too many."""


@dataclass(frozen=True)
class Proof:
    """A proof node whose outside is in order."""

    adjacency: str
    mechanism: Mapping[str, Any]
    claims: tuple[Mapping[str, Any], ...]
    given: tuple[str, ...]


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
    try:
        return json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_once,
            parse_int=Bare,
            parse_float=Bare,
            parse_constant=_constant,
        )
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
    return _proof(node)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise RefusedFileError("a name stands twice in one object")
    return found


def _constant(word: str) -> Any:
    raise RefusedFileError(f"{word} is not strict JSON")


def _proof(node: dict[str, Any]) -> Proof:
    only(node, "proof", ("format", "version", "adjacency", "mechanism", "claims"), ("given",))
    version = node["version"]
    if node["format"] != FORMAT or not isinstance(version, Bare) or version != READS:
        raise RefusedFileError(f"expected format {FORMAT!r}, version {READS}")
    if node["adjacency"] not in ADJACENCIES:
        raise RefusedFileError(f"adjacency: expected one of {', '.join(ADJACENCIES)}")
    claims, given = node["claims"], node.get("given", [])
    if not isinstance(claims, list) or not 1 <= len(claims) <= MOST_CLAIMS:
        raise RefusedFileError(f"claims: expected from 1 to {MOST_CLAIMS}")
    if not isinstance(given, list) or len(given) > MOST_GIVEN:
        raise RefusedFileError(f"given: expected at most {MOST_GIVEN} sentences")
    for sentence in given:
        sentence_of(sentence, "given")
    for claim in claims:
        if not isinstance(claim, dict) or not isinstance(claim.get("kind"), str):
            raise RefusedFileError("claims: expected objects with a kind")
    if not isinstance(node["mechanism"], dict):
        raise RefusedFileError("mechanism: expected a node")
    return Proof(node["adjacency"], node["mechanism"], tuple(claims), tuple(given))


def only(
    node: Mapping[str, Any], where: str, needed: tuple[str, ...], optional: tuple[str, ...] = ()
) -> None:
    """Refuse a node with a name too many or too few."""
    missing = [name for name in needed if name not in node]
    unknown = [name for name in node if name not in needed and name not in optional]
    if missing:
        raise RefusedFileError(f"{where}: {missing[0]} is missing")
    if unknown:
        raise RefusedFileError(f"{where}: there is no {str(unknown[0])[:40]!r}")


def sentence_of(value: Any, where: str) -> str:
    """Return a short text without control characters."""
    if type(value) is not str or len(value) > MOST_TEXT or not value.isprintable():
        raise RefusedFileError(f"{where}: expected a sentence")
    return value


def number(
    node: Mapping[str, Any],
    name: str,
    *,
    low: int | None = None,
    high: int | None = None,
    above: bool = False,
) -> fmpq:
    """Return the exact decimal of a field within [low, high]; ``above``: not low itself."""
    value = decimal(node[name], name)
    bad_low = low is not None and (value < low or (above and value == low))
    if bad_low or (high is not None and value > high):
        raise RefusedFileError(f"{name}: out of range")
    return value


def decimal(text: Any, name: str) -> fmpq:
    """Return the exact decimal of a string."""
    if type(text) is not str:
        raise RefusedFileError(f"{name}: expected a decimal number as a string")
    try:
        return exact(text)
    except RefusedFileError as error:
        raise RefusedFileError(f"{name}: {error}") from None


def count(node: Mapping[str, Any], name: str, *, low: int = 1, high: int = 10**12) -> int:
    """Return a whole number within [low, high]."""
    text = node[name]
    if type(text) is not str or not text.isascii() or not text.isdigit() or len(text) > 30:
        raise RefusedFileError(f"{name}: expected a whole number as a string")
    if not low <= int(text) <= high:
        raise RefusedFileError(f"{name}: expected from {low} to {high}")
    return int(text)


def items(
    node: Mapping[str, Any], name: str, convert: Callable[[Any], Any], most: int
) -> list[Any]:
    """Return the entries of a list that is not empty."""
    value = node[name]
    if not isinstance(value, list) or not 1 <= len(value) <= most:
        raise RefusedFileError(f"{name}: expected a list of 1 to {most}")
    return [convert(one) for one in value]


def numbers(value: Any, name: str, most: int) -> list[fmpq]:
    """Return the exact decimals of a list that is not empty."""
    return items({name: value}, name, lambda one: decimal(one, name), most)
