"""What is decided before the draw: the noise, what it guarantees, what the simulation saw."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import linalg as scipy_linalg

from tacit._validation import Array, choice
from tacit.conversions import success_from_information
from tacit.design import gaussian_information, log_det_information, true_information
from tacit.design.base import Design
from tacit.guarantees import InformationBound, SuccessBound
from tacit.statistics.candidates import CandidateFamily
from tacit.statistics.publication import no_noise
from tacit.statistics.release import StatisticDiagnostics
from tacit.statistics.simulation import output_covariance

METHODS = ("auto", "true-information", "exact", "linear", "diagonal")
# Above this many outputs the shape of the log-det optimum is kept and only its size is chosen.
MOST_TURNED_OUTPUTS = 64
GAUSSIAN_SOURCE = "residual-pac, Thm 1, Eq. 17"
EXACT_SOURCE = "exact likelihood of the declared candidates; residual-pac, Eq. 17"
SECRET = "which rows of the pool were drawn"
TASK = "the membership of any one row of the pool"
ASSUMPTIONS = (
    "the secret is which rows were drawn, uniform over the declared candidates; the attacker may "
    "know the pool, the query, the list of candidates and the law of the noise",
    "that a row is in the pool at all is not hidden",
    "only the released vector is published: the drawn rows, the candidates' outputs and the "
    "diagnostics stay with the holder of the pool",
    "one release; further releases of the same draw add up",
    "the noise is independent of all else, computed in double precision",
)
FROM_SYSTEM = "the randomness is the operating system's"
REPRODUCIBLE = (
    "VOID: a seed or generator was given, so whoever knows it can repeat the draw; the bound "
    "describes the same release with the operating system's randomness"
)


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything decided before the draw.

    Attributes:
        outputs: (K, d), one per candidate.
        family: the candidates.
        names: d labels.
        design: the noise.
        guarantee: on the information about the draw.
        membership: on guessing whether a row was drawn.
        diagnostics: what the simulation saw.
    """

    outputs: Array
    family: CandidateFamily
    names: tuple[str, ...]
    design: Design
    guarantee: InformationBound
    membership: SuccessBound
    diagnostics: StatisticDiagnostics


@dataclass(frozen=True)
class Request:
    """How the noise is to be chosen.

    Attributes:
        budget: β in nats.
        method: one of ``METHODS``.
        cost: as ``privatize`` takes it.
        confidence: of a statistical certificate.
        reproducible: whether a seed was given.
        progress: as ``privatize`` takes it.
    """

    budget: float
    method: str
    cost: Any
    confidence: float
    reproducible: bool
    progress: bool | None


def certified_plan(
    outputs: Array,
    family: CandidateFamily,
    names: tuple[str, ...],
    request: Request,
    source: np.random.Generator,
) -> Plan:
    """Design the noise for the outputs and certify what it guarantees."""
    mean, covariance, slack = output_covariance(outputs)
    variances = np.diagonal(covariance)
    upper = covariance + slack * np.diag(variances)
    design = _noise(outputs, upper, request, source)
    information = 0.0 if design.information is None else design.information
    statistical = design.confidence is not None
    prior = max(float(family.rate), 1.0 - float(family.rate))
    evidence: Any = {
        "evidence": "statistical" if statistical else "numerical",
        "assumptions": (*ASSUMPTIONS, REPRODUCIBLE if request.reproducible else FROM_SYSTEM),
        "source": EXACT_SOURCE if statistical else GAUSSIAN_SOURCE,
        "confidence": design.confidence,
    }
    guarantee = InformationBound(nats=information, secret=SECRET, **evidence)
    success = prior if information == 0.0 else success_from_information(information, prior)
    membership = SuccessBound(success=success, prior=prior, task=TASK, **evidence)
    notes = _notes(family, names, variances)
    diagnostics = _diagnostics(mean, covariance, design, family, request, notes)
    if statistical:
        weights = _weights(request.cost, variances)
        gaussian = gaussian_information(upper, request.budget, cost=weights)
        diagnostics = replace(
            diagnostics,
            gaussian_information=log_det_information(upper, design.covariance),
            noise_saved=1.0 - design.cost / gaussian.cost,
        )
    return Plan(outputs, family, names, design, guarantee, membership, diagnostics)


def _noise(outputs: Array, upper: Array, request: Request, source: np.random.Generator) -> Design:
    """Return the design for declared outputs; none for constant ones."""
    weights = _weights(request.cost, np.diagonal(upper))
    if not upper.any():
        reason = "the output is the same for every candidate, so it is released without noise"
        return no_noise(len(upper), reason)
    if request.method not in ("auto", "true-information"):
        return gaussian_information(upper, request.budget, cost=weights, method=request.method)
    return true_information(
        outputs,
        request.budget,
        family="full" if len(upper) <= MOST_TURNED_OUTPUTS else "scale",
        cost=weights,
        confidence=request.confidence,
        rng=source,
        progress=request.progress,
    )


def _weights(cost: Any, variances: Array) -> Any:
    if not isinstance(cost, str):
        return cost
    choice("cost", cost, ("squared", "relative"))
    if cost == "squared" or not variances.any():
        return None
    # A constant output has no scale of its own: any finite price keeps its noise negligible.
    scale = np.where(variances > 0.0, variances, variances.max())
    return 1.0 / scale


def _diagnostics(
    mean: Array,
    covariance: Array,
    design: Design,
    family: CandidateFamily,
    request: Request,
    notes: tuple[str, ...],
) -> StatisticDiagnostics:
    eigenvalues, vectors = scipy_linalg.eigh(covariance)
    noise = design.covariance.to_dense()
    along = np.einsum("ij,ik,kj->j", vectors, noise, vectors)
    return StatisticDiagnostics(
        pool_rows=family.pool_rows,
        subset_rows=family.subset_sizes[0],
        candidates=len(family),
        mi_budget=request.budget,
        output_mean=mean,
        output_variance=np.diagonal(covariance).copy(),
        noise_variance=np.diagonal(noise).copy(),
        principal_output_variance=np.maximum(eigenvalues[::-1], 0.0),
        principal_noise_variance=along[::-1].copy(),
        notes=(*notes, *design.notes),
    )


def _notes(family: CandidateFamily, names: tuple[str, ...], variances: Array) -> tuple[str, ...]:
    smallest, largest = family.subset_sizes
    notes = [
        f"every row of the pool is in exactly {family.rate.numerator} of {family.rate.denominator} "
        f"candidates, which have {smallest} {f'or {largest} ' if largest != smallest else ''}rows"
    ]
    still = [name for name, variance in zip(names, variances, strict=True) if variance == 0.0]
    if still and len(still) < len(names):
        notes.append(
            f"the same for every candidate, noise at rounding level only: {', '.join(still)}"
        )
    return tuple(notes)
