"""Prepare a release of a declared draw of the pool: noise for its nats, certified, not drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array, RandomSource
from tacit._ground.random import uniform_index
from tacit.attacks import MembershipAttack, membership_attack
from tacit.design import gaussian_information, log_det_information
from tacit.design.base import Design
from tacit.guarantees import InformationBound
from tacit.guarantees.base import Guarantee
from tacit.releases.finite import OutputDesign, OutputNoise, OutputWords, design_outputs
from tacit.releases.publication import allowed_nats
from tacit.statistics.cost import prices_of_variances
from tacit.statistics.draws.candidates import CandidateFamily, draw_family, subset_rate
from tacit.statistics.draws.release import KIND, TRUTH, DrawDetails, certify
from tacit.statistics.errors import two_digits_up
from tacit.statistics.prepared import PreparedNumbers, ReleaseWords, StatisticRequest, template
from tacit.statistics.promises import Keeping
from tacit.statistics.simulation import simulate
from tacit.text import chance_down, in_nats, percent, significant, significant_up

# Above this many outputs the shape of the log-det optimum is kept and only its size is chosen.
MOST_TURNED_OUTPUTS = 64
# Sums of the same numbers in another order differ by less of their size.
ROUNDING_LEVEL = 1e-13
# Rows that are attacked, chosen at random.
ATTACKED_ROWS = 2000
LESS_NOISE = (
    "the promise Rows hides each row by itself, for far less noise than the whole draw needs"
)
WORDS = OutputWords(
    "query: expected outputs",
    "the output is the same for every candidate, so it is released without noise",
)


@dataclass(frozen=True, eq=False)
class DrawPlan:
    """Everything decided before the draw.

    Attributes:
        outputs: (K, d), one per candidate.
        family: the candidates.
        design: the noise.
    """

    outputs: Array = field(repr=False)
    family: CandidateFamily = field(repr=False)
    design: Design
    variances: Array = field(repr=False)

    @cached_property
    def errors(self) -> Array:
        """Standard deviations of the noise, (d,)."""
        return np.sqrt(np.diagonal(self.design.covariance.to_dense()))

    @cached_property
    def sampling(self) -> Array:
        """Standard deviations over independent draws of as many rows, (d,), rounded up.

        Without replacement the variance over draws of a share q is 1 − q of that, for what is
        near linear in the rows.
        """
        rows = self.family.pool_rows
        # Var without replacement = (1 − q) Var: never divided by less than one row's share
        share = self.family.subset_sizes[0] / rows
        return two_digits_up(np.sqrt(self.variances / max(1.0 - share, 1.0 / rows)))

    def draw(self, rng: RandomSource) -> tuple[Array, Array]:
        """Draw the secret and the noise; neither outlives this."""
        chosen = uniform_index(len(self.family), rng)
        return self.design.release(self.outputs[chosen], rng=rng), self.errors

    def attack(self, trials: int, source: np.random.Generator) -> MembershipAttack | None:
        """Run the attackers on simulated releases, on at most ``ATTACKED_ROWS`` random rows."""
        if self.design.method == "constant":
            return None
        rows = np.arange(self.family.pool_rows)
        if rows.size > ATTACKED_ROWS:
            rows = np.sort(source.choice(rows.size, ATTACKED_ROWS, replace=False))
        measured = membership_attack(
            self.outputs,
            self.family.columns(rows),
            self.design.covariance if self.design.rank > 0 else None,
            trials=trials,
            rng=source,
        )
        return measured.with_record(int(rows[measured.worst_record]))


def prepare(request: StatisticRequest) -> PreparedNumbers:
    """Certify a statistic of a declared draw of the pool, before anything is drawn."""
    query, promise, effort = request.query, request.promise, request.effort
    rows, source, unit = request.pool.units, request.source(), promise.secret_unit
    # prior max(q, 1 − q) of a row is exact, by the balance of the family
    rate = subset_rate(len(rows), promise.rate, effort.simulations)
    prior = max(float(rate), 1.0 - float(rate))
    nats = allowed_nats(promise.nats, promise.success, prior)
    family = draw_family(len(rows), rate, effort.simulations, source)
    outputs = simulate(query, rows, family, workers=effort.workers, progress=effort.progress)
    names = query.labels(outputs.shape[1])
    # the secret is uniform on K known outputs: S is exact, and its information computable
    found = design_outputs(
        outputs,
        nats,
        lambda variances: prices_of_variances(request.cost, variances),
        how=OutputNoise(
            method="true-information" if promise.method == "auto" else promise.method,
            confidence=promise.confidence,
            family="full" if outputs.shape[1] <= MOST_TURNED_OUTPUTS else "scale",
        ),
        words=WORDS,
        source=source,
        progress=effort.progress,
    )
    plan = DrawPlan(outputs, family, found.design, np.diagonal(found.covariance))
    details = _details(request, family, nats, found)
    silent = found.design.rank == 0
    # without noise whoever sees an output counts the candidates that have it
    most = family.largest_success(found.equal.members) if silent else 1.0
    membership, information = certify(
        details,
        found.design.information or 0.0,
        confidence=found.design.confidence,
        silent=silent,
        most=most,
    )
    planned = request.release(
        KIND,
        (membership, information),
        details,
        template(names, plan, TRUTH),
        words=ReleaseWords(
            secret=details.secret,
            method=found.design.method,
            notes=(_family_note(family, unit), *request.pool.notes(hidden=False)),
            remarks=_remarks(details, names, outputs),
        ),
        attack=plan.attack(effort.trials, source) if effort.trials else None,
    )
    if request.pool.persons is not None:
        # a person's place is not that of a row
        planned = replace(planned, details=replace(planned.details, most_exposed=None))
    return PreparedNumbers.of(planned, plan, information, source, advice=LESS_NOISE)


def counts(request: StatisticRequest) -> type[Guarantee]:
    """Return the kind of guarantee that a ledger will count."""
    del request
    return InformationBound


def _details(
    request: StatisticRequest, family: CandidateFamily, nats: float, found: OutputDesign
) -> DrawDetails:
    """Return what the simulation saw."""
    design, covariance = found.design, found.covariance
    # along the principal axes of the outputs, largest first: their variance, and vᵀ Σ v
    eigenvalues, vectors = scipy_linalg.eigh(covariance)
    along = np.einsum("ij,ik,kj->j", vectors, design.covariance.to_dense(), vectors)
    details = DrawDetails(
        promise=request.promise,
        pool_rows=family.pool_rows,
        candidates=len(family),
        share=(family.rate.numerator, family.rate.denominator),
        budget=nats,
        design=design,
        output_mean=found.mean,
        output_variance=np.diagonal(covariance).copy(),
        principal_output_variance=np.maximum(eigenvalues[::-1], 0.0),
        principal_noise_variance=along[::-1].copy(),
    )
    if design.confidence is None:
        return details
    # what the Gaussian bound says of this noise, and the noise that it would have asked for
    prices = prices_of_variances(request.cost, np.diagonal(covariance))
    gaussian = gaussian_information(found.upper, nats, cost=prices)
    return replace(
        details,
        gaussian_information=log_det_information(found.upper, design.covariance),
        noise_saved=1.0 - design.cost / gaussian.cost,
    )


def _family_note(family: CandidateFamily, unit: str) -> str:
    smallest, largest = family.subset_sizes
    sizes = f"{smallest} {f'or {largest} ' if largest != smallest else ''}{unit}s"
    return (
        f"every {unit} of the pool is in exactly {family.rate.numerator} of "
        f"{family.rate.denominator} candidates, which have {sizes}"
    )


def _remarks(details: DrawDetails, names: Sequence[str], outputs: Array) -> list[str]:
    """Return what the holder of the pool should know of the outputs and of the noise."""
    design, own = details.design, details.output_variance
    assert design is not None
    assert own is not None
    lines = list(design.notes)
    if design.rank:
        power = float(design.covariance.trace())
        ratio = f", {significant(power / own.sum(), 2)} times the output's own" if own.any() else ""
        lines.append(f"total variance of the noise {significant(power)}{ratio}")
    else:
        lines.append("no noise: the outputs carry no more than is certified")
    if details.gaussian_information is not None and details.noise_saved is not None:
        assert design.confidence is not None
        lines.append(
            f"certified by the exact posterior, with probability {chance_down(design.confidence)}; "
            "the Gaussian bound of this noise is "
            f"{in_nats(significant_up(details.gaussian_information))}, and "
            f"{percent(details.noise_saved)} of the noise it asks for is saved"
        )
    moves = (outputs != outputs[0]).any(axis=0)
    still = [name for name, moved in zip(names, moves, strict=True) if not moved]
    if still and len(still) < len(names):
        lines.append(
            f"the same for every candidate, noise at rounding level only: {', '.join(still)}"
        )
    with np.errstate(over="ignore"):
        barely = np.ptp(outputs, axis=0) <= ROUNDING_LEVEL * np.abs(outputs).max(axis=0)
    unsteady = [name for name, least in zip(names, moves & barely, strict=True) if least]
    if unsteady:
        lines.append(
            "the candidates' outputs differ by rounding alone, which tells them apart all the "
            f"same; round them in the query to make them one: {', '.join(unsteady)}"
        )
    return lines


KEEPING = Keeping(
    prepare=prepare, counts=counts, session="tacit.statistics.draws.session:DrawQuestions"
)
