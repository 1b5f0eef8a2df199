"""Maximal leakage: by how much a release can multiply anyone's chance of a right guess."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from tacit._ground.checks import as_float, in_interval, integer, non_negative
from tacit._ground.numbers import exp_up, log_up, rounded_down, rounded_up
from tacit._ground.reprs import short_repr
from tacit.guarantees.base import Guarantee, items, text
from tacit.guarantees.information import InformationBound, SuccessBound
from tacit.text import in_nats, number_up, share_up

# How far a factor and its logarithm may stand apart by rounding, here or on another machine.
ROUNDING = 1e-12
# Products of more factors than these are taken as exponentials of their nats.
EXACT_TIMES = 1024
# A factor below the first is written as the integer that it is, one below the second with digits,
# and any other as a power of e.
WHOLE, DECIMAL = 1e15, 1e6
# Why leakage bounds information.
SIBSON = "Sibson's information of order ∞ is at least that of order 1"


@short_repr
@dataclass(frozen=True, kw_only=True)
class MaximalLeakage(Guarantee):
    """The release multiplies any attacker's chance of guessing anything right by at most a factor.

    For every law of the secret X, every function of X, randomised or not, and all side information
    Z with Z – X – Y: ``P(right with Y) <= factor · P(right without Y)``, and
    ``factor = Σ_y max_x P(y | x)`` is the least such number. It multiplies over releases, chosen
    adaptively too: ``Σ_{y, y'} max_x P(y | x) P(y' | x, y) <= Σ_y max_x P(y | x) · factor'``.

    Args:
        secret: What X is, as in "anything about <secret>".
        factor: The bound, >= 1; inf where it says nothing or is too large for a float. Left out,
            exp(nats), rounded up.
        nats: Its logarithm, >= 0. Left out, ln(factor), rounded up.
        releases: Releases about one secret that the bound covers.
        evidence: As in `Guarantee`.
        assumptions: As in `Guarantee`.
        source: As in `Guarantee`.
        confidence: As in `Guarantee`.

    Raises:
        ValueError: A field is not what it should be, or factor and nats contradict each other.

    Example:
        >>> bound = MaximalLeakage(
        ...     factor=64, secret="the prompt", evidence="theorem", assumptions=(), source="example"
        ... )
        >>> round(bound.nats, 4), round(bound.success(0.01, "its first token").success, 4)
        (4.1589, 0.64)

    Source: Issa, Wagner and Kamath (2020), Theorem 1.
    """

    secret: str
    factor: float = None  # type: ignore[assignment]
    nats: float = None  # type: ignore[assignment]
    releases: int = 1

    number_fields: ClassVar[tuple[str, ...]] = ("factor", "nats")

    def __post_init__(self) -> None:
        super().__post_init__()
        text("secret", self.secret)
        # either follows from the other, upwards: a code has an integer factor, noise may have only
        # nats
        if self.factor is None and self.nats is None:
            raise ValueError("factor: expected a factor >= 1 or its nats, got neither")
        if self.factor is None:
            nats = non_negative("nats", self.nats, allow_inf=True)
            factor = exp_up(nats)
        else:
            factor = as_float("factor", self.factor)
            if factor < 1:
                raise ValueError(f"factor: expected a number >= 1, got {factor!r}")
            given = log_up(factor) if self.nats is None else self.nats
            nats = non_negative("nats", given, allow_inf=True)
        if not _agree(factor, nats):
            raise ValueError(f"nats: expected the logarithm of {factor!r}, got {nats!r}")
        self._set("factor", factor)
        self._set("nats", nats)
        self._set("releases", integer("releases", self.releases, minimum=1))

    def success(self, prior: float, task: str) -> SuccessBound:
        """Bound the success of any attacker who is right with this probability without the release.

        Args:
            prior: Its success without the release and with all else it knows, in (0, 1).
            task: What is guessed.

        Returns:
            The bound min(1, factor · prior), rounded up.

        Raises:
            ValueError: ``prior`` is outside (0, 1).

        Source: Issa, Wagner and Kamath (2020), Definition 1.
        """
        chance = in_interval("prior", prior, 0, 1, open_low=True, open_high=True)
        # factor · prior as a fraction, rounded once
        most = 1.0
        if not math.isinf(self.factor):
            most = min(1.0, rounded_up(Fraction(self.factor) * Fraction(chance)))
        return SuccessBound(
            success=max(most, chance),
            prior=chance,
            task=task,
            law=f"enough to be right {share_up(chance)} of the time without the release",
            evidence=self.evidence,
            assumptions=self.assumptions,
            source=f"{self.source}; Issa, Wagner and Kamath (2020), Definition 1",
            confidence=self.confidence,
        )

    def success_by_candidates(self, candidates: Iterable[int]) -> tuple[tuple[int, float], ...]:
        """Return (N, largest success at naming the secret among N equally likely ones).

        Args:
            candidates: Numbers N >= 2.

        Returns:
            min(1, factor/N), rounded up, for every N in order.

        Raises:
            ValueError: A number is not an integer >= 2.

        Example:
            >>> bound = MaximalLeakage(
            ...     factor=64, secret="the prompt", evidence="theorem", assumptions=(), source="-"
            ... )
            >>> bound.success_by_candidates([10, 100, 6400])
            ((10, 1.0), (100, 0.64), (6400, 0.01))
        """
        sizes = [integer("candidates", size, minimum=2) for size in items("candidates", candidates)]
        if math.isinf(self.factor):
            return tuple((size, 1.0) for size in sizes)
        exact = Fraction(self.factor)
        return tuple((size, min(1.0, rounded_up(exact / size))) for size in sizes)

    def information(self) -> InformationBound:
        """Return the bound ``I(X; Y) <= nats``, which holds for every law of the secret.

        Source: Issa, Wagner and Kamath (2020), Section III; Sibson (1969).
        """
        return InformationBound(
            nats=self.nats,
            secret=self.secret,
            evidence=self.evidence,
            assumptions=self.assumptions,
            source=f"{self.source}; {SIBSON}",
            confidence=self.confidence,
        )

    def repeated(self, times: int) -> MaximalLeakage:
        """Return the bound on so many releases like this one about the same secret.

        Args:
            times: How often, >= 1; each time with coins of its own.

        Returns:
            The guarantee with factor^times, rounded up.

        Raises:
            ValueError: ``times`` is not an integer >= 1.

        Example:
            >>> bound = MaximalLeakage(
            ...     factor=64, secret="the prompt", evidence="theorem", assumptions=(), source="-"
            ... )
            >>> bound.repeated(2).factor, bound.repeated(2).releases
            (4096.0, 2)
        """
        count = integer("times", times, minimum=1)
        if count == 1:
            return self
        # exactly while the factors are few and their product a float; by their nats beyond
        nats = math.inf if math.isinf(self.nats) else rounded_up(Fraction(self.nats) * count)
        fits = count <= EXACT_TIMES and not math.isinf(exp_up(nats))
        factor = rounded_up(Fraction(self.factor) ** count) if fits else exp_up(nats)
        return self._together(factor, nats, self.releases * count)

    def _together(self, factor: float, nats: float, releases: int) -> MaximalLeakage:
        return MaximalLeakage(
            factor=factor,
            nats=nats,
            secret=self.secret,
            releases=releases,
            evidence=self.evidence,
            assumptions=self.assumptions,
            source=self.source,
            confidence=self.confidence,
        )

    def _statement(self) -> str:
        seen = "one release" if self.releases == 1 else f"{self.releases} releases"
        return (
            f"Seeing {seen} multiplies any attacker's chance of guessing anything about "
            f"{self.secret} right by at most {factor_words(self)} "
            f"({in_nats(number_up(self.nats))}), for every prior and all side "
            "information but the coins of the release"
        )


def compose_leakage(parts: Sequence[MaximalLeakage]) -> MaximalLeakage:
    """Return the maximal leakage of several releases about one secret: factors multiply.

    It holds for releases chosen one after the other by what was seen, as long as the bound of each
    holds given all that was released before it.

    Args:
        parts: The guarantees, all about the same secret.

    Returns:
        The guarantee; statistical when one of them is, at the sum of their failures.

    Raises:
        ValueError: None are given, they are about different secrets, or the failures add up to 1.

    Example:
        >>> one = MaximalLeakage(
        ...     factor=3, secret="the prompt", evidence="theorem", assumptions=(), source="-"
        ... )
        >>> compose_leakage([one, one.repeated(2)]).factor
        27.0

    Source: Issa, Wagner and Kamath (2020), composition; the sum over y' is at most factor' for
    every y.
    """
    held = items("parts", parts)
    if not held or not all(isinstance(part, MaximalLeakage) for part in held):
        raise ValueError("parts: expected guarantees of maximal leakage, got none or others")
    secrets = {part.secret for part in held}
    if len(secrets) > 1:
        raise ValueError(f"parts: expected one secret, got {len(secrets)} different ones")
    # nats add, factors multiply: in fractions, each rounded up once
    infinite = any(math.isinf(part.nats) for part in held)
    nats = math.inf if infinite else rounded_up(sum((Fraction(p.nats) for p in held), Fraction(0)))
    factor = exp_up(nats)
    if len(held) <= EXACT_TIMES and not math.isinf(factor):
        factor = rounded_up(math.prod((Fraction(part.factor) for part in held), start=Fraction(1)))
    # union bound over the statistical ones, as a sum of fractions
    failure = sum(
        (1 - Fraction(p.confidence) for p in held if p.confidence is not None), Fraction()
    )
    shared: dict[str, Any] = {"evidence": _weakest(held)}
    confidence = rounded_down(1 - failure)
    if confidence <= 0:
        raise ValueError(
            "parts: expected failures, 1 − confidence, that add up to less than 1, got "
            f"{float(failure):.6g}"
        )
    if failure:
        shared["confidence"] = confidence
    return MaximalLeakage(
        factor=factor,
        nats=nats,
        secret=held[0].secret,
        releases=sum(part.releases for part in held),
        assumptions=tuple(dict.fromkeys(line for part in held for line in part.assumptions)),
        source="; ".join(dict.fromkeys(part.source for part in held)),
        **shared,
    )


def factor_words(bound: MaximalLeakage) -> str:
    """Return the factor as a reader sees it: integers whole, others rounded up."""
    if bound.factor < WHOLE and bound.factor == int(bound.factor):
        return f"{int(bound.factor):,}"
    if bound.factor < DECIMAL:
        return number_up(bound.factor)
    return "∞" if math.isinf(bound.nats) else f"e^{number_up(bound.nats)}"


def _weakest(parts: Sequence[MaximalLeakage]) -> str:
    """Return the evidence of a conjunction: the weakest of its parts."""
    kinds = [part.evidence for part in parts]
    return next((kind for kind in ("statistical", "numerical") if kind in kinds), "theorem")


def _agree(factor: float, nats: float) -> bool:
    # a factor beyond doubles is inf, its nats are not
    if math.isinf(factor) or math.isinf(nats):
        return math.isinf(exp_up(nats)) and math.isinf(factor)
    return abs(math.log(factor) - nats) <= ROUNDING * max(1.0, nats)
