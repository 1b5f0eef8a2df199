"""What one check found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One check, and what it found.

    Attributes:
        check: its name.
        well: whether Tacit can be used as far as this check sees.
        sentence: what was found, and where it is not well what to do.
    """

    check: str
    well: bool
    sentence: str
