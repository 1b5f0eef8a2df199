"""Released numbers and the strength of their promise, in words."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from tacit.guarantees import ApproximateDP, GaussianDP, InformationBound, SuccessBound
from tacit.guarantees.base import Guarantee
from tacit.pages.parts import Text, folded, table
from tacit.pages.rendering import breakable
from tacit.releases.numbers import Number, Numbers
from tacit.releases.showing import number_words, said_once
from tacit.releases.strength import epsilon_of
from tacit.text import chance_down, in_nats, number_up, share_nearest, share_up, whole_beside

NUMBERS_PER_LINE = 2
# Numbers that a page shows at most; its JSON has all of them.
MOST_ROWS = 500
# Of the (ε, δ) that is told beside a μ.
TOLD_DELTA = 1e-6


def number_lines(numbers: Sequence[Number], more: int = 0) -> list[str]:
    """Return all numbers, some on each line, and on the last what ± says, once.

    Args:
        numbers: to tell.
        more: how many there are besides.
    """
    parts = [f"{number.name} = {number_words(number)}" for number in numbers]
    starts = range(0, len(parts), NUMBERS_PER_LINE)
    found = [", ".join(parts[start : start + NUMBERS_PER_LINE]) for start in starts]
    if found:
        found[-1] += (f", and {more:,} more" if more else "") + f" ({said_once(found)})"
    return found


def numbers_table(numbers: Numbers, shown: int) -> Markup:
    """Return the table of numbers with their 95% intervals: some in sight, some under a summary.

    Args:
        numbers: what was released.
        shown: how many are in sight; 500 are on the page at most.
    """
    head = ["number", "released value", "95% interval, noise alone"]
    if numbers.sampling is not None:
        head.append("95% interval, with sampling")
    rows = [
        _row(number, sampled=numbers.sampling is not None)
        for number, _ in zip(numbers, range(MOST_ROWS), strict=False)
    ]
    found = table("released values", head, rows[:shown], "numbers")
    if len(rows) > shown:
        rest = table("further released values", head, rows[shown:], "numbers")
        found += folded(f"{len(rows) - shown} more numbers", rest)
    return found


def _row(number: Number, *, sampled: bool) -> list[Text]:
    """Return a number with its intervals, as many digits as the noise leaves."""
    value = Markup("<b>{}</b>").format(whole_beside(number.value, number.half_width()))
    noise = _ends(number, sampling=False) if number.error else "exact"
    cells: list[Text] = [breakable(number.name), value, noise]
    if sampled:
        known = number.sampling is not None
        cells.append(_ends(number, sampling=True) if known else "not known")
    return cells


def _ends(number: Number, *, sampling: bool) -> str:
    low, high = number.interval(sampling=sampling)
    spread = number.half_width(sampling=sampling)
    return f"{whole_beside(low, spread)} to {whole_beside(high, spread)}"


def strength_words(guarantees: Sequence[Guarantee]) -> str:
    """Return a promise in one line: success, and ε with δ, or μ with what follows from it."""
    success = next((held for held in guarantees if isinstance(held, SuccessBound)), None)
    private = next((held for held in guarantees if isinstance(held, GaussianDP)), None)
    told = next((held for held in guarantees if isinstance(held, InformationBound)), None)
    parts = []
    if success is not None:
        blind = share_nearest(success.prior)
        parts.append(f"success ≤ {share_up(success.success)} (guessing blind {blind})")
    if private is not None:
        parts.append(
            f"μ = {number_up(private.mu)}, ε ≤ {number_up(epsilon_at(private))} at δ = "
            f"{number_up(TOLD_DELTA)}"
        )
    stated = next((held for held in guarantees if isinstance(held, ApproximateDP)), None)
    if stated is not None and private is None:
        parts.append(f"ε = {number_up(stated.epsilon)} at δ = {number_up(stated.delta)}")
    if told is not None:
        parts.append(f"information ≤ {in_nats(number_up(told.nats))}")
    # of several the least, with which each of them holds
    levels = [held.confidence for held in guarantees if held.confidence is not None]
    if levels:
        parts.append(f"with confidence {chance_down(min(levels))}")
    return ", ".join(parts)


def epsilon_at(private: GaussianDP, delta: float = TOLD_DELTA) -> float:
    """Return an ε at which μ gives no more than δ, the least to a thousandth.

    Example:
        >>> rest = dict(adjacency="one row", evidence="theorem", assumptions=(), source="example")
        >>> round(epsilon_at(GaussianDP(mu=1.0, **rest)), 2)
        4.89
    """
    return epsilon_of(private.mu, delta)
