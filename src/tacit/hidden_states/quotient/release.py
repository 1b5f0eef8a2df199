"""Quotients with their noise as a release: how it is worked out again, and its file."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from tacit._ground.checks import Array, integer
from tacit._ground.frozen import array_value
from tacit.codec import APART
from tacit.guarantees.base import Guarantee
from tacit.hidden_states.codebooks.certificates import PROMPT
from tacit.hidden_states.codebooks.release import NO_DIGEST_OF_STATES
from tacit.hidden_states.origin import check_digests
from tacit.hidden_states.quotient.ball import Ball
from tacit.releases import Kind, Release
from tacit.releases.recompute import FROM_SYSTEM, check_stated
from tacit.releases.stores import Layout, RowDetails, check_rows

KIND = "hidden-quotients"
QUOTIENT = "quotient"


@array_value(kw_only=True)
class QuotientRows(RowDetails):
    """Noisy quotients; nothing clean inside.

    Attributes:
        rows: n.
        ball: k, R and σ.
        releases: T, rows about one prompt at most.
        quotients: what to publish, (n, k); None where only the certificate was read.
    """

    tensor: ClassVar[str] = "quotients"
    decoder: ClassVar[str] = "the quotient"

    rows: int
    ball: Ball
    releases: int = 1
    quotients: Annotated[Array | None, APART] = field(default=None)

    def __post_init__(self) -> None:
        integer("rows", self.rows, minimum=1)
        integer("releases", self.releases, minimum=1)

    @property
    def layout(self) -> Layout:
        return Layout(self.tensor, (self.rows, self.ball.dimension), np.dtype("<f8"))


def guarantees_of(details: QuotientRows) -> tuple[Guarantee, ...]:
    """Return the theorems of the ball with where the noise comes from."""
    return tuple(
        replace(held, assumptions=(*held.assumptions, FROM_SYSTEM))
        for held in details.ball.guarantees(releases=details.releases)
    )


def words_of(details: QuotientRows) -> dict[str, Any]:
    """Return the fields of a release of quotients that follow from its details."""
    ball, times = details.ball, details.releases
    one = "one row a prompt" if times == 1 else f"up to {times} rows a prompt"
    return {
        "title": f"{details.rows:,} quotients of {ball.dimension:,} numbers, with noise",
        "secret": PROMPT,
        "method": (
            f"clipped to length {ball.radius:.6g}, noise of deviation {ball.noise_std:.6g} in "
            "every number"
        ),
        "notes": (
            f"{one}: what T rows about one prompt tell adds up to T times the nats of one, and "
            "their factors multiply",
            NO_DIGEST_OF_STATES.format("quotients"),
        ),
    }


def recompute(release: Release[QuotientRows]) -> str:
    """Hold a release of quotients against its ball.

    Raises:
        ValueError: guarantees, words or digests that the ball and T do not give.
    """
    for name, told in words_of(release.details).items():
        if getattr(release, name) != told:
            raise ValueError(f"its details give another {name!r}")
    check_stated(release, guarantees_of(release.details))
    check_digests(release, (QuotientRows.tensor, QUOTIENT))
    return ""


QUOTIENTS = Kind(
    name=KIND,
    details=QuotientRows,
    recompute=recompute,
    rows=check_rows,
    record="one prompt, which is one row of the file",
)
