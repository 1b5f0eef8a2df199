"""What a noise truly lets through: Fano on labels, and the exact posterior of a finite secret."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, RandomSource, generator, in_interval, integer, matrix
from tacit.attacks.intervals import proportion_interval
from tacit.conversions import fano_information
from tacit.covariance import Dense
from tacit.information import InformationBracket, mean_lower_bound, mean_upper_bound, mixture
from tacit.information.concentration import confidence_share
from tacit_lab.stackelberg.noise import FullGaussianNoise, StackelbergNoise

Labels = npt.NDArray[np.int64]

DENSITIES_PER_BLOCK = 2_000_000
PILOT_SHARE = 0.1
# Share of the outputs' size below which a direction without noise is rounding.
LEFT_BARE = 1e-9
POSTERIOR = "exact posterior of the finite secret"


@dataclass(frozen=True, kw_only=True)
class Check:
    """A bound on the information in the release that owes nothing to the decoder.

    Attributes:
        name: what it rests on.
        lower: nats that leak at least, at ``confidence``.
        upper: nats that leak at most, at ``confidence``; inf where the check says nothing.
        confidence: of each of the two bounds.
        samples: draws of secret and noise.
        accuracy: lower confidence bound on the accuracy of the classifier, for Fano.
    """

    name: str
    lower: float
    upper: float
    confidence: float
    samples: int
    accuracy: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for strict JSON; no upper bound is None."""
        return {**vars(self), "upper": self.upper if math.isfinite(self.upper) else None}


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckedSecret:
    """What is checked: N equally likely rows, and whether they are the whole secret.

    ``points`` are outputs (N, r) in the coordinates of the noise; ``groups`` (N,) numbers the
    values of the secret from 0, None where the rows are only a sample of it.
    """

    points: Array
    groups: Labels | None


def run_checks(
    noise: StackelbergNoise,
    subject: CheckedSecret,
    labels: Mapping[str, Labels],
    samples: int,
    confidence: float,
    source: np.random.Generator,
) -> tuple[Check, ...]:
    """Return every check that applies; all their bounds hold together at ``confidence``."""
    # The posterior bounds from both sides.
    count = len(labels) + 2 * (subject.groups is not None)
    level = confidence_share(confidence, 1.0 / max(count, 1))
    checks = [
        _fano(noise, subject, name, found, samples, level, source) for name, found in labels.items()
    ]
    if subject.groups is not None:
        bound = posterior_information(noise, subject.points, subject.groups, samples, level, source)
        checks.append(
            Check(
                name=POSTERIOR,
                lower=bound.lower,
                upper=bound.upper,
                confidence=level,
                samples=samples,
            )
        )
    return tuple(checks)


def finite_information(
    noise: StackelbergNoise,
    outputs: ArrayLike,
    groups: ArrayLike | None = None,
    *,
    samples: int = 20_000,
    confidence: float = 0.99,
    rng: RandomSource = None,
) -> InformationBracket:
    """Bound I(X; Y) under noise of any of these laws, X a row or the group of one, on both sides.

    ``I = H(X) − E H(X | Y = y)`` with the exact posterior of the law, and
    ``0 <= H(X | Y = y) <= ln(number of groups)``; the mean by bets, with confidence.
    ``information.mixture`` takes Gaussian noise alone, and must not be given ``second_moment``.

    Args:
        noise: the law, Gaussian or not.
        outputs: (N, d), one for each equally likely row.
        groups: (N,) what X is of each row; the row itself when left out.
        samples: draws in all, >= 100.
        confidence: of each of the two bounds, in (0, 1).
        rng: source of the draws.

    Returns:
        ``InformationBracket`` in nats.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> from tacit_lab.stackelberg import EllipticalNoise
        >>> noise = EllipticalNoise(lift=np.eye(1), factor=np.eye(1), shape=0.5)
        >>> bound = finite_information(noise, [[-1.0], [1.0]], rng=0)
        >>> 0.0 < bound.lower < bound.upper < 0.7
        True

    Source: residual-pac, Definition 4.
    """
    points = matrix("outputs", outputs)
    if points.shape[1] != noise.dim:
        raise ValueError(f"outputs: expected {noise.dim} columns, got shape {points.shape}")
    count = integer("samples", samples, minimum=100, maximum=100_000_000)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    labels = np.arange(len(points)) if groups is None else np.asarray(groups)
    if labels.shape != (len(points),):
        raise ValueError(f"groups: expected shape ({len(points)},), got {labels.shape}")
    numbered = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    # outputs in the coordinates in which the noise has its density
    inner = points @ np.linalg.pinv(noise.lift)
    away = points - points[:1] - (inner - inner[:1]) @ noise.lift
    if np.abs(away).max(initial=0.0) > LEFT_BARE * np.abs(points).max(initial=1.0):
        raise ValueError(
            "outputs: expected outputs that differ where there is noise, got equal ones"
        )
    return posterior_information(noise, inner, numbered, count, level, generator(rng))


