"""Gaussian noise that is stationary for the true information of a finite secret."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy import linalg as scipy_linalg

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
