"""Guarantees read back from what was stored, whatever type they are of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from tacit._ground.checks import choice
from tacit._ground.reprs import shown
from tacit.documents import decoded, loads
from tacit.guarantees.base import SCHEMA, Guarantee
from tacit.guarantees.differential import ApproximateDP, GaussianDP, Indistinguishability, RenyiDP
from tacit.guarantees.information import InformationBound, ResidualPrivacy, SuccessBound
from tacit.guarantees.leakage import MaximalLeakage

Kind = TypeVar("Kind", bound=Guarantee)

# Named here so that each can be read back before anything else has imported it.
KINDS: tuple[type[Guarantee], ...] = (
    ApproximateDP,
    GaussianDP,
    Indistinguishability,
    RenyiDP,
    InformationBound,
    ResidualPrivacy,
    SuccessBound,
    MaximalLeakage,
)


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
    # of several kinds the one named is read; kinds from elsewhere are found once they are imported
    kinds = {kind.__name__: kind for kind in (*KINDS, *_concrete(Guarantee.__subclasses__()))}
    kind = kinds[choice("type", data.get("type"), tuple(kinds))]
    schema = data.get("schema")
    if isinstance(schema, bool) or schema != SCHEMA:
        raise ValueError(f"schema: expected {SCHEMA}, got {shown(schema)}")
    content = {name: value for name, value in data.items() if name not in ("type", "schema")}
    # an unknown field may be a condition that this version does not know: nothing is left out
    names = [field.name for field in fields(kind)]
    for name in content:
        if name not in names:
            raise ValueError(f"{name}: not a field of {kind.__name__}, expected {', '.join(names)}")
    for name in names:
        if name not in content and name not in kind.optional_fields:
            raise ValueError(f"{name}: missing from a {kind.__name__}")
    # infinities are words in strict JSON
    numbers = kind.number_fields
    return kind(**{name: decoded(v) if name in numbers else v for name, v in content.items()})


def guarantee_from_json(document: str) -> Guarantee:
    """Rebuild the guarantee that `Guarantee.to_json` wrote.

    Args:
        document: Strict JSON.

    Returns:
        A guarantee equal to the one written.

    Raises:
        ValueError: The document is not strict JSON, or as `guarantee_from_dict`.
    """
    return guarantee_from_dict(loads(document))


def _concrete(kinds: Iterable[type[Guarantee]]) -> Iterator[type[Guarantee]]:
    for kind in kinds:
        if not getattr(kind, "__abstractmethods__", None):
            yield kind
        yield from _concrete(kind.__subclasses__())
