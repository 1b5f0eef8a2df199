"""A query of a session about a declared draw, under the posterior of all answers before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit._ground.checks import Array, RandomSource
from tacit.conversions import success_from_information
from tacit.covariance import Covariance
from tacit.guarantees import InformationBound, SuccessBound
from tacit.releases.outputs import check_spread
from tacit.statistics.candidates import CandidateFamily
from tacit.statistics.plan import FROM_SYSTEM, REPRODUCIBLE, TASK, WITH_NOISE
from tacit.statistics.plan import SECRET as DRAW_SECRET
from tacit.statistics.promises import query_of
from tacit.statistics.rows import words
from tacit.statistics.rows.expected import prices_of
from tacit.statistics.sessions.asked import Asked, Promise
from tacit.statistics.sessions.kept import Kept
from tacit.statistics.sessions.posterior import Posterior
from tacit.statistics.simulation import simulate
from tacit.statistics.spread import two_digits_up
from tacit.statistics.sums.statistic import Columns

KEPT_OUTPUTS = 8


@dataclass(eq=False)
class OfDraw(Promise):
    """One of K declared subsets; nats add, each under the exact posterior of all before.

    Attributes:
        rows: the pool.
        columns: with their names, and what codes in them mean.
        family: the subsets.
        cost: as ``prepare`` takes it, without matrices.
        workers: processes.
        progress: whether to show a bar.
    """

    rows: Array
    columns: Columns
    family: CandidateFamily
    cost: Any
    workers: int | None
    progress: bool | None
    secret = DRAW_SECRET
    squares = False
    _outputs: dict[Any, Array] = field(default_factory=dict, repr=False)

    def ask(self, query: Any, target: str | None, spend: float, kept: Kept) -> Asked:
        """Return the query at ``spend`` nats."""
        resolved = query_of(query, self.columns, target)
        outputs = self._run(query, target)
        live = ~check_spread(outputs)
        plan = _OfDraw(
            outputs,
            live,
            None
            if not live.any()
            else _posterior(kept).noise(
                outputs[:, live], spend, prices_of(self.cost, outputs[:, live])
            ),
            int(kept.drawn[0]),
        )
        bound = InformationBound(
            nats=spend if live.any() else 0.0, secret=self.secret, **self._rest(kept.reproducible)
        )
        still = () if live.all() else ("the same whatever was drawn: released without noise",)
        return Asked(
            description=resolved.description,
            names=resolved.names or tuple(f"y{place}" for place in range(len(live))),
            plan=plan,
            guarantee=bound,
            method="least noise for the posterior of the declared draws",
            notes=still,
        )

    def after(self, asked: Asked, kept: Kept, released: Array) -> Array:
        """Return the bounds of the posterior weights after an answer."""
        plan = asked.plan
        assert isinstance(plan, _OfDraw)
        if plan.noise is None:
            return kept.bounds
        found = _posterior(kept).after(released[plan.live], plan.outputs[:, plan.live], plan.noise)
        return np.stack([found.log_low, found.log_high])

    def membership(self, budget: float, *, reproducible: bool) -> SuccessBound:
        """Return what all answers together hide."""
        prior = max(float(self.family.rate), 1.0 - float(self.family.rate))
        return SuccessBound(
            success=success_from_information(budget, prior),
            prior=prior,
            task=TASK,
            law=f"that one of {len(self.family)} equally likely candidates was drawn",
            **self._rest(reproducible),
        )

    def _run(self, query: Any, target: str | None) -> Array:
        """Return the outputs of all candidates; those of a few texts are remembered."""
        key = (query, target) if isinstance(query, str) else None
        if key is None or key not in self._outputs:
            found = simulate(
                query_of(query, self.columns, target),
                self.rows,
                self.family,
                workers=self.workers,
                progress=self.progress,
            )
            if key is None:
                return found
            while len(self._outputs) >= KEPT_OUTPUTS:
                del self._outputs[next(iter(self._outputs))]
            self._outputs[key] = found
        return self._outputs[key]

    def _rest(self, reproducible: bool) -> dict[str, Any]:
        return {
            "evidence": "numerical",
            "assumptions": (
                "the secret is which rows of the pool were drawn, uniform over the declared "
                "candidates; the attacker may know the pool, the queries, the candidates, the laws "
                "of the noise and all earlier answers, by which queries may be chosen",
                "that a row is in the pool at all is not hidden",
                "the candidates' outputs and what was drawn stay with the holder of the pool",
                words.TOGETHER,
                WITH_NOISE,
                REPRODUCIBLE if reproducible else FROM_SYSTEM,
            ),
            "source": "residual-pac, Thm 1, under the exact posterior; chain rule (2601.14033)",
        }


@dataclass(frozen=True, eq=False)
class _OfDraw:
    """Answers from a candidate that was drawn before."""

    outputs: Array
    live: Any
    noise: Covariance | None
    drawn: int

    @property
    def errors(self) -> Array:
        deviations = np.zeros(len(self.live))
        if self.noise is not None:
            deviations[self.live] = np.sqrt(self.noise.diagonal())
        return deviations

    @property
    def sampling(self) -> Array:
        return two_digits_up(self.outputs.std(axis=0))

    def draw(self, rng: RandomSource) -> tuple[Array, Array]:
        values = self.outputs[self.drawn].copy()
        if self.noise is not None:
            values[self.live] = self.noise.release(values[self.live], rng=rng)
        return values, self.errors


def _posterior(kept: Kept) -> Posterior:
    return Posterior(kept.bounds[0], kept.bounds[1])
