"""The best law for the size of the noise: a convex problem over a dictionary of scales."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import logsumexp

from tacit._ground.checks import Array

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
