"""Designs that bound the information of a release: least noise under ½ logdet(I + S Σ⁻¹) <= β."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg as scipy_linalg
from scipy.optimize import brentq

from tacit._ground.checks import (
    Array,
    choice,
    in_interval,
    integer,
    matrix,
    positive,
    symmetric,
    vector,
)
from tacit._ground.numbers import EPS
from tacit.covariance import Covariance, Diagonal, Factored
from tacit.design.base import Design
from tacit.design.cost import CostAxes, cost_matrix
from tacit.information.log_det import information_of_ratios, output_matrix, signal_to_noise
from tacit.information.log_det import log_det_information as log_det_information
from tacit.text import chance_down

# A budget whose square is a float.
SMALLEST_BUDGET = 1e-120
Method: TypeAlias = Literal["exact", "linear", "diagonal"]
Estimated: TypeAlias = Literal["exact", "published"]
# What the notes of a design say where directions were raised.
RAISED = "eigenvalues of F^½ S F^½ at rounding level of the largest were raised to it"
# Units in the last place, times d, that an eigensolver leaves of the largest eigenvalue.
LEVEL_UNITS = 4.0
# Steps towards the largest fixed point of a concave map: each divides the distance.
FIXED_POINT_STEPS = 200
# Relative, more than an eigenvalue of a matrix of thousands of columns and a sum of three round.
RADIUS_SLACK = 1e-12
# The noise of Algorithm 1 has the roots of l + 10 c v/β' for its eigenvalues l.
PUBLISHED_SLACK = 10.0
# Of ln μ: below it e is no float; steps while the multiplier is bracketed from above and below; and
# where a root-finder ends, which is a unit in the last place.
LOWEST_LOG_MULTIPLIER, STEP_UP, STEP_DOWN, ROOT_TOLERANCE = -690.0, 2.0, 4.0, 4e-16
# Enlargements of noise until its certified information fits, each by twice as many last places.
ENLARGEMENTS = 64
# Of ln c of an enlargement by c: its first upper end, how it grows, and the root-finder's end.
FIRST_GROWTH, GROWTH_FACTOR, GROWTH_TOLERANCE = 1e-12, 4.0, 1e-18


def gaussian_information(
    output_covariance: ArrayLike,
    mi_budget: float,
    *,
    cost: ArrayLike | None = None,
    method: Method = "exact",
) -> Design:
    """Choose the least Gaussian noise that keeps the Gaussian information within a budget.

    Minimise ``tr(F Σ)`` subject to ``½ logdet(I + S Σ⁻¹) <= β``. With r the eigenvalues and U the
    eigenvectors of ``F^½ S F^½``, the optimum is ``Σ = F^-½ U diag(l) Uᵀ F^-½``,
    ``l = (−r + √(r² + 2 μ r))/2``, with μ such that the budget is spent.

    Args:
        output_covariance: S, covariance of the output: (d, d), (d,) for a diagonal one, or a
            ``Covariance``; singular is allowed.
        mi_budget: β >= 1e-120 in nats.
        cost: F, what noise costs: None (squared error), a scalar, a diagonal (d,) or (d, d),
            positive definite.
        method: ``"exact"`` is the optimum; ``"linear"`` is ``l = √r Σ√r/(2β)``, the trace that
            Auto-PAC is usually quoted with; ``"diagonal"`` is Efficient-PAC's noise
            ``e_i = √(S_ii/F_ii) Σ√(F_jj S_jj)/(2β)``, for which Σ is diagonal.

    Returns:
        A ``Design`` that covers every direction; ``information`` is certified for its Σ, rounded
        up, and at most ``mi_budget``; ``gap`` is relative to the exact optimum for every method.
        Eigenvalues below 4 d 2⁻⁵² of the largest are raised to that level, never dropped.

    Raises:
        ValueError: a bad argument, S = 0, or a cost that is not positive definite: a direction
            in which noise is free has no least noise.

    Example:
        >>> design = gaussian_information([4.0, 1.0], 0.5)
        >>> design.information <= 0.5
        True
        >>> linear = gaussian_information([4.0, 1.0], 0.5, method="linear")
        >>> round(design.cost, 3), round(linear.cost, 3)
        (6.748, 9.0)

    Source: residual-pac, Prop. 2 (exact), Thm 1 (linear), Thm 6 (diagonal).
    """
    budget = positive("mi_budget", mi_budget)
    if budget < SMALLEST_BUDGET:
        raise ValueError(f"mi_budget: expected at least {SMALLEST_BUDGET:g} nats, got {budget!r}")
    choice("method", method, get_args(Method))
    outputs = output_matrix("output_covariance", output_covariance)
    if not outputs.any():
        raise ValueError(
            "output_covariance: expected a matrix that is not zero, got zero: an output that "
            "never moves says nothing and needs no noise"
        )
    weights = cost_matrix(cost, outputs.shape[0])
    # in the axes of F^½ S F^½ both cost and outputs are diagonal; nothing at rounding level is
    # dropped
    frame = CostAxes.of(outputs, weights)
    raised = np.maximum(frame.ratios, rounding_level(frame.ratios))
    spectrum, multiplier = exact_spectrum(raised, budget)
    if method == "diagonal":
        covariance: Covariance = Diagonal(_hadamard_variances(outputs, weights, budget))
    else:
        chosen = spectrum if method == "exact" else linear_spectrum(raised, budget)
        covariance = frame.covariance(chosen)
    # what was chosen is certified as it stands, and enlarged by the last digits where it is not
    # within
    covariance, information = scaled_to_budget(outputs, covariance, budget)
    spent = covariance.weighted_trace(cost)
    # the dual value at the multiplier found bounds every noise's cost from below
    lower = max(0.0, least_cost(frame.ratios, multiplier, budget))
    notes = (RAISED,) if (raised > frame.ratios).any() else ()
    return Design(
        covariance=covariance,
        cost=spent,
        gap=max(0.0, (spent - lower) / spent),
        method=f"gaussian-information-{method}",
        multipliers=np.array([multiplier]),
        iterations=0,
        information=information,
        notes=notes,
    )


def confident_information(
    samples: ArrayLike,
    mi_budget: float,
    *,
    radius: float,
    confidence: float = 0.99,
    centre: ArrayLike | None = None,
    method: Estimated = "exact",
    split: float = 0.5,
    cost: ArrayLike | None = None,
) -> Design:
    """Choose noise from independent output samples, right with probability ``confidence``.

    ``C ⪯ Ĉ + c I`` with that probability, where Ĉ is the unbiased sample covariance and c comes
    from ``covariance_radius``; the noise is designed, and its information certified, for
    ``Ĉ + c I``.

    Args:
        samples: (m, d), m >= 4 independent outputs y, in the units of the output.
        mi_budget: β > 0 in nats.
        radius: R with ``‖y − centre‖ <= R`` for every output that can occur. Checked on the
            samples; for the outputs not drawn it is an assumption.
        confidence: 1 − γ in (0, 1), the probability that the statement is true.
        centre: (d,), the origin when None.
        method: ``"exact"`` is the optimum under ``Ĉ + c I``; ``"published"`` is the covariance of
            Algorithm 1, enlarged where it does not certify.
        split: for ``"published"``, v/β: the share of the budget spent on the estimate.
        cost: as in ``gaussian_information``; ``"published"`` takes None only.

    Returns:
        A ``Design`` whose ``information`` holds with probability ``confidence``.

    Raises:
        ValueError: a bad argument, or a sample outside the radius (its index is named).

    Example:
        >>> samples = np.random.default_rng(0).uniform(-1.0, 1.0, size=(2000, 2))
        >>> design = confident_information(samples, 0.5, confidence=0.95, radius=2.0**0.5)
        >>> design.information <= 0.5, design.confidence
        (True, 0.95)

    Source: residual-pac, Alg. 1; concentration as derived at ``covariance_radius``.
    """
    budget = positive("mi_budget", mi_budget)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    share = in_interval("split", split, 0.0, 1.0, open_low=True, open_high=True)
    choice("method", method, get_args(Estimated))
    if method == "published" and cost is not None:
        raise ValueError(f"cost: expected None for the published method, got {cost!r}")
    outputs = _bounded_samples(samples, positive("radius", radius), centre)
    estimate = np.atleast_2d(np.cov(outputs, rowvar=False))
    # C ⪯ Ĉ + c I: whatever is designed for the larger one holds for the true one
    slack = covariance_radius(estimate, len(outputs), confidence=level, radius=radius)
    upper = estimate + slack * np.eye(estimate.shape[0])
    if method == "exact":
        design = gaussian_information(upper, budget, cost=cost)
    else:
        published = _algorithm_one(estimate, slack, radius, share * budget, (1 - share) * budget)
        covariance, information = scaled_to_budget(upper, published, budget)
        design = Design(
            covariance, covariance.trace(), math.nan, "", np.empty(0), 0, information=information
        )
    notes = (
        f"holds with probability {chance_down(level)} over the {len(outputs)} samples",
        "the samples are independent draws of the output",
        f"every output lies within {radius:g} of the centre; the samples do",
        f"certified for the sample covariance plus {slack:.6g} times the identity",
    )
    return replace(
        design,
        method=f"confident-information-{method}",
        confidence=level,
        notes=notes + design.notes,
    )


def covariance_radius(
    estimate: ArrayLike, count: int, *, radius: float, confidence: float = 0.99
) -> float:
    """Return c, rounded up, with ``C ⪯ Ĉ + c I`` with probability ``confidence``, bounded outputs.

    Ĉ is the mean of ``A_ij = ½ (y_i − y_j)(y_i − y_j)ᵀ`` over pairs, ``E A = C``,
    ``0 ⪯ A ⪯ 2 R² I``. By Hoeffding's averaging over permutations and convexity of
    ``tr exp`` and of norms, its exponential moments are at most those of the mean of
    ``p = ⌊m/2⌋`` independent pairs. Then, each wrong with probability γ/2:

    * matrix Bernstein for ``C − A ⪯ κ I``, ``E (C − A)² ⪯ 2 R² κ I``, κ = ‖C‖, with
      a = ln(2d/γ)/p: ``t(κ) = κ a/3 + √((κ a/3)² + 4 R² κ a)``. κ itself is bounded by the
      fixed point ``κ = ‖Ĉ‖ + t(κ)``, and by R²;
    * bounded differences in Hilbert–Schmidt norm, free of d:
      ``R² (√(2/p) + 2 √(ln(2/γ)/p))``, from ``E ‖A‖² <= 2 R² tr C <= 2 R⁴`` and
      ``‖A − A'‖ <= 2 √2 R²``.

    Args:
        estimate: Ĉ, (d, d), the unbiased sample covariance.
        count: m >= 4, the number of samples.
        radius: R, bound on ‖y − centre‖.
        confidence: 1 − γ in (0, 1).

    Returns:
        The smaller of the two, and at most R², in squared units of the output.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> 0.0 < covariance_radius(np.eye(2) / 4, 10_000, confidence=0.95, radius=1.0) < 0.05
        True
    """
    covariance = symmetric("estimate", estimate)
    bound = positive("radius", radius) ** 2
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    probability = 1.0 - level
    pairs = integer("count", count, minimum=4) // 2
    # a = ln(2d/γ)/p of matrix Bernstein
    rate = math.log(2.0 * covariance.shape[0] / probability) / pairs
    largest = float(scipy_linalg.eigvalsh(covariance)[-1]) * (1.0 + RADIUS_SLACK)

    def deviation(norm: float) -> float:
        # t(κ) of Bernstein
        return norm * rate / 3.0 + math.sqrt((norm * rate / 3.0) ** 2 + 4.0 * bound * norm * rate)

    # from the top, κ ← min(R², ‖Ĉ‖ + t(κ)) decreases to the largest fixed point from above
    norm = bound
    for _ in range(FIXED_POINT_STEPS):
        norm = min(norm, largest + deviation(norm))
    by_dimension = deviation(norm)
    # bounded differences in Hilbert–Schmidt norm: less where d is large
    dimension_free = bound * (
        math.sqrt(2.0 / pairs) + 2.0 * math.sqrt(math.log(2.0 / probability) / pairs)
    )
    # upwards by the roundings of either, and by that of Ĉ itself
    return min(by_dimension, dimension_free, bound) * (1.0 + RADIUS_SLACK) + count * EPS * bound


def rounding_level(ratios: Array) -> float:
    """Return the level, rounded up, below which an eigenvalue is rounding of the largest."""
    return LEVEL_UNITS * ratios.size * EPS * float(ratios.max())


def _hadamard_variances(outputs: Array, weights: Array, mi_budget: float) -> Array:
    """Return ``e_i = √(σ_i/f_i) Σ_j √(f_j σ_j)/(2β)``, to rounding (residual-pac, Thm 6)."""
    variances = outputs if outputs.ndim == 1 else np.diagonal(outputs)
    prices = weights if weights.ndim == 1 else np.diagonal(weights)
    ratios = variances * prices
    # a coordinate that does not move is given noise of the rounding of the others
    raised = np.maximum(ratios, rounding_level(ratios))
    return linear_spectrum(raised, mi_budget) / prices


def _bounded_samples(samples: Any, radius: float, centre: Any) -> Array:
    outputs = matrix("samples", samples)
    if len(outputs) < 4:
        raise ValueError(f"samples: expected at least 4 rows, got shape {outputs.shape}")
    size = outputs.shape[1]
    origin = np.zeros(size) if centre is None else vector("centre", centre, size=size)
    distances = np.linalg.norm(outputs - origin, axis=1)
    farthest = int(distances.argmax())
    if distances[farthest] > radius:
        raise ValueError(
            f"samples: expected every row within radius {radius:g} of the centre, got row "
            f"{farthest} at distance {distances[farthest]:.6g}"
        )
    return outputs


def _algorithm_one(
    estimate: Array, slack: float, radius: float, main: float, reserve: float
) -> Covariance:
    """Return Σ_B of Algorithm 1 with v = ``main`` and β' = ``reserve``: good for a choice only."""
    eigenvalues, vectors = scipy_linalg.eigh(estimate)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    size = eigenvalues.size
    # eigenvalues that the samples tell from 0
    large = np.flatnonzero(eigenvalues > slack)
    # gaps between each eigenvalue above the slack and all others
    distances = np.abs(eigenvalues[large, None] - eigenvalues[None, :])
    distances[np.arange(large.size), large] = math.inf
    # eigenvectors are too uncertain to tell directions apart: the same noise in all
    needed = radius * math.sqrt(size * slack) + 2.0 * slack
    if large.size == 0 or distances.min(initial=math.inf) <= needed:
        variance = (float(eigenvalues.sum()) + size * slack) / (2.0 * main)
        return Diagonal(np.full(size, variance))
    # noise of Auto-PAC for the eigenvalues, raised by what they may lack
    roots = np.sqrt(eigenvalues + PUBLISHED_SLACK * slack * main / reserve)
    return Factored((vectors * np.sqrt(roots * (roots.sum() / (2.0 * main)))).T)


