"""Where a release comes from, so that it can be made again."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from tacit import __version__
from tacit._ground.checks import integer

# What every file and text that is not for publication says of itself.
KEPT = (
    "Keep this {} with the data: it is for the holder of the secret, and not all of it is "
    "certified. What may be published is the certificate, or published()."
)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """How a release was made; for the holder of the secret.

    Attributes:
        command: the command line or call.
        data_name: what was read.
        data_fingerprint: its SHA-256.
        data_rows: how many rows or records it has.
        data_columns: their columns.
        data_categories: the levels that codes stand for, by column.
        data_observed: those columns whose levels were read from the table and not declared.
        data_notes: what was said of it when it was read.
        secret: its name in the ledger.
        ledger: where that is.
        audience: whom this is for.
        created: ISO 8601, UTC.
        tacit_version: of this library.
        python_version: of Python.
        numpy_version: of NumPy.
        platform: of the machine.

    Example:
        >>> Provenance(command="tacit statistic ages.csv", data_rows=150).data_rows
        150
    """

    command: str
    data_name: str | None = None
    data_fingerprint: str | None = None
    data_rows: int | None = None
    data_columns: tuple[str, ...] = ()
    data_categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    data_observed: tuple[str, ...] = ()
    data_notes: tuple[str, ...] = ()
    secret: str | None = None
    ledger: str | None = None
    audience: str = KEPT.format("file")
    created: str = field(default_factory=_now)
    tacit_version: str = __version__
    python_version: str = field(default_factory=platform.python_version)
    numpy_version: str = np.__version__
    platform: str = field(default_factory=lambda: platform.platform(terse=True))

    def __post_init__(self) -> None:
        if self.data_rows is not None:
            integer("data_rows", self.data_rows, minimum=0)
        if not set(self.data_categories) <= set(self.data_columns):
            raise ValueError(
                "data_categories: expected levels of the columns named, got other values"
            )
