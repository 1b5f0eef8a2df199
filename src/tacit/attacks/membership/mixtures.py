"""Mixtures of Gaussians with one covariance: what a noisy output says about its candidates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from tacit._ground.checks import Array, vector
from tacit.covariance import Covariance, Isotropic
from tacit.covariance.whitening import whiten
from tacit.information.distinct import EqualRows

# Distances that are held at once: 32 MB.
ENTRIES_PER_CHUNK = 4_000_000
# In standard deviations: no noise takes one output for another.
APART = 100.0


def told_apart(outputs: Array, covariance: Covariance | None) -> tuple[Array, Covariance]:
    """Return outputs and noise as they are; without noise, what tells as much as the output does.

    Equal outputs, zeros having one sign, share a place on a line, and different ones are so far
    apart in units of the noise there that the posterior is that of the output itself.
    """
    if covariance is not None:
        return outputs, covariance
    places: Array = APART * EqualRows.of(outputs).members[:, None].astype(np.float64)
    return places, Isotropic(1.0, 1)


def in_noise_units(rows: Array, covariance: Covariance) -> Array:
    """Return rows in coordinates in which the noise is N(0, I).

    Raises:
        ValueError: Σ is singular, of another dimension, or too ill-conditioned to invert.
    """
    whitened, error = whiten(rows, covariance)
    if not np.isfinite(error) or not np.isfinite(whitened).all():
        raise ValueError(
            "covariance: expected one that double precision can invert beside the outputs, got a "
            f"relative rounding error of {error:.3g}"
        )
    return whitened


def prior_weights(name: str, weights: Any, count: int) -> Array:
    """Return weights that sum to one: uniform for None."""
    if weights is None:
        return np.full(count, 1.0 / count)
    given = vector(name, weights, size=count)
    if given.min() < 0.0 or given.max() == 0.0:
        raise ValueError(
            f"{name}: expected weights >= 0, not all zero, got {given.min():.6g} to "
            f"{given.max():.6g}"
        )
    # by the largest first: a sum of large weights does not overflow
    scaled = given / given.max()
    normalised: Array = scaled / scaled.sum()
    return normalised


def log_density(seen: Array, clean: Array, weights: Array) -> Array:
    """Return ``ln Σ_j w_j exp(−½ ‖y − x_j‖²)`` for every row y, in noise units."""
    total = np.empty(len(seen))
    for part, terms in _log_terms(seen, clean, weights):
        # log-sum-exp: less the largest term, so that the nearest candidate counts as 1
        top = terms.max(axis=1)
        total[part] = top + np.log(np.exp(terms - top[:, None]).sum(axis=1))
    return total


@dataclass(frozen=True)
class LabelledMixture:
    """Candidates in noise units, sorted by the label that an attacker wants.

    Attributes:
        clean: (n, d) outputs with positive weight.
        weights: (n,), sum 1.
        labels: (n,) ascending, 0 … classes − 1.
        starts: (classes,) first candidate of each label.
    """

    clean: Array
    weights: Array
    labels: npt.NDArray[np.intp]
    starts: npt.NDArray[np.intp]

    @property
    def masses(self) -> Array:
        """Return the prior probability of each label."""
        masses: Array = np.add.reduceat(self.weights, self.starts)
        return masses

    def posterior_masses(self, seen: Array) -> Iterator[tuple[slice, Array]]:
        """Yield blocks of (rows, classes): posterior of each label, relative to the likeliest."""
        for part, terms in _log_terms(seen, self.clean, self.weights):
            # P(l | y) up to one factor a row, which no comparison of labels sees
            relative = np.exp(terms - terms.max(axis=1, keepdims=True))
            yield part, np.add.reduceat(relative, self.starts, axis=1)


def labelled_mixture(
    outputs: Array, covariance: Covariance | None, labels: Any, weights: Any
) -> LabelledMixture:
    """Whiten the candidates, drop those of no weight and sort by label."""
    prior = prior_weights("weights", weights, len(outputs))
    numbers = np.unique(_label_array(labels, len(outputs)), return_inverse=True)[1]
    values, noise = told_apart(outputs, covariance)
    clean = in_noise_units(values - values.mean(axis=0), noise)
    # what cannot be has no logarithm of a weight; labels side by side are summed in one pass
    possible = np.flatnonzero(prior)
    order = possible[np.argsort(numbers[possible], kind="stable")]
    sorted_labels, starts = np.unique(numbers[order], return_index=True)
    dense = np.searchsorted(sorted_labels, numbers[order])
    return LabelledMixture(clean[order], prior[order], dense, starts)


def success_without_noise(outputs: Array, labels: Any, weights: Any) -> float:
    """Return ``Σ_z max_l P(output z, label l)``: naming the label of an output that is seen."""
    prior = prior_weights("weights", weights, len(outputs))
    numbers = np.unique(_label_array(labels, len(outputs)), return_inverse=True)[1]
    # P(z, l) for every pair that occurs, and of each output its likeliest label
    values = EqualRows.of(outputs).members
    size = int(numbers.max()) + 1
    found, place = np.unique(values * size + numbers, return_inverse=True)
    masses = np.bincount(place, prior)
    best = np.zeros(int(values.max()) + 1)
    np.maximum.at(best, found // size, masses)
    return float(best.sum())


def _label_array(labels: Any, count: int) -> npt.NDArray[Any]:
    try:
        values = np.asarray(labels)
    except ValueError:
        raise ValueError("labels: expected one label per output, got ragged rows") from None
    if values.shape != (count,):
        raise ValueError(f"labels: expected {count} labels, got shape {values.shape}")
    if values.dtype.kind not in "biufUS":
        raise ValueError(f"labels: expected numbers or strings, got type {values.dtype}")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError("labels: expected finite numbers, got NaN or infinity")
    return values


def _log_terms(seen: Array, clean: Array, weights: Array) -> Iterator[tuple[slice, Array]]:
    rows = max(1, ENTRIES_PER_CHUNK // len(clean))
    # ln w_j − ½ ‖y − x_j‖², some rows at a time
    log_weights = np.log(weights)
    for start in range(0, len(seen), rows):
        part = slice(start, start + rows)
        yield part, log_weights - 0.5 * cdist(seen[part], clean, "sqeuclidean")
