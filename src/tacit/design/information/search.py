"""The search for noise whose true information is least: its shape, its size, the law of its size.

Nothing here certifies: what is found is judged on fixed draws, and `exact` certifies it on fresh
ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import linalg as scipy_linalg
from scipy.optimize import minimize
from scipy.special import logsumexp

from tacit._ground.checks import Array
from tacit.information.finite.likelihood import FiniteSecret, posterior

# Steps to the size at which the budget is spent, and how near ln I comes to it.
SCALE_STEPS, SCALE_TOLERANCE = 40, 1e-4
# One step in ln s; every third is a bisection, for plateaus.
LARGEST_STEP, BISECT_EVERY = 2.0, 3
# d ln I/d ln s counts as at least this, where the information hardly changes.
SMALLEST_SLOPE = 1e-3
# Shapes that are tried, and the relative cost that one more must save.
SHAPE_STEPS, COST_TOLERANCE = 10, 2e-4
# Smaller noise beside larger costs nothing less, and its squared ratios would drown in rounding.
SMALLEST_VARIANCE = 1e-9
# ½ tr S beyond which nothing that is subtracted from it keeps a digit.
LARGEST_HALF_TRACE = 1e5
# Of an information that is estimated as 0 or less.
LEAST_INFORMATION = 1e-300

# Sizes s_k among which the law of the size is sought, relative to the noise of one size.
SCALES = np.geomspace(1.0 / 32.0, 16.0, 25)
# Draws from every component, and how many densities may be computed for them.
DRAWS_PER_SCALE, FEWEST_PER_SCALE, WORK = 1_000, 50, 150_000_000
# Squared distances that are held at once.
ENTRIES_PER_BLOCK = 400_000
# Probabilities below this are left out, and the others raised in proportion.
NEGLIGIBLE = 2e-3
# Of the constrained minimisation: where it starts, the least probability, when it ends.
FIRST_SHARE, LEAST_SHARE, ITERATIONS, TOLERANCE = 1e-3, 1e-9, 300, 1e-9


@dataclass(frozen=True, eq=False)
class EigenNoise:
    """Noise ``V diag(variances) Vᵀ`` in coordinates in which its cost is the sum of variances."""

    axes: Array
    variances: Array

    @property
    def cost(self) -> float:
        """Return tr Σ, to rounding."""
        return float(self.variances.sum())

    def scaled(self, factor: float) -> EigenNoise:
        """Return c Σ, to rounding."""
        return EigenNoise(self.axes, factor * self.variances)


@dataclass(frozen=True, eq=False)
class NoiseMeasure:
    """Information of a noise, and the error E of the best estimate of the output, E‖·‖ by axis."""

    noise: EigenNoise
    information: float
    error: Array

    @property
    def slope(self) -> float:
        """Return dI/d ln s for s Σ, ``−½ tr(E Σ⁻¹)``, good for a choice only."""
        return -0.5 * float((np.diagonal(self.error) / self.noise.variances).sum())


@dataclass(frozen=True, eq=False)
class InformationProblem:
    """Least noise for N outputs under the information they carry, on fixed random numbers.

    Attributes:
        outputs: (N, k), centred, in coordinates of cost 1 each.
        weights: (N,).
        secrets: (n,) indices of the secrets drawn.
        normals: (n, k) noise before it is coloured.
        free: whether the noise may turn; if not, it stays along the coordinates.
    """

    outputs: Array
    weights: Array
    secrets: Array
    normals: Array
    free: bool

    @staticmethod
    def of(
        outputs: Array, weights: Array, draws: int, source: np.random.Generator, *, free: bool
    ) -> InformationProblem:
        """Draw the numbers that every candidate noise is judged on: good for a choice only."""
        count, size = outputs.shape
        # Systematic sampling: every secret as often as its weight says, to within one.
        positions = (np.arange(draws) + source.random()) / draws
        secrets = np.minimum(np.searchsorted(np.cumsum(weights), positions), count - 1)
        return InformationProblem(
            outputs, weights, secrets, source.standard_normal((draws, size)), free
        )

    def measure(self, noise: EigenNoise) -> NoiseMeasure:
        """Return the information of the noise and E, good for a choice only, on the fixed draws.

        ``I = ½ tr S − E ℓ = H(X) − E H(X | y)``: the mixture of the two, and of the quadratic form
        whose mean is known, that varies least.
        """
        # whitened: noise is N(0, I), and E(output | y) is the posterior mean
        points = (self.outputs @ noise.axes) / np.sqrt(noise.variances)
        secret = FiniteSecret(points, np.log(self.weights), np.empty(0))
        noisy = points[self.secrets] + self.normals
        found = posterior(secret, noisy, means=True)
        assert found.means is not None
        # what the best estimate misses, back in the outputs' units
        residual = (points[self.secrets] - found.means) * np.sqrt(noise.variances)
        # q(y) = ½ yᵀ (I + S)⁻¹ S y has mean ½ tr S: a control whose mean is known
        moment = (points * self.weights[:, None]).T @ points
        shrunk = np.linalg.solve(np.eye(len(moment)) + moment, moment)
        quadratic = 0.5 * np.einsum("ij,ij->i", noisy @ shrunk, noisy)
        half_trace = 0.5 * float(np.trace(moment))
        by_likelihood = half_trace - found.log_sum
        information = secret.entropy - found.entropy
        if half_trace <= LARGEST_HALF_TRACE:
            # all three have the same mean: their differences are controls of mean 0
            controls = [by_likelihood - information, quadratic - half_trace]
            information = _least_varying(information, controls)
        mean = max(float(information.mean()), LEAST_INFORMATION)
        return NoiseMeasure(noise, mean, residual.T @ residual / len(residual))

    def at_budget(self, noise: EigenNoise, mi_budget: float) -> NoiseMeasure:
        """Return the multiple of the noise that spends the budget, good for a choice only."""
        measured = self.measure(noise)
        low, high = -math.inf, math.inf
        position = 0.0
        for step_number in range(SCALE_STEPS):
            # ln I is nearly linear in ln s where I is not near its ceiling
            excess = math.log(measured.information / mi_budget)
            if abs(excess) <= SCALE_TOLERANCE:
                break
            low, high = (position, high) if excess > 0.0 else (low, position)
            slope = min(measured.slope / measured.information, -SMALLEST_SLOPE)
            step = float(np.clip(-excess / slope, -LARGEST_STEP, LARGEST_STEP))
            position += step
            # Newton crawls across a plateau of the information; bisection does not.
            if not low < position < high or (
                step_number % BISECT_EVERY == 2 and math.isfinite(low + high)
            ):
                position = 0.5 * (low + high)
            measured = self.measure(noise.scaled(math.exp(position)))
        return measured

    def reshape_by(self, measured: NoiseMeasure) -> EigenNoise:
        """Return noise of the stationary shape ``Σ ∝ E^½`` for the E measured: a choice only."""
        if not self.free:
            # noise that may not turn has only variances to choose
            roots = np.sqrt(np.diagonal(measured.error))
            return EigenNoise(measured.noise.axes, _invertible(roots))
        values, vectors = scipy_linalg.eigh(measured.error)
        return EigenNoise(
            measured.noise.axes @ vectors, _invertible(np.sqrt(np.maximum(values, 0.0)))
        )

    def descend(
        self, start: EigenNoise, mi_budget: float, tick: Callable[[], None]
    ) -> Iterator[NoiseMeasure]:
        """Yield noises within the budget, each of the stationary shape for the one before."""
        current = self.at_budget(start, mi_budget)
        tick()
        yield current
        for _ in range(SHAPE_STEPS):
            if not current.error.any():
                return
            shape = self.reshape_by(current)
            # The size of the shape before is a good first guess.
            guess = shape.scaled(current.noise.cost / shape.cost)
            following = self.at_budget(guess, mi_budget)
            tick()
            yield following
            if following.noise.cost > current.noise.cost * (1.0 - COST_TOLERANCE):
                return
            current = following


def _invertible(roots: Array) -> Array:
    """Return variances, exactly, none too small for double precision to whiten by."""
    return np.maximum(roots, SMALLEST_VARIANCE * float(roots.max()))


def _least_varying(values: Array, controls: list[Array]) -> Array:
    """Return values plus multiples of mean-zero controls that vary least: a choice only."""
    columns = np.stack(controls, axis=1)
    centred = columns - columns.mean(axis=0)
    slopes = np.linalg.lstsq(centred, -(values - values.mean()), rcond=None)[0]
    steadied: Array = values + columns @ slopes
    return steadied


@dataclass(frozen=True, eq=False)
class ScaleProblem:
    """I(π) of noise N(0, s_k I) with probability π_k, on fixed draws from every component.

    ``I(π) = Σ_k π_k E_k [ln p_B(b) − ln p_Y(x + b)]`` is convex in π.

    Attributes:
        noise_densities: (n, K) ln N(b_i; 0, s_k I) up to a common factor.
        output_densities: (n, K) ln E_x N(y_i − x; 0, s_k I) up to the same factor.
        component: (n,) the component that draw i came from.
    """

    noise_densities: Array
    output_densities: Array
    component: npt.NDArray[np.intp]
    per_component: int

    @staticmethod
    def of(points: Array, weights: Array, source: np.random.Generator) -> ScaleProblem:
        """Draw from every component, for whitened points (N, d): good for a choice only."""
        count, size = points.shape
        draws = int(min(DRAWS_PER_SCALE, max(FEWEST_PER_SCALE, WORK // (count * SCALES.size**2))))
        secrets = source.choice(count, size=SCALES.size * draws, p=weights)
        component = np.repeat(np.arange(SCALES.size), draws)
        noise = np.sqrt(SCALES)[component, None] * source.standard_normal((len(secrets), size))
        norms = 0.5 * size * np.log(SCALES)
        # ln N(b; 0, s_k I), up to (2π)^{−d/2}, for each k, whichever component b came from
        own = -0.5 * (noise**2).sum(axis=1)[:, None] / SCALES - norms
        noisy = points[secrets] + noise
        mixed = np.empty_like(own)
        squares = (points**2).sum(axis=1)
        rows = max(1, ENTRIES_PER_BLOCK // count)
        for start in range(0, len(noisy), rows):
            part = noisy[start : start + rows]
            # ‖y − z_j‖² without a third dimension
            squared = (part**2).sum(axis=1)[:, None] + squares - 2.0 * part @ points.T
            for index, scale in enumerate(SCALES):
                mixed[start : start + rows, index] = logsumexp(
                    -0.5 * squared / scale, b=weights, axis=1
                )
        return ScaleProblem(own, mixed - norms, component, draws)

    def information(self, probabilities: Array) -> tuple[float, Array]:
        """Return I(π) and its gradient, good for a choice only, on the fixed draws."""
        with np.errstate(divide="ignore"):
            logarithms = np.log(probabilities)
        # ln Σ_k π_k N(·): the densities of the noise and of the release under the mixture
        own: Array = logsumexp(self.noise_densities + logarithms, axis=1)
        mixed: Array = logsumexp(self.output_densities + logarithms, axis=1)
        # E_k of the log ratio, and how the log ratio itself moves with π
        means = np.bincount(self.component, own - mixed) / self.per_component
        shares = probabilities[self.component] / self.per_component
        slopes = np.exp(self.noise_densities - own[:, None])
        slopes -= np.exp(self.output_densities - mixed[:, None])
        gradient: Array = means + shares @ slopes
        return float(probabilities @ means), gradient

    def least_noise(self, mi_budget: float) -> Array:
        """Return π of least ``Σ π_k s_k`` with I(π) <= β, good for a choice only."""
        # from the largest noise, which is within the budget
        start = np.full(SCALES.size, FIRST_SHARE)
        start[-1] += 1.0 - start.sum()
        found = minimize(
            lambda p: (float(p @ SCALES), SCALES),
            start,
            jac=True,
            method="SLSQP",
            bounds=[(LEAST_SHARE, 1.0)] * SCALES.size,
            constraints=[
                {"type": "eq", "fun": lambda p: p.sum() - 1.0, "jac": np.ones_like},
                {
                    "type": "ineq",
                    "fun": lambda p: (mi_budget - self.information(p)[0]) / mi_budget,
                    "jac": lambda p: -self.information(p)[1] / mi_budget,
                },
            ],
            options={"maxiter": ITERATIONS, "ftol": TOLERANCE},
        )
        # a law of a few sizes, which sums to 1 again
        probabilities = np.where(found.x > NEGLIGIBLE, found.x, 0.0)
        total = float(probabilities.sum())
        # nothing was found: noise of one size
        if not math.isfinite(total) or total <= 0.0:
            probabilities, total = np.where(np.abs(SCALES - 1.0) < LEAST_SHARE, 1.0, 0.0), 1.0
        normalised: Array = probabilities / total
        return normalised
