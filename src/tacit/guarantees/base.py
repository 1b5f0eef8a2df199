"""The base of every guarantee: evidence, assumptions, source, and strict JSON both ways."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

from tacit._ground.checks import choice, in_interval
from tacit.text import share_down

SCHEMA = 1
EVIDENCE = ("theorem", "numerical", "statistical")
INFINITIES = {"Infinity": math.inf, "-Infinity": -math.inf}

Evidence: TypeAlias = Literal["theorem", "numerical", "statistical"]
Item = TypeVar("Item")
Kind = TypeVar("Kind", bound="Guarantee")


@dataclass(frozen=True, kw_only=True)
class Guarantee(ABC):
    """A bound that is true under its assumptions.

    Args:
        evidence: ``"theorem"`` (a closed form), ``"numerical"`` (computed and rounded up) or
            ``"statistical"`` (holds with ``confidence`` over the randomness of its estimation).
        assumptions: What must hold for the bound to be true, one sentence each.
        source: Where the bound comes from, such as ``"residual-pac, Proposition 2"``.
        confidence: Probability in (0, 1) that a statistical bound is true; None for the others.

    Raises:
        ValueError: A field is not what it should be; the message names it.
    """

    evidence: Evidence
    assumptions: tuple[str, ...]
    source: str
    confidence: float | None = None

    number_fields: ClassVar[tuple[str, ...]] = ()
    optional_fields: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        choice("evidence", self.evidence, EVIDENCE)
        self._set("assumptions", texts("assumptions", self.assumptions))
        text("source", self.source)
        if self.evidence == "statistical":
            self._set(
                "confidence",
                in_interval("confidence", self.confidence, 0, 1, open_low=True, open_high=True),
            )
        elif self.confidence is not None:
            raise ValueError(
                f"confidence: expected None with {self.evidence} evidence, got {self.confidence!r}"
            )

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @abstractmethod
    def _statement(self) -> str:
        """Return the bound as a sentence without its full stop."""

    def describe(self) -> str:
        """Return the bound as one line of plain English, every number rounded against us."""
        doubt = ""
        if self.confidence is not None:
            doubt = f" (statistical: true with confidence {share_down(self.confidence)})"
        return f"{self._statement()}{doubt}."

    def to_dict(self) -> dict[str, Any]:
        """Return every field and the type's name as values that strict JSON can hold."""
        content = {field.name: _encode(getattr(self, field.name)) for field in fields(self)}
        return {"type": type(self).__name__, "schema": SCHEMA, **content}

    def to_json(self) -> str:
        """Return `to_dict` as strict JSON: infinities are the strings "Infinity", "-Infinity"."""
        return json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False)


def guarantee_from_dict(data: Mapping[str, Any]) -> Guarantee:
    """Rebuild the guarantee that `Guarantee.to_dict` wrote.

    Args:
        data: The mapping, with ``"type"``, ``"schema"`` and the fields of that type.

    Returns:
        A guarantee equal to the one written.

    Raises:
        ValueError: A field is missing, unknown or not what it should be; the message names it.

    Example:
        >>> from tacit.guarantees import InformationBound
        >>> bound = InformationBound(
        ...     nats=0.01, secret="the rows", evidence="theorem", assumptions=(), source="example"
        ... )
        >>> guarantee_from_dict(bound.to_dict()) == bound
        True
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"guarantee: expected an object, got {type(data).__name__}")
    kinds = {kind.__name__: kind for kind in _concrete(Guarantee.__subclasses__())}
    kind = kinds[choice("type", data.get("type"), tuple(kinds))]
    schema = data.get("schema")
    if isinstance(schema, bool) or schema != SCHEMA:
        raise ValueError(f"schema: expected {SCHEMA}, got {schema!r}")
    content = {name: value for name, value in data.items() if name not in ("type", "schema")}
    names = [field.name for field in fields(kind)]
    for name in content:
        if name not in names:
            raise ValueError(f"{name}: not a field of {kind.__name__}, expected {', '.join(names)}")
    for name in names:
        if name not in content and name not in kind.optional_fields:
            raise ValueError(f"{name}: missing from a {kind.__name__}")
    numbers = kind.number_fields
    return kind(**{name: _decode(v) if name in numbers else v for name, v in content.items()})


def guarantee_of(kind: type[Kind], name: str, data: Any) -> Kind:
    """Rebuild a guarantee where only this type will do; ``name`` says where it stands."""
    if not isinstance(data, Mapping):
        raise ValueError(f"{name}: expected {kind.__name__}, got {type(data).__name__}")
    found = guarantee_from_dict(data)
    if not isinstance(found, kind):
        raise ValueError(f"{name}: expected {kind.__name__}, got {type(found).__name__}")
    return found


def guarantee_from_json(document: str) -> Guarantee:
    """Rebuild the guarantee that `Guarantee.to_json` wrote.

    Args:
        document: Strict JSON.

    Returns:
        A guarantee equal to the one written.

    Raises:
        ValueError: The document is not strict JSON, or as `guarantee_from_dict`.
    """
    try:
        data = json.loads(document, parse_constant=_refuse, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise ValueError(f"document: expected JSON, got an error at {error}") from None
    return guarantee_from_dict(data)


def text(name: str, value: Any) -> str:
    """Return ``value`` when it is a string that says something."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name}: expected a non-empty string, got {value!r}")
    return value


def items(name: str, value: Iterable[Item]) -> tuple[Item, ...]:
    """Return ``value`` as a tuple, refusing a bare string."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise ValueError(f"{name}: expected a sequence, got {value!r}")
    return tuple(value)


def texts(name: str, value: Iterable[str]) -> tuple[str, ...]:
    """Return ``value`` as a tuple of strings that each say something."""
    return tuple(text(f"{name}[{i}]", entry) for i, entry in enumerate(items(name, value)))


def _concrete(kinds: Iterable[type[Guarantee]]) -> Iterator[type[Guarantee]]:
    for kind in kinds:
        if not getattr(kind, "__abstractmethods__", None):
            yield kind
        yield from _concrete(kind.__subclasses__())


def _encode(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_encode(entry) for entry in value]
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [_decode(entry) for entry in value]
    if isinstance(value, str):
        return INFINITIES.get(value, value)
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(f"document: expected strict JSON, got the bare constant {constant}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for name, value in pairs:
        if name in content:
            raise ValueError(f"{name}: given twice")
        content[name] = value
    return content
