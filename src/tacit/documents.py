"""One JSON for everything stored: strict, infinities as words, headed by a format and version."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tacit._ground.files import read_bytes
from tacit._ground.reprs import shown

Read = TypeVar("Read")

INFINITIES = {"Infinity": math.inf, "-Infinity": -math.inf}
# What reading a document whose fields are of the wrong kind ends in.
MALFORMED = (
    KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip


def dumps(
    content: Any,
    *,
    name: str = "document",
    indent: int | None = None,
    sort_keys: bool = False,
    ascii_only: bool = False,
) -> str:
    """Return content as strict JSON: NaN and infinite numbers are refused.

    Args:
        content: dictionaries, lists, text, numbers, booleans and None; see ``encoded``.
        name: what a ValueError calls it.
        indent: spaces per level; None for one line.
        sort_keys: whether fields are in the order of their names.
        ascii_only: whether other characters are written as ``\\u`` and their number.

    Raises:
        ValueError: strict JSON cannot hold the content.

    Example:
        >>> dumps({"nats": 0.5, "unit": "ε"})
        '{"nats": 0.5, "unit": "ε"}'
    """
    try:
        return json.dumps(
            content,
            allow_nan=False,
            ensure_ascii=ascii_only,
            indent=indent,
            sort_keys=sort_keys,
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{name}: expected JSON-able values ({error})") from None


def loads(document: str | bytes, *, name: str = "document", source: str = "the text") -> Any:
    """Return the value of strict JSON.

    Args:
        document: text, or the bytes of UTF-8 text.
        name: what a ValueError calls it.
        source: where it is from, such as the name of a file.

    Raises:
        ValueError: it is not UTF-8 text or not JSON, it holds NaN, an infinity or a number beyond
            double precision, or an object names a field twice.

    Example:
        >>> loads('{"nats": NaN}')
        Traceback (most recent call last):
        ValueError: document: the text is not strict JSON (it holds NaN)
    """

    def refused(what: str) -> Any:
        raise _NotStrictError(f"{name}: {source} is not strict JSON (it holds {what})")

    def finite(digits: str) -> float:
        number = float(digits)
        return number if math.isfinite(number) else refused("a number beyond double precision")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            # every name is looked at once: of a million names one may stand twice
            seen = set[str]()
            for key, _ in pairs:
                if key in seen:
                    refused(f"the field {shown(key)} twice")
                seen.add(key)
        return content

    try:
        text = document.decode("utf-8") if isinstance(document, bytes) else document
        return json.loads(
            text, parse_constant=refused, parse_float=finite, object_pairs_hook=unique
        )
    except _NotStrictError as error:
        raise ValueError(str(error)) from None
    except UnicodeDecodeError:
        raise ValueError(f"{name}: {source} is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        # a whole number of too many digits is a plain ValueError
        raise ValueError(f"{name}: {source} is not JSON ({error})") from None


def read(name: str, path: str | os.PathLike[str]) -> Any:
    """Return the value of a file of strict JSON; ``name`` is what a ValueError calls it.

    Raises:
        ValueError: the file cannot be read, or as ``loads``.
    """
    return loads(read_bytes(name, path), name=name, source=os.fspath(path))


def encoded(value: Any) -> Any:
    """Return numbers as strict JSON holds them: infinities as words, tuples as lists.

    Example:
        >>> encoded((1.0, math.inf))
        [1.0, 'Infinity']
    """
    if isinstance(value, (tuple, list)):
        return [encoded(entry) for entry in value]
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def decoded(value: Any) -> Any:
    """Return what ``encoded`` made of numbers, as numbers; other words stay what they are.

    Example:
        >>> decoded([1.0, "Infinity"])
        [1.0, inf]
    """
    if isinstance(value, (tuple, list)):
        return [decoded(entry) for entry in value]
    return INFINITIES.get(value, value) if isinstance(value, str) else value


@dataclass(frozen=True)
class Envelope:
    """What heads a stored document: the name of its format, and the version of its fields.

    Example:
        >>> envelope = Envelope("tacit.example", 1)
        >>> envelope.opened("example", envelope.closed({"nats": 0.5}), lambda fields: fields)
        {'nats': 0.5}
    """

    format: str
    version: int

    def closed(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields below format and version."""
        return {"format": self.format, "version": self.version, **fields}

    def fields(self, name: str, document: Any) -> dict[str, Any]:
        """Return the fields of a document of this format and version.

        Raises:
            ValueError: it is of another format or version.
        """
        if not isinstance(document, Mapping) or document.get("format") != self.format:
            found = document.get("format") if isinstance(document, Mapping) else document
            raise ValueError(
                f"{name}: expected a document of format {self.format!r}, got {shown(found)}"
            )
        version = document.get("version")
        if isinstance(version, bool) or version != self.version:
            raise ValueError(f"{name}: expected version {self.version}, got {shown(version)}")
        header = ("format", "version")
        return {key: value for key, value in document.items() if key not in header}

    def opened(self, name: str, document: Any, make: Callable[[dict[str, Any]], Read]) -> Read:
        """Return what ``make`` makes of the fields of a document of this format and version.

        What is read as a value with a ``to_dict`` has no field, at any depth, that is not written
        again. Where it comes from may stand beside it.

        Raises:
            ValueError: it is of another format or version, or a field is missing, unknown or
                malformed.
        """
        given = self.fields(name, document)
        found = checked(name, lambda: make(given))
        if (written := getattr(found, "to_dict", None)) is not None:
            check_known(name, document, checked(name, written), beside=("provenance",))
        return found


def check_known(
    name: str, document: Mapping[str, Any], written: Any, *, beside: tuple[str, ...] = ()
) -> None:
    """Refuse a document with a field that what was read from it does not write again.

    Args:
        name: what a ValueError calls it.
        document: as it stands in its file.
        written: what the value that was read from it is written as.
        beside: fields of the document that stand beside the value.

    Raises:
        ValueError: a field, at any depth, is unknown; the message says in what it stands.

    Example:
        >>> check_known("noise", {"sd": 1.0, "on": [{"x": 2}]}, {"sd": 1.0, "on": [{}]})
        Traceback (most recent call last):
        ValueError: noise.on: expected the fields that its kind has, got an unknown one beside them
    """
    own = {key: value for key, value in document.items() if key not in beside}
    place = _unknown(own, written)
    if place is not None:
        raise ValueError(
            f"{'.'.join((name, *place))}: expected the fields that its kind has, got an unknown "
            "one beside them"
        )


def _unknown(content: Any, written: Any) -> tuple[str, ...] | None:
    """Return where a part has a field that is not written; None where all are."""
    if isinstance(content, Mapping):
        if not isinstance(written, Mapping) or not set(content) <= set(written):
            return ()
        for key, value in content.items():
            if (place := _unknown(value, written[key])) is not None:
                return (key, *place)
    elif isinstance(content, (list, tuple)):
        same = isinstance(written, (list, tuple)) and len(content) == len(written)
        for value, other in zip(content, written if same else [None] * len(content), strict=True):
            if (place := _unknown(value, other)) is not None:
                return place
    return None


def checked(name: str, make: Callable[[], Read]) -> Read:
    """Return what ``make`` returns; a field that is missing or malformed is a ValueError."""
    try:
        return make()
    except MALFORMED as error:
        # what Python says of a value of another type names our functions, not the reader's field
        told = f"no {error.args[0]!r}" if isinstance(error, KeyError) else "one of another kind"
        raise ValueError(f"{name}: a field is missing or malformed: {told}") from None


class _NotStrictError(Exception):
    """JSON that Python reads and strict JSON is not."""
