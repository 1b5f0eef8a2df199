"""Sessions about a draw: one of K declared subsets, through many queries, under their posterior."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit._ground.checks import Array, RandomSource
from tacit.covariance import Covariance
from tacit.guarantees import SuccessBound
from tacit.releases.outputs import check_spread
from tacit.releases.publication import allowed_nats
from tacit.statistics.cost import prices_of
from tacit.statistics.details import Turn
from tacit.statistics.draws.candidates import draw_family, subset_rate
from tacit.statistics.draws.release import KIND, TRUTH, DrawDetails, certify
from tacit.statistics.draws.weights import CandidateWeights
from tacit.statistics.errors import two_digits_up
from tacit.statistics.prepared import ReleaseWords, template
from tacit.statistics.queries.statistic import Query
from tacit.statistics.sessions.questions import Question, Questions
from tacit.statistics.sessions.state import SessionState
from tacit.statistics.simulation import simulate

# Bits of the public seed of the declared subsets.
FAMILY_SEED_BITS = 128
# Texts of which the outputs on all candidates are remembered.
KEPT_OUTPUTS = 8


class DrawQuestions(Questions):
    """One of K declared subsets; nats add, each under the exact posterior of all before."""

    squares = False

    def _open(self, source: np.random.Generator, stored: SessionState | None) -> None:
        if self.pool.persons is not None:
            raise ValueError(
                "person: expected none through a session about a draw, got a column; a release by "
                "itself takes one"
            )
        rows, count = self.pool.rows, self.effort.simulations
        rate = subset_rate(len(rows), self.promise.rate, count)
        prior = max(float(rate), 1.0 - float(rate))
        self.budget = allowed_nats(self.promise.nats, self.promise.success, prior)
        # the subsets are declared: their seed is as public as they are
        seed = (
            secrets.randbits(FAMILY_SEED_BITS)
            if stored is None
            else int(str(stored.declared.get("family", "0")), 16)
        )
        self.family = draw_family(len(rows), rate, count, np.random.default_rng(seed))
        self.sides, self.bounds = len(self.family), np.zeros((2, len(self.family)))
        self._outputs: dict[Any, Array] = {}
        self.said = {
            "budget": self.budget,
            "family": f"{seed:x}",
            "subsets": hashlib.sha256(self.family.packed.tobytes()).hexdigest(),
        }

    def ask(self, query: Any, target: str | None, spend: float, state: SessionState) -> Question:
        """Return the query at ``spend`` nats."""
        request = self._request(query, target, looked_at=True)
        outputs = self._run(request.query, (query, target))
        live = ~check_spread(outputs)
        noise = None
        if live.any():
            prices = prices_of(self.cost, outputs[:, live])
            noise = _weights(state).noise(outputs[:, live], spend, prices)
        plan = DrawnCandidate(outputs, live, noise, int(state.drawn[0]))
        details = self._details(self._turn(state, spend))
        alike = ("the same whatever was drawn: released without noise",)
        planned = request.release(
            KIND,
            certify(details, spend if live.any() else 0.0),
            details,
            template(request.query.labels(len(live)), plan, TRUTH),
            words=ReleaseWords(
                secret=details.secret,
                method="least noise for the posterior of the declared draws",
                notes=() if live.all() else alike,
            ),
        )
        return Question(plan, planned)

    def after(self, question: Question, state: SessionState, released: Array) -> Array:
        plan: DrawnCandidate = question.plan
        if plan.noise is None:
            return state.bounds
        live = plan.live
        found = _weights(state).after(released[live], plan.outputs[:, live], plan.noise)
        return np.stack([found.log_low, found.log_high])

    def membership(self) -> SuccessBound:
        details = self._details(Turn(turn=1, spend=0.0, budget=self.budget))
        return certify(details, 0.0)[0]

    def _details(self, turn: Turn) -> DrawDetails:
        rate = self.family.rate
        return DrawDetails(
            promise=self.promise,
            pool_rows=self.family.pool_rows,
            candidates=len(self.family),
            share=(rate.numerator, rate.denominator),
            budget=self.budget,
            session=turn,
        )

    def _run(self, query: Query, asked: tuple[Any, str | None]) -> Array:
        """Return the outputs of all candidates; those of a few texts are remembered."""
        key = asked if isinstance(asked[0], str) else None
        if key is None or key not in self._outputs:
            effort = self.effort
            found = simulate(
                query, self.pool.rows, self.family, workers=effort.workers, progress=effort.progress
            )
            if key is None:
                return found
            while len(self._outputs) >= KEPT_OUTPUTS:
                del self._outputs[next(iter(self._outputs))]
            self._outputs[key] = found
        return self._outputs[key]


@dataclass(frozen=True, eq=False)
class DrawnCandidate:
    """Answers from a candidate that was drawn before.

    Attributes:
        outputs: (K, d) of all candidates.
        live: (d,) which numbers differ between candidates.
        noise: on these; None where none do.
        drawn: the candidate; secret.
    """

    outputs: Array
    live: Any
    noise: Covariance | None
    drawn: int

    @property
    def errors(self) -> Array:
        """Standard deviations of the noise, (d,)."""
        deviations = np.zeros(len(self.live))
        if self.noise is not None:
            deviations[self.live] = np.sqrt(self.noise.diagonal())
        return deviations

    @property
    def sampling(self) -> Array:
        """Standard deviations over the candidates, (d,), rounded up."""
        return two_digits_up(self.outputs.std(axis=0))

    def draw(self, rng: RandomSource) -> tuple[Array, Array]:
        """Draw the noise; return the numbers and their errors."""
        values = self.outputs[self.drawn].copy()
        if self.noise is not None:
            values[self.live] = self.noise.release(values[self.live], rng=rng)
        return values, self.errors


def _weights(state: SessionState) -> CandidateWeights:
    return CandidateWeights(state.bounds[0], state.bounds[1])
