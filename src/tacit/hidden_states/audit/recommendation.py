"""Which of the measured releases to choose, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tacit.hidden_states.audit.catalogue import mechanism_of, told
from tacit.hidden_states.audit.points import Point
from tacit.hidden_states.audit.request import Wish


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """The release to choose, or none, and the reasons, a sentence each.

    Attributes:
        point: what was chosen; None when no release keeps to the wish.
        wish: what it had to keep to.
        kept: how many of the releases read under the protocol do.
        reasons: why this one, or why none.
    """

    point: Point | None
    wish: Wish
    kept: int
    reasons: tuple[str, ...]


def recommend(points: Iterable[Point], wish: Wish | None = None) -> Recommendation:
    """Choose the release that keeps most of the prediction among those that keep to the wish.

    Releases whose privacy a theorem bounds come before those that were only attacked. Among
    them the least mean KL decides, not agreement. A control, such as the likeliest token, is what
    releases are compared with, and is never recommended.

    A release is not recommended, whatever bounds it, when an attacker who knows all earlier tokens
    guesses the last one, or an attacker who learnt from releases of other prompts guesses an
    attribute, and the release raises its share of right guesses by more than ``wish.max_gain``
    (upper end of the interval). A bound on naming one of N prompts says nothing of these: their
    success does not fall with N. Attackers who name a prompt within the bank by a token they know,
    or read an attribute off the bank itself, are shown and not weighed: their success falls with N,
    as the bound does.

    Args:
        points: what ``sweep`` measured.
        wish: what the release has to keep to.

    Returns:
        The choice, with its reasons.

    Raises:
        ValueError: no points.
    """
    asked = Wish() if wish is None else wish
    every = list(points)
    if not every:
        raise ValueError("points: expected at least one, got none")
    # a control is compared with and never chosen
    released = [point for point in every if not mechanism_of(point).control]
    kept = [point for point in released if asked.holds(point)]
    if not kept:
        told = _why_none(released or every, asked)
        return Recommendation(point=None, wish=asked, kept=0, reasons=told)
    # a proof first: an attack that failed says nothing of a stronger one
    bounded = [point for point in kept if point.bound is not None]
    chosen = min(bounded or kept, key=lambda point: (point.kl.value, point.leak))
    controls = [point for point in every if mechanism_of(point).control and asked.holds(point)]
    reasons = _why(chosen, kept, controls, len(every))
    return Recommendation(point=chosen, wish=asked, kept=len(kept), reasons=reasons)


def _why(chosen: Point, kept: list[Point], controls: list[Point], compared: int) -> tuple[str, ...]:
    which = (
        "One of the releases measured keeps"
        if len(kept) == 1
        else (f"{len(kept)} of the releases measured keep")
    )
    reasons = [f"{which} every limit asked for, also at the bad end of what was measured."]
    if chosen.bound is not None:
        proof = mechanism_of(chosen).proof
        reasons.append(
            f"What it tells is bounded: proven by {proof}, not by the failure of attacks we ran."
        )
    else:
        reasons.append(
            "No release with a proof keeps the limits: this one rests on the attacks we ran, and a "
            "stronger attack may do better."
        )
    rivals = [p for p in kept if (p.bound is None) == (chosen.bound is None) and p is not chosen]
    if rivals:
        second = min(rivals, key=lambda point: point.kl.value)
        reasons.append(
            f"Of those it changes the prediction least: {chosen.kl.value:.2f} nats of KL on "
            f"average, {second.kl.value:.2f} for the next ({told(second)})."
        )
    reasons.append(_gains(chosen))
    if controls:
        control = controls[0]
        reasons.append(
            f"The control, which {mechanism_of(control).control}, agrees "
            f"{control.agreement.value:.0%} of the time but is {control.kl.value:.2f} nats "
            "away from the whole prediction."
        )
    if compared > 1:
        reasons.append(
            f"Every interval holds by itself, not all of them at once: the best of {compared} "
            "releases looks better than it is, so measure the chosen one again on fresh prompts."
        )
    return tuple(reasons)


def _gains(chosen: Point) -> str:
    weighed = [guess for guess in chosen.guesses if guess.weighed]
    if not weighed:
        return (
            "No attacker was run who knows all earlier tokens or learns attributes: what they gain "
            "is not known."
        )
    most = max(weighed, key=lambda guess: guess.gain.high)
    told = f" who knows {most.knows}" if most.knows else ""
    return (
        f"Of the attackers who know or ask other things, the one{told} gains most: it guesses "
        f"{most.task} right for {most.success.value:.1%} of {most.queries:,} prompts, and for "
        f"{most.prior.value:.1%} without the release."
    )


def _why_none(every: list[Point], wish: Wish) -> tuple[str, ...]:
    read = [point for point in every if point.protocol == wish.protocol]
    if not read:
        whose = {
            "A": "by whoever also holds the clean earlier positions",
            "B": "by whoever holds the release alone",
        }[wish.protocol]
        return (f"No release was read {whose} (protocol {wish.protocol}).",)
    known = [point for point in read if wish.releases == 1 or point.bound is not None]
    if not known:
        return (f"No theorem bounds {wish.releases} releases about one prompt of those measured.",)
    # limits one after the other: the sentence names the first that nothing keeps
    private = [point for point in known if point.leak <= wish.max_attack]
    if not private:
        nearest = min(known, key=lambda point: point.leak)
        return (
            f"No release keeps attacks to {wish.max_attack:.1%}{_of_bank(nearest, wish)}; the most "
            f"private ({told(nearest)}) is held to {nearest.leak:.1%}.",
        )
    quiet = [point for point in private if wish.gains_little(point)]
    if not quiet:
        least = min(private, key=lambda point: point.gain)
        return (
            f"Every release that keeps attacks to {wish.max_attack:.1%} raises the success of an "
            f"attacker who knows the earlier tokens, or guesses an attribute, by more than "
            f"{wish.max_gain:.1%} points at the upper end; the one that raises it least is "
            f"{told(least)}, by {least.gain:.1%}.",
        )
    private = quiet
    useful = max(private, key=lambda point: point.agreement.value)
    gentle = min(private, key=lambda point: point.kl.value)
    return (
        f"Of the releases that keep attacks to {wish.max_attack:.1%}{_of_bank(useful, wish)}, the "
        f"one that agrees most ({told(useful)}) agrees on {useful.agreement.value:.1%} of prompts, "
        f"and the least KL is {gentle.kl.value:.2f} nats ({told(gentle)}).",
    )


def _of_bank(point: Point, wish: Wish) -> str:
    """Say the game and the law behind a percentage."""
    times = "" if wish.releases == 1 else f" from {wish.releases} releases"
    return f" at naming one of {point.bank:,} equally likely prompts{times}"
