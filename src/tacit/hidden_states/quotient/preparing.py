"""Quotients certified before their noise is drawn."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, RandomSource, generator, integer, is_reproducible
from tacit._ground.frozen import read_only
from tacit.hidden_states.quotient.quotient import PredictiveQuotient
from tacit.hidden_states.quotient.release import (
    KIND,
    QUOTIENT,
    QuotientRows,
    guarantees_of,
    words_of,
)
from tacit.releases import Expected, Prepared, Release
from tacit.releases.vectors import sha256_of


@read_only
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PreparedQuotients(Prepared[QuotientRows]):
    """Quotients whose noise is certified and not yet drawn; for the holder of the states.

    Attributes:
        clean: the clipped quotients, (n, k).
        rng: what the draw uses; None for the operating system's generator.
        planned: the release but for what is drawn.
    """

    clean: Array = field(repr=False)
    rng: RandomSource = field(repr=False)
    planned: Release[QuotientRows] = field(repr=False)

    def _drawn(self) -> Release[QuotientRows]:
        planned = self.planned
        # rounded to a grid of σ alone, so that the last bits tell nothing of q(h)
        noisy = planned.details.ball.covariance.release(self.clean, rng=self.rng)
        return replace(
            planned,
            details=replace(planned.details, quotients=noisy),
            digests=((QuotientRows.tensor, sha256_of([noisy])), *planned.digests),
        )


def prepare_quotients(
    quotient: PredictiveQuotient,
    states: ArrayLike | None = None,
    *,
    behaviours: Any = None,
    releases: int = 1,
    rng: RandomSource = None,
) -> PreparedQuotients:
    """Certify noisy quotients of states before anything is drawn.

    ``z = clip_R(q(h)) + N(0, σ²I)`` on a grid that depends on σ alone, so that what is published is
    post-processing of the real sum. Nothing about the states is looked at for the guarantees.

    Args:
        quotient: the encoder and its ball.
        states: clean states, (n, d), where they are read.
        behaviours: (n, V) logits or log-probabilities, or ``Behaviours``, where those are.
        releases: T, rows about one prompt at most.
        rng: None draws from the operating system. A seed or generator makes the release
            reproducible, which voids the guarantees and is recorded.

    Returns:
        The ``PreparedQuotients``: the guarantees, the error of every number, and ``draw``.

    Raises:
        ValueError: states of another width, or not finite.

    Example:
        >>> import torch
        >>> from tacit.hidden_states import Ball, Recipe
        >>> rows = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
        >>> ball = Ball.at(2, nats=3.0)
        >>> quotient = PredictiveQuotient.fit(rows, rows, ball, Recipe(epochs=1), rng=0)
        >>> found = prepare_quotients(quotient, rows[:3]).draw()
        >>> found.details.quotients.shape, round(found.guarantees[1].nats, 6)
        ((3, 2), 3.0)

    Source: hidden-state, App. R.2.
    """
    if not isinstance(quotient, PredictiveQuotient):
        raise ValueError(f"quotient: expected a PredictiveQuotient, got {type(quotient).__name__}")
    # the theorems are about the ball: no state is looked at for them
    times = integer("releases", releases, minimum=1)
    clean = quotient.encode(states, behaviours=behaviours)
    # a seed that is none is refused here, before a cost is reserved
    known, origin = is_reproducible(rng), quotient.origin
    generator(rng)
    details = QuotientRows(rows=len(clean), ball=quotient.ball, releases=times)
    guarantees = guarantees_of(details)
    return PreparedQuotients(
        guarantees=guarantees,
        spends=guarantees,
        expected=tuple(
            Expected(name=f"z[{place}]", error=quotient.ball.noise_std)
            for place in range(quotient.ball.dimension)
        ),
        description=f"{len(clean):,} quotients of {quotient.ball.dimension:,} numbers",
        reproducible=known,
        clean=clean,
        rng=rng,
        planned=Release(
            kind=KIND,
            guarantees=guarantees,
            details=details,
            reproducible=known,
            seed=int(rng) if isinstance(rng, int | np.integer) else None,
            digests=(
                (QUOTIENT, quotient.digest),
                *(() if origin is None else origin.public.digests),
            ),
            **words_of(details),
        ),
    )