def posterior_information(
    noise: StackelbergNoise,
    points: Array,
    groups: Labels,
    samples: int,
    confidence: float,
    source: np.random.Generator,
) -> InformationBracket:
    """Return what ``finite_information`` does, for points in the noise's own coordinates."""
    if isinstance(noise, FullGaussianNoise) and len(np.unique(groups)) == len(points):
        covariance = Dense(noise.coordinate_covariance)
        return mixture(points, covariance, samples=samples, confidence=confidence, rng=source)
    order, starts, counts = _grouped(groups)
    rows = points[order]
    prior = counts / len(points)
    entropy = float(-(prior @ np.log(prior)))
    chosen = source.integers(len(points), size=samples)
    noisy = points[chosen] + noise.sample_coordinates(samples, source)
    remaining = np.concatenate(
        [_entropies(block) for block in _posteriors(noise, rows, starts, noisy)]
    )
    ceiling = math.log(len(starts))
    # Rounding of a sum of N terms: a few units in the last place of ln N.
    slack = 1e-12 * (1.0 + ceiling)
    remaining = np.minimum(remaining, ceiling)
    pilot, main = np.split(remaining, [max(2, int(PILOT_SHARE * samples))])
    upper = entropy + slack - mean_lower_bound(pilot, main, confidence)
    lower = entropy - slack - mean_upper_bound(pilot, main, confidence, ceiling=ceiling)
    lower, upper = max(0.0, lower), min(upper, entropy + slack)
    if upper < lower:
        # known to be false: what holds without sampling
        lower, upper = 0.0, entropy + slack
    return InformationBracket(
        lower=lower,
        estimate=min(max(entropy - float(main.mean()), lower), upper),
        upper=upper,
        confidence=confidence,
        samples=samples,
        method=POSTERIOR,
    )


def _fano(
    noise: StackelbergNoise,
    subject: CheckedSecret,
    name: str,
    labels: Labels,
    samples: int,
    level: float,
    source: np.random.Generator,
) -> Check:
    """Classify fresh noisy outputs by the Bayes rule and apply Fano's inequality.

    A finite secret is classified by its own rows. A sampled one is classified by half of the
    rows, and X is uniform on the other half: no row is recognised by itself.
    """
    order = source.permutation(len(labels))
    half = len(labels) // 2
    known, asked = (order, order) if subject.groups is not None else (order[:half], order[half:])
    sorted_rows, starts, _ = _grouped(labels[known])
    classes = labels[known][sorted_rows][starts]
    chosen = asked[source.integers(len(asked), size=samples)]
    noisy = subject.points[chosen] + noise.sample_coordinates(samples, source)
    rows = subject.points[known][sorted_rows]
    guesses = [block.argmax(axis=1) for block in _posteriors(noise, rows, starts, noisy)]
    hits = int((classes[np.concatenate(guesses)] == labels[chosen]).sum())
    accuracy, _ = proportion_interval(hits, samples, 2.0 * level - 1.0)
    _, _, asked_counts = _grouped(labels[asked])
    share = asked_counts / len(asked)
    number = len(np.union1d(labels[asked], labels[known]))
    # Rounded down: a smaller entropy claims less.
    entropy = max(0.0, float(-(share @ np.log(share))) * (1.0 - 1e-14))
    nats = fano_information(accuracy, number, entropy) if number > 1 else 0.0
    return Check(
        name=f"Fano on {name!r}",
        lower=nats,
        upper=math.inf,
        confidence=level,
        samples=samples,
        accuracy=accuracy,
    )


def _grouped(groups: Labels) -> tuple[Labels, Labels, Labels]:
    """Return the order that sorts the groups, where each starts, and how many each holds."""
    order = np.argsort(groups, kind="stable")
    _, starts, counts = np.unique(groups[order], return_index=True, return_counts=True)
    return order.astype(np.int64), starts.astype(np.int64), counts.astype(np.int64)


def _posteriors(
    noise: StackelbergNoise, rows: Array, starts: Labels, noisy: Array
) -> Iterator[Array]:
    """Yield the posterior of the groups, (block, G), for rows sorted by group."""
    size = max(1, DENSITIES_PER_BLOCK // len(rows))
    for begin in range(0, len(noisy), size):
        density = noise.pairwise_log_density(noisy[begin : begin + size], rows)
        density -= density.max(axis=1, keepdims=True)
        weights = np.add.reduceat(np.exp(density), starts, axis=1)
        yield weights / weights.sum(axis=1, keepdims=True)


def _entropies(posterior: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(posterior > 0.0, posterior * np.log(posterior), 0.0)
    entropies: Array = np.maximum(-terms.sum(axis=1), 0.0)
    return entropies
