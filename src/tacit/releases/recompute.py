"""What kinds of release work out again alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tacit.conversions import success_from_information
from tacit.guarantees import SuccessBound
from tacit.guarantees.base import Guarantee
from tacit.releases.release import DERIVED, Release

# What double precision and a change of basis may lose.
ROUNDING = 1e-9


def check_designed(release: Release[Any], designed: float | None) -> None:
    """Refuse a bound on the information below the one that the noise was designed for.

    Raises:
        ValueError: it is.
    """
    told = release.information
    if designed is not None and told is not None and told < designed:
        raise ValueError(
            f"the noise was designed for {designed!r} nats, the guarantee says {told!r}"
        )


def check_derived(release: Release[Any]) -> None:
    """Refuse a success below what the information beside it gives, where that is its source.

    Raises:
        ValueError: one is.
    """
    told = release.information
    for held in release.guarantees if told is not None else ():
        if isinstance(held, SuccessBound) and DERIVED in held.source:
            least = float(success_from_information(told, held.prior))  # type: ignore[arg-type]
            if held.success < least * (1.0 - ROUNDING):
                raise ValueError(
                    f"the information beside a success of {held.success:.6g} gives {least:.6g}"
                )


def check_assumed(release: Release[Any], expected: Sequence[str]) -> None:
    """Refuse guarantees from which an assumption was removed.

    Raises:
        ValueError: the message says how many are missing.
    """
    for held in release.guarantees:
        missing = sum(line not in held.assumptions for line in expected)
        if missing:
            raise ValueError(f"{missing} of the assumptions were removed")


def only(release: Release[Any], kind: type[Guarantee]) -> Any:
    """Return the one guarantee of a type; None where there is none.

    Raises:
        ValueError: there are two.
    """
    found = [held for held in release.guarantees if isinstance(held, kind)]
    if len(found) > 1:
        raise ValueError(f"it states two guarantees of type {kind.__name__}")
    return found[0] if found else None
