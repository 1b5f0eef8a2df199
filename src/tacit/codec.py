"""Frozen values as strict JSON and back, by their annotations: one writer, one reader, one schema.

A value is a frozen dataclass whose annotations say what its fields are: numbers, words, texts,
``Literal``, enums, tuples, mappings from texts, arrays, other values, ``| None``, and values that
write themselves (``leaf``). Of several kinds of value one is named by ``"type"``: a reader never
tries a second kind after the first refused. Infinities are words; NaN is null where ``MISSING``
stands beside the annotation, and refused elsewhere.
"""

from __future__ import annotations

import enum
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING as MISSING_DEFAULT
from dataclasses import Field, fields, is_dataclass, replace
from inspect import isabstract
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from tacit._ground.reprs import shown
from tacit.documents import INFINITIES, MALFORMED, check_known

# Beside an annotation: a number that may be missing, NaN in memory and null in the file.
MISSING: Final = "may be missing"
# Beside an annotation: a function of the secret beside the noise, for its holder. Such a field
# has a default, which stands for it in what is published.
HOLDER: Final = "for the holder of the secret"
# Beside an annotation: held in memory or in a file of its own, never in the JSON.
APART: Final = "apart from the JSON"
# The field that names a kind of value where there are several.
TAG: Final = "type"
# Values that write themselves, by their base class: how they are read.
LEAVES: dict[type[Any], Callable[[Any], Any]] = {}
HINTS: dict[type[Any], Mapping[str, Any]] = {}
WORDS = {
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    str: "text",
    types.NoneType: "null",
}


def leaf(kind: type[Any], read: Callable[[Any], Any]) -> None:
    """Let values of a class write themselves by ``to_dict`` and be read by a function."""
    LEAVES[kind] = read


def write(kind: Any, value: Any) -> Any:
    """Return a value as strict JSON holds it.

    Args:
        kind: its annotation.
        value: of that kind.

    Raises:
        TypeError: the annotation is none that this module knows: a fault of the program.

    Example:
        >>> from tacit.measured import Interval
        >>> write(Interval, Interval(value=0.5, low=0.25, high=1.0, confidence=0.95))
        {'value': 0.5, 'low': 0.25, 'high': 1.0, 'confidence': 0.95}
    """
    base, notes = _member(kind, value)
    if value is None:
        return None
    if isinstance(value, enum.Enum):
        return value.value
    if _leaf_of(type(value)) is not None:
        return value.to_dict()
    if is_dataclass(value):
        hints = hints_of(type(value))
        held = {name: write(hints[name], getattr(value, name)) for name in _told(type(value))}
        return {TAG: type(value).__name__, **held} if len(_values(kind)) > 1 else held
    if isinstance(value, np.ndarray):
        return _numbers_out(value.tolist(), notes)
    if isinstance(value, tuple):
        inner = _entries(base, len(value))
        return [write(one, entry) for one, entry in zip(inner, value, strict=True)]
    if isinstance(value, Mapping):
        return {key: write(get_args(base)[1], entry) for key, entry in value.items()}
    if isinstance(value, float):
        return _numbers_out(value, notes)
    return value.hex() if isinstance(value, bytes) else value


def read(kind: Any, content: Any, name: str) -> Any:
    """Return the value that ``write`` wrote.

    Args:
        kind: its annotation.
        content: what strict JSON held.
        name: what a ValueError calls it.

    Raises:
        ValueError: a field is missing, unknown, of another kind or out of range; the message
            starts with its path, as in ``release.attacks[0].low``.

    Example:
        >>> from tacit.measured import Interval
        >>> read(Interval, {"value": 0.5, "low": 0.25, "high": True, "confidence": None}, "share")
        Traceback (most recent call last):
        ValueError: share.high: expected a number, got True
    """
    base, notes = _plain(kind)
    if isinstance(base, TypeVar):
        # what a type variable stands for is read by whoever knows it
        return content
    if base is Any:
        # a word or a number in the file, whatever else the field may be in memory
        scalar = content is None or isinstance(content, bool | int | float | str)
        return content if scalar else _refused(name, "a text or a number", content)
    if get_origin(base) in (Union, types.UnionType):
        return _one_of(base, notes, content, name)
    if get_origin(base) is Literal:
        words = get_args(base)
        same = [word for word in words if word == content and type(word) is type(content)]
        return same[0] if same else _refused(name, " or ".join(map(repr, words)), content)
    if isinstance(base, type) and issubclass(base, enum.Enum):
        words = tuple(one.value for one in base)
        if content not in words or isinstance(content, bool):
            _refused(name, " or ".join(map(repr, words)), content)
        return base(content)
    if _is_array(base):
        return _array(base, notes, content, name)
    if get_origin(base) is tuple:
        if not isinstance(content, list | tuple):
            _misplaced(name, "a list", content)
        inner = _entries(base, len(content))
        if len(inner) != len(content):
            _misplaced(name, f"{len(inner)} entries", content)
        pairs = enumerate(zip(inner, content, strict=True))
        return tuple(read(one, entry, f"{name}[{place}]") for place, (one, entry) in pairs)
    if _is_mapping(base):
        if not isinstance(content, Mapping):
            _misplaced(name, "an object", content)
        inside = get_args(base)[1]
        return {str(key): read(inside, entry, f"{name}.{key}") for key, entry in content.items()}
    if base in (float, int, bool, str):
        return _scalar(base, notes, content, name)
    if base is bytes:
        return _bytes(content, name)
    return _value(base, content, name)


