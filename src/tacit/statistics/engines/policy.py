"""A file that declares tables, persons, bounds, keys and a budget, so that nobody retypes them."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tacit._ground.numbers import LARGEST
from tacit.releases.promises import AUTO
from tacit.releases.strength import gaussian_mu

KNOWN = {
    "person": str, "unit": str, "clip": (int, float, str), "max_rows": int, "max_groups": int,
    "ledger": str, "secret": str,
    "database": str, "tables": dict, "bounds": dict, "keys": dict, "budget": dict, "query": dict,
}  # fmt: skip
SETTINGS = ("person", "unit", "clip", "max_rows", "max_groups", "ledger", "secret", "database")
STRENGTHS = ("success", "mu", "epsilon", "delta", "rho")


@dataclass(frozen=True)
class TablePolicy:
    """What was declared of tables and their persons, before anybody asked anything.

    Attributes:
        tables: paths, or names in a database, by the names that queries use.
        public: names of those that hold no persons.
        bounds: (lowest, highest) of columns, by name.
        keys: values of columns that queries group by.
        settings: person, unit, clip, caps, ledger, secret and database, where they were given.
        query: how strongly one query protects, where it does not say.
        budget: what may be spent in all: mu, or epsilon alone.
    """

    tables: Mapping[str, str] = field(default_factory=dict)
    public: tuple[str, ...] = ()
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    keys: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    query: Mapping[str, float] = field(default_factory=dict)
    budget: Mapping[str, float] = field(default_factory=dict)


def read_policy(path: str) -> TablePolicy:
    """Return the policy of a TOML file; its paths are those beside it.

    Raises:
        ValueError: a file that is none, or an entry that is not known.

    Example:
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "data.toml"
        >>> _ = file.write_text('person = "customer"\\n[tables]\\nvisits = "visits.parquet"\\n')
        >>> read_policy(str(file)).settings["person"]
        'customer'
    """
    try:
        content = tomllib.loads(Path(os.path.expanduser(path)).read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"policy: cannot read {path} ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise ValueError(f"policy: expected TOML, got another file: {path}") from None
    for name, held in content.items():
        if name not in KNOWN:
            raise ValueError(f"policy: expected {', '.join(KNOWN)}, got {name!r}")
        if not isinstance(held, KNOWN[name]) or isinstance(held, bool):  # type: ignore[arg-type]
            raise ValueError(f"policy: expected another kind of value for {name!r}")
    folder = Path(os.path.expanduser(path)).parent
    tables, public = _tables(content.get("tables", {}), folder, "database" in content)
    settings: dict[str, Any] = {name: content[name] for name in SETTINGS if name in content}
    if "ledger" in settings:
        settings["ledger"] = _ledger(settings["ledger"], folder)
    return TablePolicy(
        tables=tables,
        public=public,
        bounds={name: _ends(name, held) for name, held in content.get("bounds", {}).items()},
        keys={name: _values(name, held) for name, held in content.get("keys", {}).items()},
        settings=settings,
        query=_strength("query", content.get("query", {})),
        budget=_budget(content.get("budget", {})),
    )


def _ledger(place: str, folder: Path) -> str:
    """Return where a ledger is: its file beside the declarations, from wherever they are read."""
    kind, url, path = place.partition("://")
    if url and not kind.startswith("sqlite"):
        return place
    file = path.removeprefix("/").partition("?")[0] if url else place
    if file.startswith("file:"):
        # SQLite reads a path out of it, and the budget hangs on which file it is
        raise ValueError("policy: expected a path or a URL of a ledger, got a URI of SQLite")
    # one without a file is refused where it is opened
    return place if file in ("", ":memory:") else _beside(folder, "ledger", file)


def _beside(folder: Path, name: str, path: str) -> str:
    try:
        return str(folder / Path(path).expanduser())
    except RuntimeError:
        # a user unknown to the system
        raise ValueError(f"policy: expected a path of {name}, got {path!r}") from None


def _tables(
    declared: Mapping[str, Any], folder: Path, there: bool
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return what tables are, and which are public: ``visits = PATH``, or a table of its own."""
    found, public = {}, []
    for name, held in declared.items():
        own = {"path": held} if isinstance(held, str) else held
        if not isinstance(own, dict) or not set(own) <= {"path", "public"}:
            raise ValueError(f"policy: expected path and public of the table {name!r}")
        path = own.get("path", name if there else None)
        if not isinstance(path, str):
            raise ValueError(f"policy: expected a path of the table {name!r}, got none")
        found[name] = path if there else _beside(folder, f"the table {name!r}", path)
        if not isinstance(own.get("public", False), bool):
            raise ValueError(f"policy: expected true or false for public of {name!r}")
        if own.get("public", False):
            public.append(name)
    return found, tuple(public)


def _is_number(held: Any) -> bool:
    """Whether it is a number that a double holds; TOML has integers of any length."""
    if isinstance(held, int) and not isinstance(held, bool):
        return abs(held) <= LARGEST
    return isinstance(held, float)


def _ends(name: str, held: Any) -> Any:
    if held == AUTO:
        return AUTO
    numbers = isinstance(held, list) and all(map(_is_number, held))
    if not numbers or len(held) != 2:
        raise ValueError(f"policy: expected [lowest, highest] for bounds of {name!r}")
    return float(held[0]), float(held[1])


def _values(name: str, held: Any) -> tuple[Any, ...]:
    listed = isinstance(held, list) and held
    words = listed and all(isinstance(one, str) and one for one in held)
    numbers = listed and all(map(_is_number, held))
    if not (words or numbers) or len(set(held)) < len(held):
        raise ValueError(f"policy: expected a list of different texts or numbers for {name!r}")
    return tuple(held)


def _strength(name: str, held: Mapping[str, Any]) -> dict[str, float]:
    for one, number in held.items():
        if one not in STRENGTHS or not _is_number(number):
            raise ValueError(f"policy: expected numbers for {', '.join(STRENGTHS)} of {name!r}")
    return {one: float(number) for one, number in held.items()}


def _budget(held: Mapping[str, Any]) -> dict[str, float]:
    """Return what a ledger counts: μ of a Gaussian law, or ε where no δ was given."""
    told = _strength("budget", held)
    if not told:
        return {}
    if set(told) == {"epsilon"}:
        return told
    try:
        given = {name: told.get(name) for name in STRENGTHS}
        return {"mu": gaussian_mu(prior=0.5, **given)}
    except (TypeError, ValueError):
        raise ValueError(
            "policy: expected epsilon and delta, epsilon alone, mu, rho or success of the budget"
        ) from None
