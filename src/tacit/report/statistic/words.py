"""What a release means, in words a manager can repeat, and numbers rounded the safe way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Decimal

from tacit.conversions import success_from_information
from tacit.report.statistic.record import AttackRecord, ReleaseRecord

KNOWS = "An attacker who knows everything but the noise and which rows were drawn"
KNOWS_ALL = (
    "This is released without noise: an attacker who knows everything but which rows were drawn"
)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The one sentence, and whether it is "bounded", "void" (seeded) or "contradicted".

    ``success`` is the bound it states: the larger of the one stored and the one that follows from
    the stored information bound; 1.0 when void.
    """

    kind: str
    sentence: str
    success: float


def verdict(release: ReleaseRecord) -> Verdict:
    """Return the verdict on a release: bound first, strongest measured attack second."""
    bound = success_bound(release)
    measured = (
        "" if release.attack is None else f"; the strongest we ran got {plus_minus(release.attack)}"
    )
    if release.reproducible:
        sentence = (
            f"This release carries no guarantee: its noise was drawn from {seed_words(release)}, "
            "and whoever can repeat the draw can take the noise off."
        )
        return Verdict(kind="void", sentence=sentence, success=1.0)
    if release.attack is not None and _lowest(release.attack) > bound:
        sentence = (
            f"Do not release this: the bound says {percent_up(bound)} and an attack we ran got "
            f"{plus_minus(release.attack)}, so something assumed does not hold."
        )
        return Verdict(kind="contradicted", sentence=sentence, success=1.0)
    knows = KNOWS_ALL if release.noiseless else KNOWS
    sentence = (
        f"{knows} guesses membership right at most {percent_up(bound)} of the time{measured}."
    )
    return Verdict(kind="bounded", sentence=sentence, success=bound)


def success_bound(release: ReleaseRecord) -> float:
    """Return the larger of the success stored and the success the information bound gives."""
    derived = float(success_from_information(release.guarantee.nats, release.prior))
    return max(release.membership.success, derived)


def seed_words(release: ReleaseRecord) -> str:
    """Say which seed, as far as it is known."""
    return "a generator given by the caller" if release.seed is None else f"the seed {release.seed}"


def plus_minus(attack: AttackRecord) -> str:
    """Return success ± the longer side of its interval, rounded up, such as "51.2 ± 0.9%"."""
    low, high = attack.interval
    half = max(attack.success - low, high - attack.success)
    return f"{percent(attack.success)[:-1]} ± {percent_up(half)}"


def percent(value: float, digits: int = 1) -> str:
    """Return a measurement in percent, rounded to nearest."""
    return _decimal(value, digits, ROUND_HALF_EVEN)


def percent_up(value: float, digits: int = 1) -> str:
    """Return a bound in percent, rounded up, never above 100%."""
    return _decimal(min(value, 1.0), digits, ROUND_CEILING)


def significant(value: float, digits: int = 3) -> str:
    """Return ``value`` with so many significant digits, in the shorter of the two notations."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "∞" if value > 0 else "−∞"
    if 1e-4 <= abs(value) < 1e6:
        places = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
        return f"{value:,.{places}f}".replace("-", "−")
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa} × 10{superscript(int(exponent))}".replace("-", "−")


def significant_up(value: float, digits: int = 3) -> str:
    """Return a bound with so many significant digits, rounded up."""
    if value <= 0 or not math.isfinite(value):
        return significant(value, digits)
    exact = Decimal(repr(value))
    step = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    return significant(float(exact.quantize(step, rounding=ROUND_CEILING)), digits)


def beside(value: float, spread: float) -> str:
    """Return ``value`` with the digits that noise of standard deviation ``spread`` leaves."""
    if spread <= 0 or not math.isfinite(spread) or abs(value) >= 1e9:
        return significant(value, 6)
    places = 1 - math.floor(math.log10(spread))
    if places > 9:
        return significant(value, 6)
    return f"{round(value, places):,.{max(places, 0)}f}".replace("-", "−")


def superscript(number: int) -> str:
    """Return an integer in superscript figures.

    Example:
        >>> superscript(-12)
        '⁻¹²'
    """
    return str(number).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _lowest(attack: AttackRecord) -> float:
    return max(attack.interval[0], attack.worst_interval[0])


def _decimal(value: float, digits: int, rounding: str) -> str:
    # repr is the shortest decimal that reads back as the same float: 0.55 prints as 55.0%
    scaled = Decimal(repr(value)) * 100
    return f"{scaled.quantize(Decimal(1).scaleb(-digits), rounding=rounding)}%"