def read_apart(kind: type[Any], content: Any, name: str, apart: Mapping[str, Any]) -> Any:
    """Return the value that ``write`` wrote, with its fields that stand apart from the JSON.

    Raises:
        ValueError: as ``read``.
    """
    if not isinstance(content, Mapping):
        _misplaced(name, f"the fields of {kind.__name__}", content)
    return _made(kind, content, name, apart)


def public(value: Any) -> Any:
    """Return a value with the defaults of its fields that are the holder's, at every depth."""
    if isinstance(value, tuple):
        return tuple(public(entry) for entry in value)
    if isinstance(value, Mapping):
        return {key: public(entry) for key, entry in value.items()}
    if not is_dataclass(value) or isinstance(value, type) or _leaf_of(type(value)) is not None:
        return value
    hints, changed = hints_of(type(value)), {}
    for one in fields(value):
        held = getattr(value, one.name)
        if HOLDER in _plain(hints[one.name])[1]:
            changed[one.name] = _default(one)
        elif one.init and (inside := public(held)) is not held:
            changed[one.name] = inside
    return replace(value, **changed) if changed else value


def schema(kind: Any) -> dict[str, Any]:
    """Return a JSON Schema (2020-12) of what ``write`` writes of a kind, values under ``$defs``.

    Example:
        >>> from tacit.measured import Interval
        >>> sorted(schema(Interval)["$defs"]["Interval"]["properties"])
        ['confidence', 'high', 'low', 'value']
    """
    defined: dict[str, Any] = {}
    whole = _schema(kind, defined)
    return {**whole, "$defs": defined}


def hints_of(kind: type[Any]) -> Mapping[str, Any]:
    """Return the annotations of a value's fields."""
    if kind not in HINTS:
        HINTS[kind] = get_type_hints(kind, include_extras=True)
    return HINTS[kind]


def _default(one: Field[Any]) -> Any:
    if one.default_factory is not MISSING_DEFAULT:
        return one.default_factory()
    if one.default is MISSING_DEFAULT:
        raise TypeError(f"{one.name}: a field of the holder's needs a default")
    return one.default


