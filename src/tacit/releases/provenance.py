"""Where a release comes from, so that it can be made again."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tacit import __version__

# What every file and text that is not for publication says of itself.
KEPT = (
    "Keep this {} with the data: it is for the holder of the secret, and not all of it is "
    "certified. What may be published is the certificate, or published()."
)


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """How a release was made.

    ``command`` is the command line or call; ``data_name``, ``data_fingerprint`` (SHA-256),
    ``data_rows``, ``data_columns``, ``data_categories`` (the levels that codes stand for),
    ``data_observed`` (those of them whose levels were read from the table and not declared) and
    ``data_notes`` describe the pool; ``created`` is ISO-8601 UTC.

    Example:
        >>> Provenance.capture("tacit statistic ages.csv", data_rows=150).data_rows
        150
    """

    command: str
    created: str
    tacit_version: str
    python_version: str
    numpy_version: str
    platform: str
    data_name: str | None = None
    data_fingerprint: str | None = None
    data_rows: int | None = None
    data_columns: tuple[str, ...] = ()
    data_categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    data_observed: tuple[str, ...] = ()
    data_notes: tuple[str, ...] = ()
    secret: str | None = None
    ledger: str | None = None

    @classmethod
    def capture(
        cls,
        command: str,
        *,
        data_name: str | None = None,
        data_fingerprint: str | None = None,
        data_rows: int | None = None,
        data_columns: tuple[str, ...] = (),
        data_categories: Mapping[str, tuple[str, ...]] | None = None,
        data_observed: tuple[str, ...] = (),
        data_notes: tuple[str, ...] = (),
        secret: str | None = None,
        ledger: str | None = None,
    ) -> Provenance:
        """Return the provenance of a release made by this process, now."""
        return cls(
            command=command,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            tacit_version=__version__,
            python_version=platform.python_version(),
            numpy_version=np.__version__,
            platform=platform.platform(terse=True),
            data_name=data_name,
            data_fingerprint=data_fingerprint,
            data_rows=data_rows,
            data_columns=tuple(data_columns),
            data_categories=dict(data_categories or {}),
            data_observed=tuple(data_observed),
            data_notes=tuple(data_notes),
            secret=secret,
            ledger=ledger,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary."""
        levels = {name: list(levels) for name, levels in self.data_categories.items()}
        return {
            "audience": KEPT.format("file"),
            **asdict(self),
            "data_columns": list(self.data_columns),
            "data_categories": levels,
            "data_observed": list(self.data_observed),
            "data_notes": list(self.data_notes),
        }


def check_provenance(name: str, held: Any) -> None:
    """Refuse what no ``to_dict`` of a provenance gives: another field, or a value of another kind.

    Raises:
        ValueError: the message starts with ``name``.
    """
    if not isinstance(held, Mapping):
        raise ValueError(f"{name}: expected a mapping, got {type(held).__name__}")
    known = {"audience", *(entry.name for entry in fields(Provenance))}
    if not set(held) <= known:
        raise ValueError(f"{name}: expected the fields of a provenance, got an unknown one")
    columns = held.get("data_columns") or ()
    for entry, value in held.items():
        levels = entry == "data_categories" and isinstance(value, Mapping)
        if levels and not set(value) <= set(columns):
            raise ValueError(f"{name}.{entry}: expected levels of the columns named")
        for part in value.values() if levels else (value,):
            if isinstance(part, Mapping) or (
                isinstance(part, (list, tuple)) and not all(isinstance(one, str) for one in part)
            ):
                raise ValueError(f"{name}.{entry}: expected text, a number or a list of texts")
