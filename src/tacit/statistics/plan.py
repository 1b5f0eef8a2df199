"""What is decided before the draw: the noise, what it guarantees, what the simulation saw."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array, choice
from tacit.conversions import success_from_information
from tacit.design import gaussian_information, log_det_information, true_information
from tacit.design.base import Design, no_noise
from tacit.design.cost import cost_matrix
from tacit.design.information.exact import NO_NOISE, entropy_sentence
from tacit.guarantees import InformationBound, SuccessBound
from tacit.information.distinct import EqualRows, entropy
from tacit.releases.outputs import described_covariance, output_covariance
from tacit.statistics.candidates import CandidateFamily
from tacit.statistics.release import StatisticDiagnostics

METHODS = ("auto", "true-information", "exact", "linear", "diagonal")
# Above this many outputs the shape of the log-det optimum is kept and only its size is chosen.
MOST_TURNED_OUTPUTS = 64
# Sums of the same numbers in another order differ by less of their size.
ROUNDING_LEVEL = 1e-13
GAUSSIAN_SOURCE = "residual-pac, Thm 1, Eq. 17"
ENTROPY_SOURCE = "I(X; Y) <= H(Y), the entropy of the outputs of the declared candidates"
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
)
WITH_NOISE = "the noise is independent of all else, computed in double precision"
WITHOUT_NOISE = "the output is published as it is, without noise, as double-precision numbers"
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
    equal = EqualRows.of(outputs)
    silent = _without_noise(equal, outputs, request)
    if silent is not None:
        mean, covariance = described_covariance(outputs)
        upper, design = covariance, silent
        cost_matrix(_weights(request.cost, np.diagonal(covariance)), len(covariance))
    else:
        # Equal outputs are one, with the probability that they have together.
        shares = None if len(equal) == len(outputs) else equal.weights(None)
        points = outputs[equal.first]
        mean, covariance, slack = output_covariance(points, shares)
        upper = covariance + slack * np.diag(np.diagonal(covariance))
        design = _noise(points, shares, upper, request, source)
    guarantee, membership = _guarantees(design, equal, family, request)
    notes = _notes(family, names, outputs)
    diagnostics = _diagnostics(mean, covariance, design, family, request, notes)
    if design.confidence is not None:
        weights = _weights(request.cost, np.diagonal(covariance))
        gaussian = gaussian_information(upper, request.budget, cost=weights)
        diagnostics = replace(
            diagnostics,
            gaussian_information=log_det_information(upper, design.covariance),
            noise_saved=1.0 - design.cost / gaussian.cost,
        )
    return Plan(outputs, family, names, design, guarantee, membership, diagnostics)


def _guarantees(
    design: Design, equal: EqualRows, family: CandidateFamily, request: Request
) -> tuple[InformationBound, SuccessBound]:
    """Return what the design certifies about the draw, and about one row of the pool."""
    information = 0.0 if design.information is None else design.information
    statistical, silent = design.confidence is not None, design.rank == 0
    evidence: Any = {
        "evidence": "statistical" if statistical else "numerical",
        "assumptions": (
            *ASSUMPTIONS,
            WITHOUT_NOISE if silent else WITH_NOISE,
            REPRODUCIBLE if request.reproducible else FROM_SYSTEM,
        ),
        "source": EXACT_SOURCE if statistical else ENTROPY_SOURCE if silent else GAUSSIAN_SOURCE,
        "confidence": design.confidence,
    }
    prior = max(float(family.rate), 1.0 - float(family.rate))
    success = prior if information == 0.0 else success_from_information(information, prior)
    if silent:
        success = min(success, max(prior, family.largest_success(equal.members)))
    guarantee = InformationBound(nats=information, secret=SECRET, **evidence)
    law = f"that one of {len(family)} equally likely candidates was drawn"
    return guarantee, SuccessBound(success=success, prior=prior, task=TASK, law=law, **evidence)


def _without_noise(equal: EqualRows, outputs: Array, request: Request) -> Design | None:
    """Return the design without noise where the outputs' entropy is within the budget."""
    size = outputs.shape[1]
    if len(equal) == 1:
        reason = "the output is the same for every candidate, so it is released without noise"
        return no_noise(size, 0.0, "constant", reason)
    nats = entropy(equal.weights(None))
    if nats > request.budget:
        return None
    return no_noise(size, nats, NO_NOISE, entropy_sentence(len(equal), nats))


def _noise(
    points: Array,
    shares: Array | None,
    upper: Array,
    request: Request,
    source: np.random.Generator,
) -> Design:
    """Return the noise for the distinct outputs and their probabilities."""
    weights = _weights(request.cost, np.diagonal(upper))
    if request.method not in ("auto", "true-information"):
        return gaussian_information(upper, request.budget, cost=weights, method=request.method)
    return true_information(
        points,
        request.budget,
        family="full" if len(upper) <= MOST_TURNED_OUTPUTS else "scale",
        weights=shares,
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
    with np.errstate(over="ignore"):
        prices = 1.0 / scale
        if not np.isfinite(prices).all():
            # only the ratios of prices matter; variances below 1e-308 need another unit
            prices = np.ldexp(1.0, np.frexp(scale.max())[1] - 1) / scale
    if not np.isfinite(prices).all():
        raise ValueError(
            "query: expected outputs whose variances are within 1e308 times each other under "
            "cost='relative', got more: choose other units"
        )
    return prices


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


def _notes(family: CandidateFamily, names: tuple[str, ...], outputs: Array) -> tuple[str, ...]:
    smallest, largest = family.subset_sizes
    notes = [
        f"every row of the pool is in exactly {family.rate.numerator} of {family.rate.denominator} "
        f"candidates, which have {smallest} {f'or {largest} ' if largest != smallest else ''}rows"
    ]
    moves = (outputs != outputs[0]).any(axis=0)
    still = [name for name, moved in zip(names, moves, strict=True) if not moved]
    if still and len(still) < len(names):
        notes.append(
            f"the same for every candidate, noise at rounding level only: {', '.join(still)}"
        )
    with np.errstate(over="ignore"):
        barely = np.ptp(outputs, axis=0) <= ROUNDING_LEVEL * np.abs(outputs).max(axis=0)
    unsteady = [name for name, least in zip(names, moves & barely, strict=True) if least]
    if unsteady:
        notes.append(
            "the candidates' outputs differ by rounding alone, which tells them apart all the "
            f"same; round them in the query to make them one: {', '.join(unsteady)}"
        )
    return tuple(notes)
