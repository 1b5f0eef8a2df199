"""TODO."""

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

SCALE_STEPS = 40
SCALE_TOLERANCE = 1e-4
SHAPE_STEPS = 10
COST_TOLERANCE = 2e-4
LARGEST_STEP = 2.0
# Smaller noise beside larger costs nothing less, and its squared ratios would drown in rounding.
SMALLEST_VARIANCE = 1e-9
LARGEST_HALF_TRACE = 1e5


@dataclass(frozen=True, eq=False)
class Noise:
    """Noise ``V diag(variances) Vᵀ`` in coordinates in which its cost is the sum of variances."""

    axes: Array
    variances: Array

    @property
    def cost(self) -> float:
        """Return tr Σ."""
        return float(self.variances.sum())

    def scaled(self, factor: float) -> Noise:
        """Return c Σ."""
        return Noise(self.axes, factor * self.variances)


@dataclass(frozen=True, eq=False)
class Measured:
    """Information of a noise, and the error E of the best estimate of the output, E‖·‖ by axis."""

    noise: Noise
    information: float
    error: Array

    @property
    def slope(self) -> float:
        """Return dI/d ln s for s Σ: ``−½ tr(E Σ⁻¹)``."""
        return -0.5 * float((np.diagonal(self.error) / self.noise.variances).sum())


@dataclass(frozen=True, eq=False)
class Problem:
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
    ) -> Problem:
        """Draw the numbers that every candidate noise is judged on."""
        count, size = outputs.shape
        # Systematic sampling: every secret as often as its weight says, to within one.
        positions = (np.arange(draws) + source.random()) / draws
        secrets = np.minimum(np.searchsorted(np.cumsum(weights), positions), count - 1)
        return Problem(outputs, weights, secrets, source.standard_normal((draws, size)), free)

    def measure(self, noise: Noise) -> Measured:
        """Return the information of the noise and E, the mean squared error by posterior mean.

        ``I = ½ tr S − E ℓ = H(X) − E H(X | y)``: the mixture of the two, and of the quadratic form
        whose mean is known, that varies least.
        """
        points = (self.outputs @ noise.axes) / np.sqrt(noise.variances)
        secret = FiniteSecret(points, np.log(self.weights), np.empty(0))
        noisy = points[self.secrets] + self.normals
        found = posterior(secret, noisy, means=True)
        assert found.means is not None
        residual = (points[self.secrets] - found.means) * np.sqrt(noise.variances)
        moment = (points * self.weights[:, None]).T @ points
        shrunk = np.linalg.solve(np.eye(len(moment)) + moment, moment)
        quadratic = 0.5 * np.einsum("ij,ij->i", noisy @ shrunk, noisy)
        half_trace = 0.5 * float(np.trace(moment))
        by_likelihood = half_trace - found.log_sum
        information = secret.entropy - found.entropy
        if half_trace <= LARGEST_HALF_TRACE:
            controls = [by_likelihood - information, quadratic - half_trace]
            information = _least_varying(information, controls)
        mean = max(float(information.mean()), 1e-300)
        return Measured(noise, mean, residual.T @ residual / len(residual))

    def at_budget(self, noise: Noise, mi_budget: float) -> Measured:
        """Return the multiple of the noise whose information is the budget, by Newton's method."""
        measured = self.measure(noise)
        low, high = -math.inf, math.inf
        position = 0.0
        for step_number in range(SCALE_STEPS):
            excess = math.log(measured.information / mi_budget)
            if abs(excess) <= SCALE_TOLERANCE:
                break
            low, high = (position, high) if excess > 0.0 else (low, position)
            slope = min(measured.slope / measured.information, -1e-3)
            step = float(np.clip(-excess / slope, -LARGEST_STEP, LARGEST_STEP))
            position += step
            # Newton crawls across a plateau of the information; bisection does not.
            if not low < position < high or (step_number % 3 == 2 and math.isfinite(low + high)):
                position = 0.5 * (low + high)
            measured = self.measure(noise.scaled(math.exp(position)))
        return measured

    def reshaped(self, measured: Measured) -> Noise:
        """Return noise of the stationary shape ``Σ ∝ E^½`` for the E measured."""
        if not self.free:
            roots = np.sqrt(np.diagonal(measured.error))
            return Noise(measured.noise.axes, _kept(roots))
        values, vectors = scipy_linalg.eigh(measured.error)
        return Noise(measured.noise.axes @ vectors, _kept(np.sqrt(np.maximum(values, 0.0))))

    def descend(
        self, start: Noise, mi_budget: float, tick: Callable[[], None]
    ) -> Iterator[Measured]:
        """Yield noises within the budget, each of the stationary shape for the one before."""
        current = self.at_budget(start, mi_budget)
        tick()
        yield current
        for _ in range(SHAPE_STEPS):
            if not current.error.any():
                return
            shape = self.reshaped(current)
            # The size of the shape before is a good first guess.
            guess = shape.scaled(current.noise.cost / shape.cost)
            following = self.at_budget(guess, mi_budget)
            tick()
            yield following
            if following.noise.cost > current.noise.cost * (1.0 - COST_TOLERANCE):
                return
            current = following