def exact_spectrum(ratios: Array, mi_budget: float) -> tuple[Array, float]:
    """Return the least-sum noise spectrum with ``½ Σ ln(1 + r/l) <= mi_budget``, and μ, rounded up.

    Stationarity ``l² + r l = μ r/2`` gives ``l = μ r / (r + √(r² + 2 μ r))``.
    """
    # over the largest ratio: μ and l scale with it
    scale = float(ratios.max())
    relative = ratios / scale

    def excess(log_multiplier: float) -> float:
        """Information above the budget, to rounding, decreasing in ln μ."""
        multiplier = math.exp(log_multiplier)
        # ln(1 + r/l) = ln(1 + (r + √(r² + 2μr))/μ), a sum of positive terms
        root = np.sqrt(relative * (relative + 2.0 * multiplier))
        return float(0.5 * np.log1p((relative + root) / multiplier).sum()) - mi_budget

    # where the linear bound ½ Σ r/l spends the budget, about; raised until the information is below
    high = 2.0 * math.log(float(np.sqrt(relative).sum()) / mi_budget)
    while excess(high) > 0.0:
        high += STEP_UP
    low = high
    while excess(low) < 0.0 and low > LOWEST_LOG_MULTIPLIER:
        low = max(low - STEP_DOWN, LOWEST_LOG_MULTIPLIER)
    if excess(low) <= 0.0:
        solution = low
    else:
        # excess falls in ln μ: bracketed, a root is sure
        solution = float(brentq(excess, low, high, xtol=ROOT_TOLERANCE, rtol=4 * EPS))
        # the last digits upwards until the information is within
        step = EPS * max(1.0, abs(solution))
        while excess(solution) > 0.0:
            solution += step
            step *= 2.0
    # l = μ r/(r + √(r² + 2 μ r)): no difference of like numbers, as −r + √(…) is
    multiplier = math.exp(solution)
    root = np.sqrt(relative * (relative + 2.0 * multiplier))
    return scale * relative * (multiplier / (relative + root)), scale * multiplier


