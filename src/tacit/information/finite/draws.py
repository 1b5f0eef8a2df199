"""Statistics of simulated releases whose means are the information, and bounds on those means."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS
from tacit.information.concentration import mean_lower_bound, promised_width
from tacit.information.finite.likelihood import FiniteSecret, posterior
from tacit.information.finite.tails import QuadraticTail, quadratic_tail

TAIL_SHARE = 1e-4
NUMBERS_PER_BLOCK = 4_000_000


@dataclass(frozen=True, eq=False)
class Draws:
    """What n independent releases say about a finite secret.

    Attributes:
        log_sum: (n,) ``ℓ(y) = ln p̄(y)/n(y)``, n the density of N(0, I); rounded down.
        entropy: (n,) ``H(X | Y = y)``, rounded down.
        information: (n,) ``ln N − H(X | Y = y)``, rounded down.
        quadratic: (n,) ``q(y) = ½ Σ_k w_k/(1 + w_k) y_k²``, rounded up.
        half_trace: ½ tr S.
        shortfall: ``ln N − H(X)``, rounded up; 0 for equally likely secrets.
    """

    log_sum: Array
    entropy: Array
    information: Array
    quadratic: Array
    half_trace: float
    shortfall: float

    @staticmethod
    def of(
        secret: FiniteSecret, secret_entropy: float, n: int, source: np.random.Generator
    ) -> Draws:
        """Draw n releases, a block at a time."""
        rows = max(1, NUMBERS_PER_BLOCK // secret.points.shape[1])
        blocks = [_simulated(secret, min(rows, n - at), source) for at in range(0, n, rows)]
        log_sum, entropy, error, quadratic = (
            np.concatenate(column) for column in zip(*blocks, strict=True)
        )
        most = math.log(len(secret.points))
        half_trace = 0.5 * secret.trace
        # A change of every exponent by e changes ln Σ by e, and the entropy by 2e (2 + ln N).
        unsure = 2.0 * error * (2.0 + most)
        return Draws(
            log_sum=np.maximum(log_sum - 2.0 * error, -half_trace),
            entropy=np.clip(entropy - unsure, 0.0, None),
            information=np.clip(most - entropy - unsure, 0.0, None),
            quadratic=quadratic,
            half_trace=half_trace,
            shortfall=max(0.0, most - secret_entropy) + 16.0 * EPS * most,
        )

    def __len__(self) -> int:
        """Return n."""
        return self.log_sum.size

    def lower_bound(self, pilot: Draws, confidence: float) -> float:
        """Return ``LCB(E (ln N − H(X | y))) − (ln N − H(X))``."""
        bound = mean_lower_bound(pilot.information, self.information, confidence)
        return bound - self.shortfall


def _simulated(
    secret: FiniteSecret, n: int, source: np.random.Generator
) -> tuple[Array, Array, Array, Array]:
    """Return ℓ, H(X | y), the rounding of the exponents and q, rounded up, at n draws."""
    _, noisy = secret.draw(n, source)
    found = posterior(secret, noisy)
    shrink = secret.eigenvalues / (1.0 + secret.eigenvalues)
    raised = 1.0 + (secret.points.shape[1] + 8) * EPS
    return found.log_sum, found.entropy, found.error, 0.5 * (noisy**2) @ shrink * raised


@dataclass(frozen=True)
class Statistic:
    """``V = α ℓ + (1 − α) H(X | y) − λ min(q, c)``, for which

    ``I = α ½ tr S + (1 − α) H(X) − λ E min(q, c) − E V`` and
    ``½ tr S − excess <= E min(q, c) <= ½ tr S``.
    """

    likelihood: float
    control: float
    tail: QuadraticTail | None
    half_trace: float
    secret_entropy: float

    @property
    def offset(self) -> float:
        """Return what E V is subtracted from, the excess of the tail apart."""
        return (self.likelihood - self.control) * self.half_trace + (
            1.0 - self.likelihood
        ) * self.secret_entropy

    @property
    def floor(self) -> float:
        """Return the least value that V can take."""
        clip = 0.0 if self.tail is None else self.tail.clip
        return -self.likelihood * self.half_trace - self.control * clip

    def values(self, draws: Draws) -> Array:
        """Return V for every draw."""
        combined = self.likelihood * draws.log_sum + (1.0 - self.likelihood) * draws.entropy
        if self.tail is not None and self.control:
            combined = combined - self.control * np.minimum(draws.quadratic, self.tail.clip)
        floored: Array = np.maximum(combined, self.floor)
        return floored

    def estimate(self, draws: Draws) -> float:
        """Return the information by the mean of V."""
        return self.offset - float(self.values(draws).mean())

    def upper_bound(self, pilot: Draws, main: Draws, confidence: float) -> float:
        """Return an upper confidence bound on I; only the pilot chose this statistic."""
        lowest = mean_lower_bound(
            self.values(pilot), self.values(main), confidence, floor=self.floor
        )
        excess = 0.0 if self.tail is None else self.control * self.tail.excess
        scale = abs(self.half_trace) + self.secret_entropy + abs(lowest)
        return self.offset - lowest + excess + 64.0 * EPS * scale


def best_statistic(
    secret: FiniteSecret, secret_entropy: float, pilot: Draws, n: int, confidence: float
) -> Statistic:
    """Return the statistic that promises the least upper bound from n draws, by the pilot."""
    half_trace = pilot.half_trace
    gaussian = 0.5 * float(np.log1p(secret.eigenvalues).sum())
    tail = quadratic_tail(secret, TAIL_SHARE * min(gaussian, secret_entropy))
    choices = [(1.0, 0.0), (0.0, 0.0)]
    if tail is not None:
        clipped = np.minimum(pilot.quadratic, tail.clip)
        choices += [(1.0, 1.0), _regressed(pilot.log_sum, pilot.entropy, clipped)]
    candidates = [
        Statistic(alpha, control, tail if control else None, half_trace, secret_entropy)
        for alpha, control in choices
    ]

    def width(statistic: Statistic) -> float:
        """All means are the same information, so only how sure they are sets them apart."""
        values = statistic.values(pilot)
        excess = 0.0 if statistic.tail is None else statistic.control * statistic.tail.excess
        return promised_width(values, n, confidence, floor=statistic.floor) + excess

    return min(candidates, key=width)


def _regressed(log_sum: Array, entropy: Array, clipped: Array) -> tuple[float, float]:
    """Return (α, λ), α in [0, 1] and λ in [0, 2], of about the least variance of V."""
    difference = log_sum - entropy
    columns = np.stack([difference, -clipped], axis=1)
    columns = columns - columns.mean(axis=0)
    target = -(entropy - entropy.mean())
    solution = np.linalg.lstsq(columns, target, rcond=None)[0]
    alpha = float(np.clip(solution[0], 0.0, 1.0))
    rest = alpha * log_sum + (1.0 - alpha) * entropy
    centred = clipped - clipped.mean()
    spread = float(centred @ centred)
    control = float(centred @ (rest - rest.mean())) / spread if spread > 0.0 else 0.0
    return alpha, float(np.clip(control, 0.0, 2.0))
