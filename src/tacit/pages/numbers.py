"""Released numbers and the strength of their promise, in words."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.guarantees import GaussianDP, InformationBound, SuccessBound
from tacit.guarantees.base import Guarantee
from tacit.releases.numbers import INTERVAL_CONFIDENCE, Number
from tacit.releases.strength import epsilon_of
from tacit.text import beside, percent, percent_up, significant_up

NUMBERS_PER_LINE = 2
# Of the (ε, δ) that is told beside a μ.
TOLD_DELTA = 1e-6


def number_words(number: Number) -> str:
    """Return a number with its 95% intervals: of the noise, and with sampling."""
    words = f"{number.name} = {beside(number.value, number.error)}"
    words += f" {_interval_words(number)}" if number.error else " exactly"
    if number.sampling is None:
        return words
    return f"{words} (with sampling {_interval_words(number, sampling=True)})"


def _interval_words(number: Number, *, sampling: bool = False) -> str:
    """Return an interval as its half width, or as its ends where it ends at what is possible."""
    half = number.half_width(sampling=sampling)
    low, high = number.interval(sampling=sampling)
    if low > number.value - half or high < number.value + half:
        return f"[{beside(low, half)}, {beside(high, half)}]"
    return f"± {significant_up(half, 2)}"


def number_lines(numbers: Sequence[Number]) -> list[str]:
    """Return all numbers, some on each line, and what ± says on the first."""
    parts = [number_words(number) for number in numbers]
    starts = range(0, len(parts), NUMBERS_PER_LINE)
    found = [", ".join(parts[start : start + NUMBERS_PER_LINE]) for start in starts]
    if found:
        found[0] += f", ± {INTERVAL_CONFIDENCE:.0%}"
    return found


def strength_words(guarantees: Sequence[Guarantee]) -> str:
    """Return a promise in one line: success, and μ with what follows from it where it has one."""
    success = next((held for held in guarantees if isinstance(held, SuccessBound)), None)
    private = next((held for held in guarantees if isinstance(held, GaussianDP)), None)
    told = next((held for held in guarantees if isinstance(held, InformationBound)), None)
    parts = []
    if success is not None:
        blind = percent(success.prior)
        parts.append(f"success ≤ {percent_up(success.success)} (guessing blind {blind})")
    if private is not None:
        advantage = max(2.0 * private.success().success - 1.0, 0.0)
        parts.append(f"advantage ≤ {percent_up(advantage)}")
        parts.append(
            f"μ = {significant_up(private.mu)}, ε ≤ {significant_up(epsilon_at(private))} at δ = "
            f"{TOLD_DELTA:g}"
        )
    if told is not None:
        parts.append(f"information ≤ {significant_up(told.nats)} nats")
    held = next((held for held in guarantees if held.confidence is not None), None)
    if held is not None:
        parts.append(f"with confidence {held.confidence:g}")
    return ", ".join(parts)


def epsilon_at(private: GaussianDP, delta: float = TOLD_DELTA) -> float:
    """Return an ε at which μ gives no more than δ, the least to a thousandth.

    Example:
        >>> rest = dict(adjacency="one row", evidence="theorem", assumptions=(), source="example")
        >>> round(epsilon_at(GaussianDP(mu=1.0, **rest)), 2)
        4.89
    """
    return epsilon_of(private.mu, delta)
