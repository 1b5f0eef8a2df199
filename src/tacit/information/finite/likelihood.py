"""The posterior over a finite secret, given noisy outputs, streamed in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS
from tacit._ground.threads import one_thread
from tacit.compute import available_workers
from tacit.covariance import Covariance, Diagonal
from tacit.information.log_det import information_of_ratios

# Exponents that are held at once by one core, and outputs in a tile of them, for the cache.
ENTRIES_PER_BLOCK, OUTPUTS_PER_TILE = 400_000, 50_000
# Outputs farther from a release than this have a likelihood below e⁻⁴⁰⁰ of the largest, which moves
# no sum that double precision can hold.
NEGLIGIBLE_DISTANCE = 30.0
# Beside the number of terms of a product: a few units in the last place.
PRODUCT_UNITS = 8
# Likelihoods that draws may need where nobody says how many draws, and their number between these.
WORK, FEWEST_SAMPLES, MOST_SAMPLES = 500_000_000, 20_000, 1_000_000


def sample_size(outputs: int) -> int:
    """Return how many draws a secret of so many outputs gets: good for a choice only."""
    return int(min(MOST_SAMPLES, max(FEWEST_SAMPLES, WORK // outputs)))


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
        """Return tr S = E‖z‖², to rounding."""
        return float(np.exp(self.log_weights) @ (self.points**2).sum(axis=1))

    @property
    def entropy(self) -> float:
        """Return H(X) in nats, to rounding."""
        return float(-(np.exp(self.log_weights) @ self.log_weights))

    def draw(self, n: int, source: np.random.Generator) -> tuple[npt.NDArray[np.int64], Array]:
        """Draw n secrets exactly by their weights, (n,), and their noisy outputs, (n, r)."""
        count, size = self.points.shape
        uniform = bool((self.log_weights == self.log_weights[0]).all())
        # equally likely ones are drawn by integers, which costs no table of sums
        weights = None if uniform else np.exp(self.log_weights) / np.exp(self.log_weights).sum()
        secrets = source.choice(count, size=n, p=weights)
        # y = z_x + N(0, I)
        noisy: Array = self.points[secrets] + source.standard_normal((n, size))
        return secrets, noisy


@dataclass(frozen=True, eq=False)
class PosteriorDraws:
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
    # centring moves the density of y and not what it tells; it makes y·z_j − ½‖z_j‖² small
    centred = outputs - weights @ outputs
    if centred.shape[1] > centred.shape[0]:
        # noise orthogonal to all N outputs carries nothing: N coordinates suffice
        axes = np.linalg.qr(centred.T)[0]
        centred = centred @ axes
    # S = E zzᵀ; along its axes S is diagonal, the largest first
    eigenvalues, vectors = np.linalg.eigh((centred * weights[:, None]).T @ centred)
    points = centred @ vectors[:, ::-1]
    # an eigenvalue below 0 is rounding; what it rounds by is added where a bound is made of it
    return FiniteSecret(
        np.ascontiguousarray(points), np.log(weights), np.maximum(eigenvalues[::-1], 0.0)
    )


def posterior(secret: FiniteSecret, noisy: Array, *, means: bool = False) -> PosteriorDraws:
    """Return the posterior over the secret at every noisy output, exactly.

    ``ln P(j | y) = ln p_j + y·z_j − ½‖z_j‖² − log_sum``. Blocks of draws run on all cores.
    """
    # ln p_j − ½‖z_j‖², once for all draws: ‖y‖² is the same for every j and cancels
    offsets = secret.log_weights - 0.5 * (secret.points**2).sum(axis=1)
    tiles = list(_slices(len(offsets), OUTPUTS_PER_TILE))

    def block(part: slice) -> tuple[Array, Array, Array | None]:
        return _block(noisy[part], secret.points, offsets, tiles, means=means)

    # as many draws at a time as fit beside a tile of outputs
    rows = max(1, ENTRIES_PER_BLOCK // min(len(offsets), OUTPUTS_PER_TILE))
    with one_thread():
        results = _on_all_cores(block, list(_slices(len(noisy), rows)))
    found = [result[2] for result in results if result[2] is not None]
    # an exponent that counts has ‖y − z_j‖ below 30, so ‖z_j‖ <= ‖y‖ + 30: of a product of r terms
    # it is off by (r + 8) u (‖y‖ + 30)² at most
    reach = np.linalg.norm(noisy, axis=1) + NEGLIGIBLE_DISTANCE
    return PosteriorDraws(
        log_sum=np.concatenate([result[0] for result in results]),
        entropy=np.maximum(np.concatenate([result[1] for result in results]), 0.0),
        means=np.concatenate(found) if means else None,
        error=(noisy.shape[1] + PRODUCT_UNITS) * EPS * reach**2,
    )


def _block(
    noisy: Array, points: Array, offsets: Array, tiles: list[slice], *, means: bool
) -> tuple[Array, Array, Array | None]:
    """Return log sums, entropies and means, to rounding, merging tiles of outputs as they come."""
    # with t_j the exponents and m their largest so far: Σ e^{t−m} and Σ e^{t−m}(t − m), which
    # overflow nowhere and lose nothing that counts
    top = np.full(len(noisy), -np.inf)
    total, weighted = np.zeros(len(noisy)), np.zeros(len(noisy))
    first = np.zeros((len(noisy), points.shape[1])) if means else None
    for tile in tiles:
        exponents = noisy @ points[tile].T
        exponents += offsets[tile]
        higher = np.maximum(top, exponents.max(axis=1))
        decay = np.exp(top - higher)
        # when m moves up by s: Σ e^{t−m}(t − m) becomes e^{−s}(Σ − s total); before the first tile
        # there is nothing to move
        shift = np.where(np.isfinite(top), top - higher, 0.0)
        weighted = decay * (weighted + shift * total)
        total = decay * total
        exponents -= higher[:, None]
        likelihoods = np.exp(exponents)
        total += likelihoods.sum(axis=1)
        weighted += np.einsum("ij,ij->i", likelihoods, exponents)
        if first is not None:
            # Σ e^{t−m} z_j, for the posterior mean
            first *= decay[:, None]
            first += likelihoods @ points[tile]
        top = higher
    # H(X | y) = ln Σ e^{t−m} − Σ e^{t−m}(t − m)/Σ e^{t−m}: the log sum less the mean exponent, m
    # gone
    entropy = np.log(total) - weighted / total
    return top + np.log(total), entropy, None if first is None else first / total[:, None]


def _on_all_cores(
    function: Callable[[slice], tuple[Array, Array, Array | None]], parts: list[slice]
) -> list[tuple[Array, Array, Array | None]]:
    """Return the function of every part, exactly as one core would, in their order."""
    workers = min(available_workers(), len(parts))
    if workers <= 1:
        return [function(part) for part in parts]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, parts))


def _slices(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def pairwise_information(secret: FiniteSecret) -> float:
    """Return ``−Σ_i p_i ln Σ_j p_j exp(−½‖z_i − z_j‖²)``, an upper bound in nats, rounded up.

    Source: Kolchinsky and Tracey, "Estimating mixture entropy with pairwise distances" (2017),
    Eq. 10, with the divergence KL.
    """
    # ln Σ_j p_j exp(−½‖z_i − z_j‖²) = log_sum(z_i) − ½‖z_i‖²: the posterior at the points
    # themselves
    found = posterior(secret, secret.points)
    # each exponent is off by ``error``, the one of ½‖z_i‖² too; a term below 0 is rounding
    terms = 0.5 * (secret.points**2).sum(axis=1) - found.log_sum + 2.0 * found.error
    return _sum_up(float(np.exp(secret.log_weights) @ np.maximum(terms, 0.0)), len(terms))


def gaussian_information(secret: FiniteSecret, scale: float = 1.0) -> float:
    """Return ``½ Σ ln(1 + w/s)`` nats for noise N(0, s I), rounded up, that of S included."""
    count, size = secret.points.shape
    # each entry of the product of N terms is off by (N + 8) u √(S_ii S_kk) at most, and an
    # eigenvalue by the sum over a row, below (…) u tr S (Weyl)
    slack = (count + size + PRODUCT_UNITS) * EPS * float(secret.eigenvalues.sum())
    return information_of_ratios((secret.eigenvalues + slack) / scale)


def within_noise(outputs: Array, covariance: Covariance) -> tuple[Array, Covariance] | None:
    """Return outputs and noise where there is noise, to rounding; None: outputs differ elsewhere.

    Outputs are relative to the first one: what they have in common drowns no difference of theirs.
    Along a coordinate without noise outputs must be equal; a range that is askew is known up to
    the rounding of its basis, which is compared entry by entry.
    """
    moved = outputs - outputs[0]
    if covariance.rank == covariance.dim:
        return moved, covariance
    # a distance that is inf: outputs differ where nothing hides it
    if covariance.rank == 0 or np.isinf(covariance.mahalanobis(moved)).any():
        return None
    # coordinates without noise are equal for all outputs: left out
    if isinstance(covariance, Diagonal):
        noisy = covariance.diagonal() > 0.0
        return moved[:, noisy], Diagonal(covariance.diagonal()[noisy])
    # the range of a Σ that is askew: eigenvectors of its correlations, in which units have
    # cancelled
    deviations = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    scales = np.where(deviations > 0.0, deviations, 1.0)
    correlations = covariance.to_dense() / scales[:, None] / scales
    # divide and conquer keeps the vectors orthogonal; the last ``rank`` eigenvalues are the
    # positive ones
    eigenvalues, vectors = scipy_linalg.eigh((correlations + correlations.T) / 2, driver="evd")
    kept = slice(covariance.dim - covariance.rank, None)
    if eigenvalues[kept][0] <= 0.0:
        return None
    return (moved / scales) @ vectors[:, kept], Diagonal(eigenvalues[kept])


def _sum_up(value: float, terms: int) -> float:
    """Return an upper bound on a sum of so many terms >= 0 that has been rounded."""
    return value * (1.0 + (terms + PRODUCT_UNITS) * EPS)
