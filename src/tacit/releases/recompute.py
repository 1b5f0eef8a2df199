"""What kinds of release work out again alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tacit._ground.reprs import shown
from tacit.attacks.intervals import least_upper_end
from tacit.guarantees.agreement import agree
from tacit.guarantees.base import Guarantee
from tacit.releases.release import Attack, Release

# What every release that draws assumes; a seed voids it, which is a state and no assumption.
FROM_SYSTEM = "the randomness is the operating system's"
# What double precision and a change of basis may lose.
ROUNDING = 1e-9
# By how much the same sum of logarithms differs between machines, and more.
LOGARITHM = 1e-12


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


def check_assumed(release: Release[Any], expected: Sequence[str]) -> None:
    """Refuse guarantees from which an assumption was removed.

    Raises:
        ValueError: the message says how many are missing.
    """
    for held in release.guarantees:
        missing = sum(line not in held.assumptions for line in expected)
        if missing:
            raise ValueError(f"{missing} of the assumptions were removed or changed")


def check_rebuilt(release: Release[Any], rebuilt: Release[Any]) -> None:
    """Refuse words, guarantees and measurements other than those that the details give.

    Args:
        release: as it was read.
        rebuilt: what its workflow makes of the details alone; ends of intervals may differ from it
            by what machines do.

    Raises:
        ValueError: a field is another; the message says which.
    """
    for name in ("title", "secret", "method", "guarantees", "withheld", "notes"):
        if getattr(release, name) != getattr(rebuilt, name):
            raise ValueError(f"its details give another {name}")
    for name in ("attacks", "use"):
        told, given = getattr(release, name), getattr(rebuilt, name)
        if len(told) != len(given) or not all(map(_same, told, given)):
            raise ValueError(f"its details give another {name}")


def _same(told: Any, given: Any) -> bool:
    """Whether two attacks or two uses are one, the ends of their intervals up to rounding."""
    apart = [{**vars(one)} for one in (told, given)]
    first, second = (one.pop("success", None) or one.pop("measured") for one in apart)
    ends = zip(*((held.value, held.low, held.high) for held in (first, second)), strict=True)
    near = all(math.isclose(*pair, rel_tol=ROUNDING, abs_tol=ROUNDING) for pair in ends)
    return apart[0] == apart[1] and near and first.confidence == second.confidence


def check_trained(
    release: Release[Any], stated: Sequence[Guarantee], words: Sequence[str], files: Sequence[str]
) -> None:
    """Refuse what a run under differential privacy says of itself beside what its settings certify.

    Args:
        release: as it was read.
        stated: the guarantees that its settings give.
        words: what is hidden, the name of the method, and what may be published: the first note.
        files: what the digests are of, in order.

    Raises:
        ValueError: names what contradicts what.
    """
    check_measured(release.attacks)
    if not agree(release.guarantees, stated):
        raise ValueError("guarantees: expected what the settings certify, got other values")
    secret, method, note = words
    if release.secret != secret:
        raise ValueError(f"secret: expected {secret!r}, got {shown(release.secret)}")
    if release.notes[:1] != (note,):
        raise ValueError("notes: expected what may be published first, got another")
    if release.method != method:
        raise ValueError(f"method: expected {method!r}, got {shown(release.method)}")
    if release.reproducible != (release.seed is not None):
        raise ValueError("seed: expected a seed where the run can be repeated, and none elsewhere")
    if [name for name, _ in release.digests] != list(files):
        raise ValueError(f"digests: expected those of {' and '.join(files)}, got other values")


def check_measured(attacks: Sequence[Attack]) -> None:
    """Refuse an attack whose interval ends below what so many trials give at its level.

    Raises:
        ValueError: one does.
    """
    for place, attack in enumerate(attacks):
        check_interval(f"attacks[{place}]", attack)


def check_interval(name: str, attack: Attack) -> None:
    """Refuse an interval that ends below what so many trials give at its level.

    Raises:
        ValueError: it does; ``name`` is the attack's.
    """
    found = attack.success
    if found.confidence is None:
        raise ValueError(f"{name}.success.confidence: expected a number, got None")
    # no interval of this level that so many trials give ends below this
    least = least_upper_end(found.value, attack.trials, found.confidence)
    if found.high < least * (1.0 - ROUNDING):
        raise ValueError(
            f"{name}.success.high: {attack.trials} trials give an upper end of {least:.6g} at "
            f"least, got {found.high:.6g}"
        )


def only(release: Release[Any], kind: type[Guarantee]) -> Any:
    """Return the one guarantee of a type; None where there is none.

    Raises:
        ValueError: there are two.
    """
    found = [held for held in release.guarantees if isinstance(held, kind)]
    if len(found) > 1:
        raise ValueError(f"it states two guarantees of type {kind.__name__}")
    return found[0] if found else None


def check_stated(
    release: Release[Any], expected: Sequence[Guarantee], *, slack: float = LOGARITHM
) -> None:
    """Refuse guarantees other than those that the details give.

    Args:
        release: what was read.
        expected: its guarantees, worked out again.
        slack: what may differ of a number near 0, absolutely.

    Raises:
        ValueError: one of another type, in other words, or of another number than logarithms of
            two machines differ by.
    """
    if [type(held) for held in release.guarantees] != [type(right) for right in expected]:
        raise ValueError("its guarantees have other types than those its details give")
    for held, right in zip(release.guarantees, expected, strict=True):
        name, given, wanted = type(held).__name__, held.to_dict(), right.to_dict()
        missing = set(wanted["assumptions"]) - set(given["assumptions"])
        if missing:
            raise ValueError(f"{len(missing)} of the assumptions were removed or changed")
        # a factor was held against its nats when it was read
        for field in wanted.keys() - {"factor"}:
            one, other = given[field], wanted[field]
            near = isinstance(other, float) and isinstance(one, int | float)
            if not (
                math.isclose(one, other, rel_tol=LOGARITHM, abs_tol=slack) if near else one == other
            ):
                raise ValueError(
                    f"its details give another {field!r} of the guarantee {name}: {shown(other)}, "
                    f"not {shown(one)}"
                )
