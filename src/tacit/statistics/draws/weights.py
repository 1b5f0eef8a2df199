"""What an attacker believes of the declared draws after all that was released, with its error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array
from tacit.covariance import Covariance, Dense
from tacit.design import gaussian_information
from tacit.releases.outputs import output_covariance

# Uniform share that is mixed into the weights, so that no candidate is without any.
UNIFORM = 1e-9
# Noise on every number on its own, of its variance: the posterior can be computed from it.
FLOOR = 1e-6
# Relative rounding of a squared distance under noise that has that floor, for each coordinate.
ROUNDING = 1e-9
# Weights known worse than that are not used: noise for any weights takes their place.
LARGEST_FACTOR = 1e3
# Step of the grid on which answers are published, in deviations of the noise.
GRID = 2.0**-20


@dataclass(frozen=True, eq=False)
class CandidateWeights:
    """Weights of K candidates between two bounds, up to one factor: ``low <= c p <= high``.

    What was published is rounded, so that its likelihood is known up to a hair; the exact weights
    p of an attacker who knows all of it lie within.

    Attributes:
        log_low: (K,).
        log_high: (K,).
    """

    log_low: Array
    log_high: Array

    @staticmethod
    def uniform(count: int) -> CandidateWeights:
        """Return the weights before anything is released."""
        return CandidateWeights(np.zeros(count), np.zeros(count))

    @property
    def weights(self) -> tuple[Array, float]:
        """Weights w that sum to 1, (K,), and a factor U with ``p <= U w`` for the exact p."""
        # p <= high/Σ low: U is the ratio of both sums, with what these rounded off
        top = float(self.log_high.max())
        high, low = np.exp(self.log_high - top), np.exp(self.log_low - top)
        count = len(high)
        factor = float(high.sum() / low.sum()) * (1.0 + count * 2.0**-50)
        # a share of the uniform law, so that w is nowhere 0; U grows by 1/(1 − share)
        weights = (1.0 - UNIFORM) * high / high.sum() + UNIFORM / count
        return weights / weights.sum(), factor / (1.0 - UNIFORM) * (1.0 + count * 2.0**-50)

    def noise(self, outputs: Array, nats: float, prices: Array) -> Covariance:
        """Return noise under which an answer tells at most β nats of the draw, given all so far.

        For exact weights ``p <= U w``, ``w = p/U + (1 − 1/U) r`` for a law r, and information is
        concave in the law of the secret: ``I_p <= U I_w <= U ½ logdet(I + S_w Σ⁻¹) <= β``.
        Where U is large (answers published on a grid wider than their noise), nothing is assumed of
        p: in a box of half widths h, ``S_p ≼ d diag(h²)`` for every law.

        Args:
            outputs: (K, d) of the query, not all the same.
            nats: β > 0.
            prices: (d,), what noise costs.

        Source: residual-pac, Thm 1 and Prop. 2, under the posterior.
        """
        weights, factor = self.weights
        _, covariance, slack = output_covariance(outputs, weights)
        upper = covariance + slack * np.diag(np.diagonal(covariance))
        if factor > LARGEST_FACTOR:
            # S ≼ d diag(h²) for any law, by Cauchy–Schwarz, raised for the rounding of h
            halves = 0.5 * np.ptp(outputs, axis=0)
            upper, factor = np.diag(halves**2 * (len(halves) * (1.0 + 1e-12))), 1.0
        # β/U for w is β for p; what is added to the noise lowers the information further
        design = gaussian_information(upper, nats / factor, cost=prices)
        dense = design.covariance.to_dense()
        return Dense(dense * (1.0 + FLOOR * 1e-3) + FLOOR * np.diag(np.diagonal(dense)))

    def after(self, released: Array, outputs: Array, covariance: Covariance) -> CandidateWeights:
        """Return the weights after an answer was published.

        ``ln p(y | x_j) = −½ (y − x_j)ᵀ Σ⁻¹ (y − x_j)``, and rounding y by at most h in each
        coordinate changes it, relative to the others, by ``Σ |Σ⁻¹ (x_j − x̄)| h`` at most.

        Args:
            released: (d,) as published.
            outputs: (K, d).
            covariance: Σ of the noise.
        """
        dense = covariance.to_dense()
        deviations = np.sqrt(np.diagonal(dense))
        root = np.linalg.cholesky(dense / np.outer(deviations, deviations))
        # ½ (y − x_j)ᵀ Σ⁻¹ (y − x_j) in units of the deviations, by Cholesky
        gaps = (outputs - released) / deviations
        white = scipy_linalg.solve_triangular(root, gaps.T, lower=True)
        halves = 0.5 * np.square(white).sum(axis=0)
        rounding = ROUNDING * len(dense) * (1.0 + halves)
        halves -= halves.min()
        # Σ |Σ⁻¹ (x_j − x̄)| h of every candidate
        centred = (outputs - outputs.mean(axis=0)) / deviations
        slopes = np.abs(scipy_linalg.cho_solve((root, True), centred.T)).sum(axis=0)
        # half a step of the grid, and of the doubles where these are wider apart
        steps = max(GRID, float(np.max(np.spacing(np.abs(released)) / deviations)))
        errors = 0.5 * steps * slopes + rounding
        return CandidateWeights(self.log_low - halves - errors, self.log_high - halves + errors)