def linear_spectrum(ratios: Array, mi_budget: float) -> Array:
    """Return ``√r Σ√r/(2 β)``, to rounding: least sum, ``½ Σ r/l = β`` (residual-pac, Thm 1)."""
    roots = np.sqrt(ratios)
    spectrum: Array = roots * (roots.sum() / (2.0 * mi_budget))
    return spectrum


def least_cost(ratios: Array, multiplier: float, mi_budget: float) -> float:
    """Return a lower bound on ``Σ l`` under the budget: the dual function at μ.

    ``min_l Σ l + μ (½ Σ ln(1 + r/l) − β)``, attained at the l of ``exact_spectrum``.
    """
    moving = ratios[ratios > 0.0]
    # the minimiser of the Lagrangian at μ, whose value is the dual function
    root = np.sqrt(moving) * np.sqrt(moving + 2.0 * multiplier)
    spectrum = moving * (multiplier / (moving + root))
    information = 0.5 * float(np.log1p((moving + root) / multiplier).sum())
    return float(spectrum.sum()) + multiplier * (information - mi_budget)


def scaled_to_budget(
    output_covariance: Array, covariance: Covariance, mi_budget: float
) -> tuple[Covariance, float]:
    """Return Σ, enlarged until its certified information fits the budget, and that, rounded up."""
    candidate, growth = covariance, 1.0
    for attempt in range(ENLARGEMENTS):
        # certified for Σ as it will be drawn
        ratios = signal_to_noise(output_covariance, candidate)
        information = information_of_ratios(ratios)
        if information <= mi_budget:
            return candidate, information
        if math.isinf(information):
            break
        # by the factor that about fits, and twice as many last digits every time
        growth *= _growth(ratios, mi_budget) * (1.0 + 2.0**attempt * EPS)
        candidate = covariance.scaled(growth)
    raise ValueError(
        "cost: expected a cost under which the noise can be certified in double precision, got "
        f"one with which the noise covers only {covariance.rank} of {covariance.dim} directions "
        "or is too ill-conditioned"
    )


def _growth(ratios: Array, mi_budget: float) -> float:
    """Return the factor c >= 1 with ``½ Σ ln(1 + w/c) = mi_budget``, good for a choice only."""

    def excess(log_growth: float) -> float:
        return float(0.5 * np.log1p(ratios * math.exp(-log_growth)).sum()) - mi_budget

    if excess(0.0) <= 0.0:
        return 1.0
    # a bracket for ln c: the excess is at the last digits, or far
    high = FIRST_GROWTH
    while excess(high) > 0.0:
        high *= GROWTH_FACTOR
    return math.exp(float(brentq(excess, 0.0, high, xtol=GROWTH_TOLERANCE)))
