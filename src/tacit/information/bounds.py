"""What is known of an information: an estimate between two one-sided confidence bounds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tacit import guarantees
from tacit._ground.checks import in_interval, integer, non_negative
from tacit._ground.numbers import EPS

# Where rounding may change noise by half of itself nothing is said of it.
MOST_ERROR = 0.5
# Units in the last place that a logarithm, twice a product and their own rounding are off, at most.
SLACK_UNITS = 4.0
# The largest number below 1: what is sure has this confidence where one is asked for.
LARGEST_CONFIDENCE = math.nextafter(1.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class InformationBracket:
    """An information I(X; Y) in nats, measured: ``lower <= I`` and ``I <= upper``, each apart.

    Each of the two bounds is true with probability ``confidence`` at least, at the number of
    samples used, by an inequality that holds for finite samples. Both together are true with
    probability ``2 confidence − 1``. A side that is not bounded holds 0, or inf.

    Attributes:
        lower: Lower confidence bound, >= 0.
        estimate: Best guess, between the two.
        upper: Upper confidence bound; what a guarantee is made of.
        confidence: In (0, 1): of each bound by itself.
        samples: Draws the bounds rest on; 0 when ``upper`` needed none.
        method: Which statement the upper bound comes from.
        deterministic: Whether ``upper`` is computed without sampling, and so is always true.

    Raises:
        ValueError: A field is not what it should be, or the three are out of order.

    Example:
        >>> bound = InformationBracket(
        ...     lower=0.1, estimate=0.11, upper=0.12, confidence=0.99, samples=1000, method="any"
        ... )
        >>> bound.guarantee("the prompt", ["prompts are equally likely"]).nats
        0.12

    Source: residual-pac, Definition 4; corrected in that only ``upper`` certifies.
    """

    lower: float
    estimate: float
    upper: float
    confidence: float
    samples: int
    method: str
    deterministic: bool = False

    def __post_init__(self) -> None:
        # an order that fails would make a bound of a number that is none
        in_interval("confidence", self.confidence, 0.0, 1.0, open_low=True, open_high=True)
        integer("samples", self.samples, minimum=0)
        numbers = {name: getattr(self, name) for name in ("lower", "estimate", "upper")}
        for name, value in numbers.items():
            non_negative(name, value, allow_inf=True)
        if not 0.0 <= self.lower <= self.estimate <= self.upper:
            raise ValueError(f"lower, estimate, upper: expected 0 <= in this order, got {numbers}")

    def guarantee(
        self, secret: str, assumptions: Iterable[str] = (), *, source: str | None = None
    ) -> guarantees.InformationBound:
        """Return the upper bound as a guarantee, statistical unless it needed no sampling.

        Args:
            secret: What X is and how it is drawn, as in "tells about <secret>".
            assumptions: What must hold, one sentence each; the law of the secret belongs here.
            source: Where the bound comes from; ``method`` when None.

        Returns:
            A ``tacit.guarantees.InformationBound`` of ``upper`` nats.

        Raises:
            ValueError: ``secret`` or an assumption is empty.
        """
        # only ``upper`` certifies: what holds with certainty needs no confidence
        return guarantees.InformationBound(
            nats=self.upper,
            secret=secret,
            evidence="numerical" if self.deterministic else "statistical",
            assumptions=tuple(assumptions),
            source=self.method if source is None else source,
            confidence=None if self.deterministic else self.confidence,
        )


def bracket_of(nats: float, confidence: float, method: str) -> InformationBracket:
    """Return the bracket, at most ``nats``, of a bound that needs no sampling."""
    return InformationBracket(
        lower=0.0,
        estimate=nats,
        upper=nats,
        confidence=confidence,
        samples=0,
        method=method,
        deterministic=True,
    )


def whitening_slack(dim: int, error: float) -> float:
    """Return what whitening by rounded numbers may add to an information, rounded up; inf for much.

    Noise that is smaller by a factor 1 − ρ raises the information by ``−½ d ln(1 − ρ)`` at most.

    Args:
        dim: d.
        error: ρ, as ``whiten`` tells it.
    """
    if error >= MOST_ERROR:
        return math.inf
    # log1p keeps the digits of a small ρ; it and the product are off by a unit each, raised by more
    return -0.5 * dim * math.log1p(-error) * (1.0 + SLACK_UNITS * EPS)


def raised_by(nats: float, slack: float) -> float:
    """Return an information and what may be missing of it, rounded up."""
    # a sum is off by half a unit of itself at most; of nothing it is exact
    return math.nextafter(nats + slack, math.inf) if slack > 0.0 else nats


def lowered_by(nats: float, slack: float) -> float:
    """Return an information without what may be too much of it, rounded down."""
    return math.nextafter(nats - slack, -math.inf) if slack > 0.0 else nats


def least(bound: InformationBracket, upper: float, method: str) -> InformationBracket:
    """Return the bound with a deterministic upper bound in place of its own, where that is less."""
    # the lower bound and the estimate follow: no true value lies above ``upper``
    if upper >= bound.upper:
        return bound
    return replace(
        bound,
        lower=min(bound.lower, upper),
        estimate=min(bound.estimate, upper),
        upper=upper,
        method=method,
        deterministic=True,
    )