def _plain(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return an annotation without its notes, and the notes."""
    kind = getattr(kind, "__value__", kind)
    if get_origin(kind) is Annotated:
        base, notes = _plain(kind.__origin__)
        return base, (*notes, *kind.__metadata__)
    return kind, ()


def _parts(base: Any) -> tuple[Any, ...]:
    """Return the members of a union, those of a union in it too, or the one kind there is."""
    if get_origin(base) not in (Union, types.UnionType):
        return (base,)
    inner = [(part, _parts(_plain(part)[0])) for part in get_args(base)]
    return tuple(one for part, some in inner for one in (some if len(some) > 1 else (part,)))


def _member(kind: Any, value: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the member of an annotation that a value is of, and the notes that stand beside it."""
    base, notes = _plain(kind)
    parts = [_plain(part) for part in _parts(base) if part is not types.NoneType]
    if len(parts) > 1 and isinstance(value, tuple | Mapping):
        origin: Any = tuple if isinstance(value, tuple) else Mapping
        parts = [one for one in parts if issubclass(get_origin(one[0]) or object, origin)]
    inside, more = parts[0] if parts else (base, ())
    return inside, (*notes, *more)


def _values(kind: Any) -> dict[str, type[Any]]:
    """Return the concrete kinds of value, by name, that may stand for an annotation."""
    found: dict[str, type[Any]] = {}
    for part in _parts(_plain(kind)[0]):
        one = _plain(part)[0]
        if is_dataclass(one) and isinstance(one, type) and _leaf_of(one) is None:
            for concrete in _concrete(one) if isabstract(one) else (one,):
                found[concrete.__name__] = concrete
    return found


def _concrete(kind: type[Any]) -> tuple[type[Any], ...]:
    below = tuple(one for sub in kind.__subclasses__() for one in _concrete(sub))
    return below if isabstract(kind) else (kind, *below)


def _leaf_of(kind: Any) -> Callable[[Any], Any] | None:
    """Return what reads a value that writes itself; None where none does."""
    if not isinstance(kind, type):
        return None
    return next((LEAVES[base] for base in kind.__mro__ if base in LEAVES), None)


def _entries(base: Any, count: int) -> tuple[Any, ...]:
    """Return the annotation of every entry of a tuple."""
    inner = get_args(base)
    return (inner[0],) * count if inner[-1] is Ellipsis else inner


def _is_array(base: Any) -> bool:
    return base is np.ndarray or get_origin(base) is np.ndarray


def _is_mapping(base: Any) -> bool:
    origin = get_origin(base)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _numbers_out(value: Any, notes: tuple[Any, ...]) -> Any:
    """Return numbers as strict JSON has them: NaN is null, infinities are words."""
    if isinstance(value, list):
        return [_numbers_out(entry, notes) for entry in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    if math.isnan(value) and MISSING not in notes:
        raise ValueError("expected a number where none may be missing, got NaN")
    return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _one_of(base: Any, notes: tuple[Any, ...], content: Any, name: str) -> Any:
    """Read a union: null, the value that is named, or the one scalar of the JSON's own type."""
    parts = _parts(base)
    if content is None and types.NoneType in parts:
        return None
    others = [part for part in parts if part is not types.NoneType]
    if len(others) == 1:
        inside, more = _plain(others[0])
        return read(Annotated[inside, *notes, *more] if notes or more else inside, content, name)
    named = _values(base)
    if named and isinstance(content, Mapping):
        return _tagged(named, content, name)
    for part in others:
        one, _ = _plain(part)
        if _fits(one, content):
            return read(part, content, name)
    return _refused(name, " or ".join(_word(part) for part in parts), content)


def _fits(kind: Any, content: Any) -> bool:
    """Whether the JSON's own type is that of a kind, so that no two of a union fit."""
    if kind is float:
        return isinstance(content, float) or (isinstance(content, str) and content in INFINITIES)
    if kind in (int, bool, str):
        return type(content) is kind
    if get_origin(kind) is Literal:
        return content in get_args(kind)
    if _is_mapping(kind):
        return isinstance(content, Mapping)
    return get_origin(kind) is tuple and isinstance(content, list | tuple)


def _scalar(base: Any, notes: tuple[Any, ...], content: Any, name: str) -> Any:
    if base is float:
        return _number(content, notes, name)
    if type(content) is not base:
        _refused(name, WORDS[base], content)
    return content


def _number(content: Any, notes: tuple[Any, ...], name: str) -> float:
    if content is None and MISSING in notes:
        return math.nan
    number = INFINITIES.get(content, content) if isinstance(content, str) else content
    if isinstance(number, bool) or not isinstance(number, int | float):
        _refused(name, WORDS[float], content)
    try:
        return float(number)
    except OverflowError:
        return float(_refused(name, "a number within double precision", content))


def _bytes(content: Any, name: str) -> bytes:
    try:
        return bytes.fromhex(content)
    except (TypeError, ValueError):
        return bytes(_refused(name, "bytes as hexadecimal digits", content))


def _array(base: Any, notes: tuple[Any, ...], content: Any, name: str) -> Any:
    """Read an array of numbers, integers exactly; its shape is that of the lists."""
    dtype = np.dtype(get_args(get_args(base)[1])[0] if get_args(base) else np.float64)
    if not isinstance(content, list | tuple):
        _misplaced(name, "a list of numbers", content)
    whole = dtype.kind in "iu"

    def inside(entry: Any, place: str) -> Any:
        if isinstance(entry, list | tuple):
            return [inside(one, f"{place}[{index}]") for index, one in enumerate(entry)]
        return _scalar(int, (), entry, place) if whole else _number(entry, notes, place)

    try:
        numbers = inside(content, name)
    except RecursionError:
        # deeper than any array has dimensions
        return _refused(name, f"an array of {dtype}", content)
    try:
        return np.array(numbers, dtype=dtype)
    except (TypeError, ValueError, OverflowError):
        return _refused(name, f"an array of {dtype}", content)


def _value(base: Any, content: Any, name: str) -> Any:
    known = _leaf_of(base)
    if known is not None:
        return _leaf(base, known, content, name)
    named = _values(base)
    if not named:
        raise TypeError(f"{name}: {base!r} is no annotation of a stored value")
    if not isinstance(content, Mapping):
        _misplaced(name, f"the fields of {' or '.join(named)}", content)
    if len(named) > 1:
        return _tagged(named, content, name)
    return _made(next(iter(named.values())), content, name)


def _leaf(base: Any, known: Callable[[Any], Any], content: Any, name: str) -> Any:
    try:
        found = known(content)
    except ValueError as error:
        raise ValueError(f"{name}.{error}") from None
    except MALFORMED:
        return _refused(name, f"a {base.__name__}", content)
    if not isinstance(found, base):
        _refused(name, f"a {base.__name__}", found)
    check_known(name, content, found.to_dict())
    return found


def _tagged(named: Mapping[str, type[Any]], content: Mapping[str, Any], name: str) -> Any:
    word: Any = content.get(TAG)
    if not isinstance(word, str) or word not in named:
        _refused(f"{name}.{TAG}", " or ".join(map(repr, named)), word)
    rest = {key: entry for key, entry in content.items() if key != TAG}
    return _made(named[word], rest, name)


def _told(kind: type[Any]) -> list[str]:
    """Return the fields of a value that stand in the JSON."""
    hints = hints_of(kind)
    return [
        one.name for one in fields(kind) if one.init and APART not in _plain(hints[one.name])[1]
    ]


def _made(
    kind: Any, content: Mapping[str, Any], name: str, apart: Mapping[str, Any] | None = None
) -> Any:
    hints, known = hints_of(kind), _told(kind)
    odd = sorted(set(map(str, content)) ^ set(known))
    if odd:
        raise ValueError(
            f"{name}: expected the fields of {kind.__name__}, missing or unknown, got {shown(odd)}"
        )
    given = {one: read(hints[one], content[one], f"{name}.{one}") for one in known}
    try:
        return kind(**given, **(apart or {}))
    except ValueError as error:
        raise ValueError(f"{name}.{error}") from None


def _refused(name: str, expected: str, content: Any) -> Any:
    """Refuse a value by its path; of a list or an object nothing is told but that it is one."""
    sorts: dict[type, str] = {list: "a list", tuple: "a list", dict: "an object"}
    raise ValueError(
        f"{name}: expected {expected}, got {sorts.get(type(content)) or shown(content)}"
    )


def _misplaced(name: str, expected: str, content: Any) -> Any:
    """Refuse what stands where a list or an object should, without the text that it is."""
    if isinstance(content, str):
        raise ValueError(f"{name}: expected {expected}, got text")
    return _refused(name, expected, content)


def _word(kind: Any) -> str:
    return WORDS.get(kind, getattr(kind, "__name__", str(kind)))


def _schema(kind: Any, defined: dict[str, Any]) -> dict[str, Any]:
    base, notes = _plain(kind)
    if isinstance(base, TypeVar) or base is Any:
        return {}
    scalars = {float: "number", int: "integer", bool: "boolean", str: "string", bytes: "string"}
    if base is float or _is_array(base):
        number: dict[str, Any] = {"anyOf": [{"type": "number"}, {"enum": list(INFINITIES)}]}
        if MISSING in notes:
            number["anyOf"].append({"type": "null"})
        return {"type": "array"} if _is_array(base) else number
    if base in scalars:
        return {"type": scalars[base]}
    if base is types.NoneType:
        return {"type": "null"}
    if get_origin(base) is Literal:
        return {"enum": list(get_args(base))}
    if isinstance(base, type) and issubclass(base, enum.Enum):
        return {"enum": [one.value for one in base]}
    if get_origin(base) is tuple:
        inner = get_args(base)
        if inner[-1] is Ellipsis:
            return {"type": "array", "items": _schema(inner[0], defined)}
        return {"type": "array", "prefixItems": [_schema(one, defined) for one in inner],
                "items": False, "minItems": len(inner)}  # fmt: skip
    if _is_mapping(base):
        return {"type": "object", "additionalProperties": _schema(get_args(base)[1], defined)}
    if _leaf_of(base) is not None:
        return {"type": "object", "title": base.__name__}
    named = _values(base)
    tagged = len(named) > 1
    found = [_reference(one, tagged, defined) for one in named.values()]
    others = [part for part in _parts(base) if not _values(part) and part is not base]
    found += [_schema(Annotated[part, *notes] if notes else part, defined) for part in others]
    if not found:
        raise TypeError(f"{base!r} is no annotation of a stored value")
    return found[0] if len(found) == 1 else {"anyOf": found}


def _reference(kind: type[Any], tagged: bool, defined: dict[str, Any]) -> dict[str, Any]:
    # a value that is named where it stands is another object than the same without its name
    name = f"{kind.__name__}.{TAG}" if tagged else kind.__name__
    if name not in defined:
        defined[name] = {}
        hints = hints_of(kind)
        held = {one: _schema(hints[one], defined) for one in _told(kind)}
        if tagged:
            held = {TAG: {"const": kind.__name__}, **held}
        defined[name] = {"type": "object", "properties": held, "required": list(held),
                         "additionalProperties": False}  # fmt: skip
    return {"$ref": f"#/$defs/{name}"}
