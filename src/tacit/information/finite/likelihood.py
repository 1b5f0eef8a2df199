"""The posterior over a finite secret, given noisy outputs, streamed in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS
from tacit._ground.threads import one_thread
from tacit.compute import available_workers

ENTRIES_PER_BLOCK = 400_000
OUTPUTS_PER_TILE = 50_000
# Candidates whose likelihood is e⁻⁴⁰⁰ of the largest move no sum that double precision can hold.
NEGLIGIBLE_DISTANCE = 30.0


@dataclass(frozen=True, eq=False)
class FiniteSecret:
    """N points with weights, seen through N(0, I).

    Attributes:
        points: (N, r) centred outputs, whitened, along their principal axes.
        log_weights: (N,) logarithms of the prior probabilities.
        eigenvalues: (r,) variances of the points along the axes: signal-to-noise ratios.
    """

    points: Array
    log_weights: Array
    eigenvalues: Array

    @property
    def trace(self) -> float:
        """Return tr S = E‖z‖²."""
        return float(np.exp(self.log_weights) @ (self.points**2).sum(axis=1))

    @property
    def entropy(self) -> float:
        """Return H(X) in nats."""
        return float(-(np.exp(self.log_weights) @ self.log_weights))

    def draw(self, n: int, source: np.random.Generator) -> tuple[npt.NDArray[np.int64], Array]:
        """Draw n secrets, (n,), and their noisy outputs, (n, r)."""
        count, size = self.points.shape
        uniform = bool((self.log_weights == self.log_weights[0]).all())
        weights = None if uniform else np.exp(self.log_weights) / np.exp(self.log_weights).sum()
        secrets = source.choice(count, size=n, p=weights)
        noisy: Array = self.points[secrets] + source.standard_normal((n, size))
        return secrets, noisy


@dataclass(frozen=True, eq=False)
class Posterior:
    """What the posterior says at n draws.

    Attributes:
        log_sum: (n,) ``ln Σ_j p_j exp(y·z_j − ½‖z_j‖²)``: the log density over that of N(0, I).
        entropy: (n,) entropy of the posterior, nats.
        means: (n, r) posterior means, or None.
        error: (n,) bound on the rounding of each exponent that counts.
    """

    log_sum: Array
    entropy: Array
    means: Array | None
    error: Array


def principal_secret(outputs: Array, weights: Array) -> FiniteSecret:
    """Return the finite secret of whitened outputs, in coordinates that drop nothing."""
    centred = outputs - weights @ outputs
    if centred.shape[1] > centred.shape[0]:
        # Noise orthogonal to all N outputs carries nothing: N coordinates suffice.
        axes = np.linalg.qr(centred.T)[0]
        centred = centred @ axes
    eigenvalues, vectors = np.linalg.eigh((centred * weights[:, None]).T @ centred)
    points = centred @ vectors[:, ::-1]
    return FiniteSecret(
        np.ascontiguousarray(points), np.log(weights), np.maximum(eigenvalues[::-1], 0.0)
    )


def posterior(secret: FiniteSecret, noisy: Array, *, means: bool = False) -> Posterior:
    """Return the posterior over the secret at every noisy output, exactly.

    ``ln P(j | y) = ln p_j + y·z_j − ½‖z_j‖² − log_sum``. Blocks of draws run on all cores.
    """
    offsets = secret.log_weights - 0.5 * (secret.points**2).sum(axis=1)
    tiles = list(_slices(len(offsets), OUTPUTS_PER_TILE))

    def block(part: slice) -> tuple[Array, Array, Array | None]:
        return _block(noisy[part], secret.points, offsets, tiles, means=means)

    rows = max(1, ENTRIES_PER_BLOCK // min(len(offsets), OUTPUTS_PER_TILE))
    with one_thread():
        results = _on_all_cores(block, list(_slices(len(noisy), rows)))
    found = [result[2] for result in results if result[2] is not None]
    reach = np.linalg.norm(noisy, axis=1) + NEGLIGIBLE_DISTANCE
    return Posterior(
        log_sum=np.concatenate([result[0] for result in results]),
        entropy=np.maximum(np.concatenate([result[1] for result in results]), 0.0),
        means=np.concatenate(found) if means else None,
        error=(noisy.shape[1] + 8) * EPS * reach**2,
    )


def _block(
    noisy: Array, points: Array, offsets: Array, tiles: list[slice], *, means: bool
) -> tuple[Array, Array, Array | None]:
    """Return log sums, entropies and posterior means, merging tiles of outputs as they come."""
    top = np.full(len(noisy), -np.inf)
    total, weighted = np.zeros(len(noisy)), np.zeros(len(noisy))
    first = np.zeros((len(noisy), points.shape[1])) if means else None
    for tile in tiles:
        exponents = noisy @ points[tile].T
        exponents += offsets[tile]
        higher = np.maximum(top, exponents.max(axis=1))
        decay = np.exp(top - higher)
        # Σ e^{t − m}(t − m) when m moves up by s: decay (Σ − s total), and nothing is there yet
        # when the old maximum is −inf.
        shift = np.where(np.isfinite(top), top - higher, 0.0)
        weighted = decay * (weighted + shift * total)
        total = decay * total
        exponents -= higher[:, None]
        likelihoods = np.exp(exponents)
        total += likelihoods.sum(axis=1)
        weighted += np.einsum("ij,ij->i", likelihoods, exponents)
        if first is not None:
            first *= decay[:, None]
            first += likelihoods @ points[tile]
        top = higher
    entropy = np.log(total) - weighted / total
    return top + np.log(total), entropy, None if first is None else first / total[:, None]


def _on_all_cores(
    function: Callable[[slice], tuple[Array, Array, Array | None]], parts: list[slice]
) -> list[tuple[Array, Array, Array | None]]:
    workers = min(available_workers(), len(parts))
    if workers <= 1:
        return [function(part) for part in parts]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, parts))


def _slices(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
