"""Least noise for a finite secret under its true information, certified on draws never seen."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from tacit._ground.checks import (
    Array,
    RandomSource,
    choice,
    generator,
    in_interval,
    matrix,
    positive,
)
from tacit._ground.numbers import EPS
from tacit.compute import progress_bar
from tacit.covariance import Covariance, Diagonal, Factored, ScaleMixture, whiten
from tacit.design.base import Design, no_noise
from tacit.design.cost import CostAxes, ProtectedCost, cost_matrix
from tacit.design.information.gaussian import gaussian_information
from tacit.design.information.search import (
    SCALE_TOLERANCE,
    SCALES,
    SHAPE_STEPS,
    EigenNoise,
    InformationProblem,
    NoiseMeasure,
    ScaleProblem,
)
from tacit.information import InformationBracket, mixture
from tacit.information.concentration import confidence_share
from tacit.information.distinct import distinct_outputs, entropy
from tacit.text import number_up

Noises: TypeAlias = Covariance | ScaleMixture

Family: TypeAlias = Literal["full", "diagonal", "scale", "mixture"]
# Families in which the noise may turn away from the coordinates.
TURNING = ("full", "mixture")
MIXTURE = "true-information-mixture"
# Likelihoods that the search and a certificate may compute, and their draws between these.
OPTIMISER_WORK, FEWEST_DRAWS, MOST_DRAWS = 15_000_000, 4_000, 40_000
CERTIFIER_WORK, FEWEST_CERTIFYING, MOST_CERTIFYING = 300_000_000, 100_000, 500_000
# Numbers that a certificate's draws may hold; the search's cost by dimension, in so many columns.
MOST_NUMBERS, COLUMNS_AS_FAST = 20_000_000, 16
# How much slower a likelihood is for every size of noise there is.
SLOWER_BY_SCALE = 4
# Certificates that are tried after a rehearsal on this share of the draws.
ATTEMPTS, REHEARSAL = 8, 0.25
# A certificate that leaves less of the budget, or comes at this attempt, is not tightened.
TIGHT, LAST_TIGHTENING = 2e-3, 2
# Share of the confidence width that a certificate on fresh draws is allowed to fluctuate.
MARGIN = 0.5
# dI/d ln s counts as at least this share of the budget.
SMALLEST_SLOPE = 1e-3
# Logarithm of the largest change of size in one attempt, where the information hardly changes.
LARGEST_CHANGE = 14.0
# Ratios of F^½ S F^½ below this, relative to the largest, are coordinates in which nothing moves.
STILL = 1e-13
# Squares of the outputs stay within double precision.
SMALLEST_SPREAD, LARGEST_SPREAD = 1e-120, 1e120
# With less than this share of the budget unused, the log-det design cannot be improved noticeably.
WORTH_IMPROVING = 2e-3
# Units in the last place beside the number of outputs: of a product of that many terms.
PRODUCT_UNITS = 4
# Looks of the progress bar beside one for each shape.
OTHER_STEPS = 3
FRESH = "certified on draws that were not used to choose the noise"
NO_NOISE = "no-noise"
NOT_IMPROVED = "the log-det optimum spends the true information too: no cheaper noise was found"


def true_information(
    outputs: ArrayLike,
    mi_budget: float,
    *,
    family: Family = "full",
    weights: ArrayLike | None = None,
    cost: ArrayLike | ProtectedCost | None = None,
    confidence: float = 0.99,
    rng: RandomSource = None,
    progress: bool | None = None,
) -> Design:
    """Choose the least Gaussian noise whose information bound for a finite secret fits a budget.

    Minimise ``tr(F Σ)`` subject to ``I(X; Y) <= β``, Y = output of X + N(0, Σ). With E the
    covariance of the error of the best estimate of the output from Y, ``∂I/∂Σ⁻¹ = E/2``, so that
    ``Σ = c F^-½ (F^½ E F^½)^½ F^-½`` at the optimum: a fixed point, found by repeating it on
    common random numbers from the log-det optimum. Its upper confidence bound by ``mixture`` on
    fresh draws is within the budget, or the noise is enlarged and certified on fresh draws again.

    Args:
        outputs: (N, d), one per secret.
        mi_budget: β in nats.
        family: ``"full"`` covariance, ``"diagonal"``, ``"scale"``: a multiple of the log-det
            optimum, or ``"mixture"``: noise of the best full shape whose size is drawn too, a
            ``ScaleMixture``, which saves most where β is near the entropy of the outputs.
        weights: (N,) prior probabilities; None for equally likely.
        cost: F, what noise costs: None (squared error), a scalar, (d,) or (d, d); or a
            ``ProtectedCost``, for least noise in a task subspace.
        confidence: of the certificate, in (0, 1).
        rng: source of the draws.
        progress: whether to show a bar on a terminal; None and True do.

    Returns:
        A ``Design``. ``information`` is certified, at most ``mi_budget``, with ``confidence``,
        which is that of all certificates tried, together; it is None where the log-det optimum is
        returned because nothing cheaper was found, and where β is at or above the entropy of the
        distinct outputs: then there is no noise, and ``information`` is that entropy.

    Raises:
        ValueError: a bad argument, outputs that never differ, or a spread of a column that double
            precision cannot square.

    Example:
        >>> clusters = np.array([[-3.0, 0.0], [-3.0, 1.0], [3.0, 0.0], [3.0, 1.0]])
        >>> design = true_information(clusters, 0.5, rng=0)
        >>> exact = gaussian_information(np.cov(clusters.T, bias=True), 0.5)
        >>> design.information <= 0.5 and design.cost < exact.cost
        True

    Source: residual-pac, Sec. 5 (the goal of SR-PAC); Palomar and Verdú, "Gradient of mutual
    information in linear vector Gaussian channels" (2006), Thm 2, for the gradient.
    """
    given = matrix("outputs", outputs)
    budget = positive("mi_budget", mi_budget)
    choice("family", family, get_args(Family))
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    points, priors = distinct_outputs(given, weights)
    if len(points) == 1:
        raise ValueError("outputs: expected outputs that differ, got the same one for every secret")
    # what noise costs, and what it is charged while it is chosen
    guarded = cost if isinstance(cost, ProtectedCost) else None
    prices = cost_matrix(cost if guarded is None else guarded.cost, points.shape[1])
    charged = prices if guarded is None else guarded.charged(prices)
    source = generator(rng)
    ceiling = entropy(priors)
    # H(X) >= I: outputs of so little entropy need no noise at all
    if ceiling <= budget:
        return no_noise(points.shape[1], ceiling, NO_NOISE, entropy_sentence(len(points), ceiling))
    _check_spread(points)
    # the log-det optimum is the start, and the answer where nothing cheaper is found
    # S upwards: what is certified for more than S holds for S
    upper = _covariance_upwards(points, priors)
    gaussian = gaussian_information(
        upper, budget, cost=charged, method="diagonal" if family == "diagonal" else "exact"
    )
    frame = _Frame.of(upper, charged, gaussian, turns=family != "diagonal")
    shown = progress is not False
    with progress_bar(SHAPE_STEPS + OTHER_STEPS, "choosing the noise", shown=shown) as advance:
        task = _SearchTask(points, priors, ceiling, budget, frame, source, lambda: advance(1))
        designs = [gaussian, *task.improve(family, level)]
    # all are certified for the same budget: the cheapest under the cost that was charged
    chosen = min(designs, key=lambda design: design.covariance.weighted_trace(charged))
    if chosen is gaussian:
        chosen = replace(gaussian, notes=(*gaussian.notes, NOT_IMPROVED))
    return replace(chosen, cost=chosen.covariance.weighted_trace(prices))


def _check_spread(points: Array) -> None:
    """Refuse outputs whose squares are no floats: their covariance would be 0 or inf."""
    with np.errstate(over="ignore"):
        spreads = np.ptp(points, axis=0)
    lowest, highest = float(spreads[spreads > 0.0].min()), float(spreads.max())
    if lowest < SMALLEST_SPREAD or highest > LARGEST_SPREAD:
        raise ValueError(
            f"outputs: expected outputs that spread over {SMALLEST_SPREAD:g} to "
            f"{LARGEST_SPREAD:g}, got {lowest:.3g} to {highest:.3g}: choose other units"
        )


def entropy_sentence(count: int, nats: float) -> str:
    """Say why ``count`` different outputs of so many nats are left as they are."""
    return (
        f"no noise: the {count:,} different outputs have an entropy of at most {number_up(nats)} "
        "nats, which is within the budget"
    )


@dataclass(frozen=True, eq=False)
class _Frame:
    """Coordinates u, ``x = directions u``, in which noise costs its trace.

    Only ``moving`` coordinates are searched; the others, in which outputs do not differ but for
    rounding, keep the variances ``still`` of the log-det design.
    """

    directions: Array
    inverse: Array
    moving: npt.NDArray[np.bool_]
    variances: Array
    turns: bool

    @staticmethod
    def of(upper: Array, charged: Array, gaussian: Design, *, turns: bool) -> _Frame:
        """Return the principal axes of F^½ S F^½, or the coordinates where noise may not turn."""
        if turns:
            # x = F^-½ U u: the outputs are uncorrelated in u, and noise costs its trace
            frame = CostAxes.of(upper, charged)
            assert frame.directions is not None
            directions, ratios = frame.directions, frame.ratios
            inverse = directions.T @ (np.diag(charged) if charged.ndim == 1 else charged)
        else:
            # noise along the coordinates: only scaled to unit cost
            roots = np.sqrt(charged if charged.ndim == 1 else np.diagonal(charged))
            directions, inverse = np.diag(1.0 / roots), np.diag(roots)
            ratios = np.diagonal(upper) * roots**2
        # those of the log-det optimum in these coordinates
        variances = np.einsum(
            "ij,jk,ik->i", inverse, gaussian.covariance.to_dense(), inverse, optimize=True
        )
        return _Frame(directions, inverse, ratios > STILL * ratios.max(), variances, turns)

    def inward(self, points: Array, priors: Array) -> Array:
        """Return the moving coordinates of the outputs, centred, to rounding."""
        # relative to one output, which keeps the digits of small differences of large ones
        moved = (points - points[0]) @ self.inverse[self.moving].T
        centred: Array = moved - priors @ moved
        return centred

    def outward(self, noise: EigenNoise) -> Covariance:
        """Return Σ, to rounding, of a noise given in the moving coordinates."""
        if not self.turns:
            variances = self.variances.copy()
            variances[self.moving] = noise.variances
            return Diagonal(variances * np.diagonal(self.directions) ** 2)
        # a factor of Σ, columns side by side
        moving = self.directions[:, self.moving] @ (noise.axes * np.sqrt(noise.variances))
        # where outputs do not differ but for rounding the log-det noise stays
        still = self.directions[:, ~self.moving] * np.sqrt(self.variances[~self.moving])
        return Factored(np.concatenate([moving, still], axis=1).T)


@dataclass(frozen=True, eq=False)
class _SearchTask:
    """One run: the secret, its budget, and the source of all draws."""

    points: Array
    priors: Array
    ceiling: float
    budget: float
    frame: _Frame
    source: np.random.Generator
    tick: Callable[[], None]

    def search(self, family: str) -> NoiseMeasure | None:
        """Return the cheapest noise found, None for the log-det optimum: good for a choice only."""
        # in u noise costs its trace, and Σ of the search is a plain matrix
        outputs = self.frame.inward(self.points, self.priors)
        size = outputs.shape[1]
        # as many draws as its work allows: the search judges every candidate on the same
        draws = max(FEWEST_DRAWS, OPTIMISER_WORK // (len(outputs) * (1 + size // COLUMNS_AS_FAST)))
        problem = InformationProblem.of(
            outputs, self.priors, min(draws, MOST_DRAWS), self.source, free=family in TURNING
        )
        start = EigenNoise(np.eye(size), self.frame.variances[self.frame.moving])
        # the log-det optimum already spends the true information too
        if problem.measure(start).information >= self.budget * (1.0 - WORTH_IMPROVING):
            return None
        if family == "scale":
            return problem.at_budget(start, self.budget)
        found = list(problem.descend(start, self.budget, self.tick))
        if family in TURNING:
            # a second start, the same noise in all directions: the fixed point need not be the only
            # one
            level = EigenNoise(np.eye(size), np.full(size, start.cost / size))
            found += problem.descend(level, self.budget, self.tick)
        # the cheapest of those within the budget on the search's own draws, which certify nothing
        within = [m for m in found if m.information <= self.budget * (1.0 + 2.0 * SCALE_TOLERANCE)]
        return min(within or found, key=lambda measured: measured.noise.cost)

    def improve(self, family: str, level: float) -> list[Design]:
        """Return certified designs that may cost less than the log-det optimum.

        All certificates hold together at ``level``, so that the cheapest may be kept.
        """
        # next to the entropy hardly any noise is needed, and none of it can be saved
        if self.budget >= self.ceiling * (1.0 - WORTH_IMPROVING):
            return []
        best = self.search(family)
        if best is None:
            return []
        form = self.frame.outward(best.noise)
        forms: list[tuple[Noises, str]] = [
            (form, f"true-information-{'full' if family == 'mixture' else family}")
        ]
        if family == "mixture":
            forms.append((self.spread(form), MIXTURE))
        # all certificates hold together: each takes its share of the failure
        each = confidence_share(level, 1.0 / len(forms))
        found = [self.certify(noise, best.slope, each, method) for noise, method in forms]
        return [
            design if design.confidence is None else replace(design, confidence=level)
            for design in found
            if design is not None
        ]

    def spread(self, form: Covariance) -> ScaleMixture:
        """Return the noise of the same shape whose size has the best law found: a choice only."""
        # the law of the size alone is chosen: in units of the shape all directions are alike
        whitened, _ = whiten(self.points - self.points[0], form)
        problem = ScaleProblem.of(whitened - self.priors @ whitened, self.priors, self.source)
        probabilities = problem.least_noise(self.budget)
        kept = probabilities > 0.0
        return ScaleMixture(form, SCALES[kept], probabilities[kept])

    def certify(self, form: Noises, slope: float, level: float, method: str) -> Design | None:
        """Return the noise, enlarged until a bound on fresh draws is within the budget.

        Attempt k spends ``(1 − confidence)/(k (k + 1))``, whatever comes of it; the rehearsal
        before them only sets the margin, and its draws are not used again. A certificate that
        leaves budget over is followed by an attempt with less noise.
        """
        found = None
        for attempt in range(ATTEMPTS + 1):
            # Σ 1/(k(k + 1)) = 1 over all attempts there may be
            spent = 1.0 / (max(attempt, 1) * (max(attempt, 1) + 1))
            bound = self._bound(form, confidence_share(level, spent), rehearsal=attempt == 0)
            self.tick()
            # a rehearsal certifies nothing, whatever it found
            if attempt and bound.upper <= self.budget:
                found = _design(form, bound, level, method, attempt)
                if bound.upper >= self.budget * (1.0 - TIGHT) or attempt >= LAST_TIGHTENING:
                    break
            elif found is not None:
                break
            # of a rehearsal on a quarter of the draws the width is twice that of a certificate
            width = (bound.upper - bound.estimate) * (REHEARSAL**0.5 if attempt == 0 else 1.0)
            # ln s changes the information at the measured slope
            excess = bound.estimate + (1.0 + MARGIN) * width - self.budget
            # about (I + width − β)/(−dI/d ln s), bounded where the information hardly changes
            change = excess / max(-slope, SMALLEST_SLOPE * self.budget)
            form = form.scaled(math.exp(max(-LARGEST_CHANGE, min(change, LARGEST_CHANGE))))
        return found

    def _bound(self, form: Noises, confidence: float, *, rehearsal: bool) -> InformationBracket:
        # draws within the work allowed, and within memory
        mixed = form.scales.size if isinstance(form, ScaleMixture) else 0
        draws = CERTIFIER_WORK // (len(self.points) * (1 + SLOWER_BY_SCALE * mixed))
        most = max(FEWEST_DRAWS, MOST_NUMBERS // self.points.shape[1])
        draws = min(max(draws, FEWEST_CERTIFYING), MOST_CERTIFYING, most)
        return mixture(
            self.points,
            form,
            weights=self.priors,
            samples=int(draws * REHEARSAL) if rehearsal else draws,
            confidence=confidence,
            rng=self.source,
        )


def _design(
    form: Noises, bound: InformationBracket, level: float, method: str, attempt: int
) -> Design:
    covariance = form.covariance if isinstance(form, ScaleMixture) else form
    return Design(
        covariance=covariance,
        cost=math.nan,
        gap=math.nan,
        method=method,
        multipliers=np.empty(0),
        iterations=attempt,
        information=bound.upper,
        confidence=None if bound.deterministic else level,
        notes=(FRESH,),
        noise=form if isinstance(form, ScaleMixture) else None,
    )


def _covariance_upwards(points: Array, priors: Array) -> Array:
    """Return a matrix that S, the covariance of the outputs, does not exceed: rounded up."""
    # relative to one output: small differences of large outputs keep their digits
    moved = points - points[0]
    centred = moved - priors @ moved
    covariance = (centred * priors[:, None]).T @ centred
    # entries of a product of N terms are off by (N + 4) 2⁻⁵² √(S_ii S_jj), their matrix by d of
    # that
    slack = points.shape[1] * (len(points) + PRODUCT_UNITS) * EPS
    upper: Array = (covariance + covariance.T) / 2.0 + slack * np.diag(np.diagonal(covariance))
    return upper