def _kept(roots: Array) -> Array:
    """Return variances, none of them so small that double precision cannot whiten by it."""
    return np.maximum(roots, SMALLEST_VARIANCE * float(roots.max()))


def _least_varying(values: Array, controls: list[Array]) -> Array:
    """Return values plus the multiples of mean-zero controls that make them vary least."""
    columns = np.stack(controls, axis=1)
    centred = columns - columns.mean(axis=0)
    slopes = np.linalg.lstsq(centred, -(values - values.mean()), rcond=None)[0]
    steadied: Array = values + columns @ slopes
    return steadied


SCALES = np.geomspace(1.0 / 32.0, 16.0, 25)
DRAWS_PER_SCALE, WORK = 1_000, 150_000_000
NEGLIGIBLE = 2e-3
ITERATIONS = 300


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
        """Draw from every component, for whitened points (N, d)."""
        count, size = points.shape
        draws = int(min(DRAWS_PER_SCALE, max(50, WORK // (count * SCALES.size**2))))
        secrets = source.choice(count, size=SCALES.size * draws, p=weights)
        component = np.repeat(np.arange(SCALES.size), draws)
        noise = np.sqrt(SCALES)[component, None] * source.standard_normal((len(secrets), size))
        norms = 0.5 * size * np.log(SCALES)
        own = -0.5 * (noise**2).sum(axis=1)[:, None] / SCALES - norms
        noisy = points[secrets] + noise
        mixed = np.empty_like(own)
        squares = (points**2).sum(axis=1)
        rows = max(1, 400_000 // count)
        for start in range(0, len(noisy), rows):
            part = noisy[start : start + rows]
            squared = (part**2).sum(axis=1)[:, None] + squares - 2.0 * part @ points.T
            for index, scale in enumerate(SCALES):
                mixed[start : start + rows, index] = logsumexp(
                    -0.5 * squared / scale, b=weights, axis=1
                )
        return ScaleProblem(own, mixed - norms, component, draws)

    def information(self, probabilities: Array) -> tuple[float, Array]:
        """Return I(π) and its gradient."""
        with np.errstate(divide="ignore"):
            logarithms = np.log(probabilities)
        own: Array = logsumexp(self.noise_densities + logarithms, axis=1)
        mixed: Array = logsumexp(self.output_densities + logarithms, axis=1)
        means = np.bincount(self.component, own - mixed) / self.per_component
        shares = probabilities[self.component] / self.per_component
        slopes = np.exp(self.noise_densities - own[:, None])
        slopes -= np.exp(self.output_densities - mixed[:, None])
        gradient: Array = means + shares @ slopes
        return float(probabilities @ means), gradient

    def least_noise(self, mi_budget: float) -> Array:
        """Return π of least ``Σ π_k s_k`` with I(π) <= β."""
        start = np.full(SCALES.size, 1e-3)
        start[-1] += 1.0 - start.sum()
        found = minimize(
            lambda p: (float(p @ SCALES), SCALES),
            start,
            jac=True,
            method="SLSQP",
            bounds=[(1e-9, 1.0)] * SCALES.size,
            constraints=[
                {"type": "eq", "fun": lambda p: p.sum() - 1.0, "jac": np.ones_like},
                {
                    "type": "ineq",
                    "fun": lambda p: (mi_budget - self.information(p)[0]) / mi_budget,
                    "jac": lambda p: -self.information(p)[1] / mi_budget,
                },
            ],
            options={"maxiter": ITERATIONS, "ftol": 1e-9},
        )
        probabilities = np.where(found.x > NEGLIGIBLE, found.x, 0.0)
        total = float(probabilities.sum())
        if not math.isfinite(total) or total <= 0.0:
            probabilities, total = np.where(np.abs(SCALES - 1.0) < 1e-9, 1.0, 0.0), 1.0
        normalised: Array = probabilities / total
        return normalised
