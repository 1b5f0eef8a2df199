"""Unit vectors through secret projections: one mechanism, what certifies it, and its uses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike
from scipy import stats

from tacit._ground.checks import (
    Array,
    RandomSource,
    generator,
    in_interval,
    integer,
    matrix,
    positive,
    vector,
)
from tacit._ground.frozen import array_value
from tacit._ground.numbers import EPS
from tacit._ground.random import released_normal
from tacit.accounting import PrivacyProfile, profile_from_curves, vector_projection
from tacit.covariance.publication import publish_sum


@dataclass(frozen=True, kw_only=True)
class MeasuredAlignment:
    """The smallest cosine found among some neighbours: evidence about them, and no bound.

    Attributes:
        value: the smallest cosine.
        neighbours: how many were looked at.
    """

    value: float
    neighbours: int


def mean_alignment(count: int, *, bound: float, least_norm: float) -> float:
    """Bound the cosine of neighbouring means from below: ``ρ >= 1 − 2L²/(c₀² n²)``.

    The means of n vectors of norm at most L that differ in one vector are within 2L/n. Two vectors
    of norm at least c₀ and that near to each other have an angle of at most 2 arcsin(L/(n c₀)),
    reached where both norms are c₀.

    Args:
        count: n >= 1 vectors, the same for both neighbours.
        bound: L > 0, largest norm of one.
        least_norm: c₀ > 0, smallest norm of a mean; data sets with a smaller one are not among
            those that the guarantee is about.

    Returns:
        ρ in [−1, 1], rounded down.

    Raises:
        ValueError: an argument is outside its range.

    Example:
        >>> round(mean_alignment(1000, bound=1.0, least_norm=0.5), 9)
        0.999992

    Source: lora-privacy, Sec. 3.1, with 2 in place of 8.
    """
    size = integer("count", count, minimum=1)
    longest, least = positive("bound", bound), positive("least_norm", least_norm)
    # sin(θ/2) = L/(n c₀), rounded up
    half = longest / (size * least) * (1 + 4 * EPS)
    # cos θ = 1 − 2 sin²(θ/2), rounded down; nothing is known of means that may vanish
    return -1.0 if half >= 1.0 else 1.0 - 2.0 * half**2 * (1 + 4 * EPS) - EPS


def raised_alignment(alignment: float, *, noise: float, dim: int, confidence: float) -> float:
    """Bound the cosine from below after ``v ↦ (v + γu)/‖v + γu‖``, u uniform on the sphere.

    With c = √((1 + ρ)/2) and u₁ the part of u along v + v', the cosine with the same u in both is
    at least ``(ρ + γ² + 2γcu₁)/(1 + γ² + 2γcu₁)``, which grows with u₁; u₁² is Beta(½, (d−1)/2),
    and with t its quantile u₁ >= −t but with probability 1 − ``confidence``. The hockey-stick
    divergence is jointly convex: δ is at most δ at this cosine, plus that probability.

    Args:
        alignment: ρ in [−1, 1], of the vectors.
        noise: γ > 0.
        dim: d >= 2.
        confidence: in (0, 1), that the cosine is raised so far.

    Returns:
        The raised ρ, rounded down; ρ itself where nothing is gained.

    Raises:
        ValueError: an argument is outside its range.

    Example:
        >>> round(raised_alignment(0.5, noise=2.0, dim=1000, confidence=1 - 1e-6), 3)
        0.888

    Source: lora-privacy, Lemma 10, with the exact law of u₁ and vectors of one norm.
    """
    before = in_interval("alignment", alignment, -1.0, 1.0)
    size, width = positive("noise", noise), integer("dim", dim, minimum=2)
    sure = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    chance = 1.0 - sure
    # nothing to gain, or no quantile t >= 0
    if before == 1.0 or chance >= 0.5:
        return before
    # t of P(u₁ < −t) = chance: u₁² ~ Beta(½, (d − 1)/2) has twice that above t²; rounded up
    farthest = math.sqrt(float(stats.beta.isf(2 * chance, 0.5, (width - 1) / 2))) * (1 + 1e-9)
    # c = √((1 + ρ)/2)
    half = math.sqrt((1 + before) / 2)
    # γ² + 2γcu₁ at u₁ = −t
    shift = size**2 - 2 * size * min(farthest, 1.0) * half
    # the bound grows with ρ where this holds, so that the smallest ρ of neighbours decides
    least = 1 + size**2 - 2 * size * min(farthest, 1.0)
    grows = half > 0 and least >= size * farthest * (1 - before) / (2 * half)
    if before + shift < 0.0 or not grows:
        return before
    # (ρ + γ² − 2γct)/(1 + γ² − 2γct), rounded down
    found = (before + shift) / (1 + shift) * (1 - 1e-12)
    return max(before, min(found, 1.0))


def measured_alignment(vectors: ArrayLike) -> MeasuredAlignment:
    """Return the smallest cosine between the mean of all vectors and the means without one.

    It is about these data only: the guarantee needs a bound for every data set (`mean_alignment`),
    and no projection takes this value.

    Args:
        vectors: (n, d), n >= 2.

    Raises:
        ValueError: a bad argument, or a mean that is zero.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(100, 5)) + 3.0
        >>> measured_alignment(rows).value > 0.999
        True
    """
    rows = matrix("vectors", vectors)
    if len(rows) < 2:
        raise ValueError(f"vectors: expected at least 2, got {len(rows)}")
    # the mean of all against the means without one; 1/n and 1/(n − 1) do not turn them
    total = rows.sum(axis=0)
    others = total - rows
    lengths = np.linalg.norm(others, axis=1) * float(np.linalg.norm(total))
    if not lengths.all():
        raise ValueError("vectors: expected means that are not zero, got one that is")
    return MeasuredAlignment(
        value=float((others @ total / lengths).clip(-1.0, 1.0).min()), neighbours=len(rows)
    )


def check_alignment(value: Any) -> float:
    """Return a bound on the alignment; a measured one is refused."""
    if isinstance(value, MeasuredAlignment):
        raise ValueError(
            "alignment: expected a bound that holds for every data set, such as mean_alignment, "
            f"got one measured on {value.neighbours} neighbours"
        )
    return in_interval("alignment", value, -1.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class VectorProjection:
    """``y = Z Zᵀ v/‖v‖``, Z of shape (d, r) with N(0, 1/r) entries, drawn afresh and kept secret.

    Args:
        rank: r >= 1.
        alignment: ρ, a bound from below on the cosine of neighbours' vectors.
        noise: γ >= 0: first ``v ↦ (v + γu)/‖v + γu‖``, u uniform on the sphere, which raises ρ.
        confidence: with ``noise``, that u does not lie badly; what is missing to 1 is added to δ.

    Raises:
        ValueError: an argument is outside its range, or an alignment that was measured.

    Example:
        >>> mechanism = VectorProjection(rank=16, alignment=0.999)
        >>> round(mechanism.profile(400).epsilon(0.01), 3)
        0.454
        >>> mechanism.draw(np.ones(400), rng=0).shape
        (400,)

    Source: lora-privacy, Definition 1, Lemmas 8 to 10.
    """

    rank: int
    alignment: float
    noise: float = 0.0
    confidence: float | None = None

    def __post_init__(self) -> None:
        integer("rank", self.rank, minimum=1)
        check_alignment(self.alignment)
        in_interval("noise", self.noise, 0.0, float("inf"), open_high=True)
        if (self.confidence is None) == bool(self.noise):
            raise ValueError("confidence: expected a value with noise, and None without")
        if self.confidence is not None:
            in_interval("confidence", self.confidence, 0.0, 1.0, open_low=True, open_high=True)

    def profile(self, dim: int) -> PrivacyProfile:
        """Return the profile of one release of a vector of d entries.

        Raises:
            ValueError: d < 2, or a rank above d.
        """
        width = integer("dim", dim, minimum=2)
        if self.rank > width:
            raise ValueError(f"rank: expected at most the {width} dimensions, got {self.rank}")
        if self.confidence is None:
            return vector_projection(dim=width, rank=self.rank, alignment=self.alignment)
        # ρ after the noise on the vector, with the confidence given
        raised = raised_alignment(
            self.alignment, noise=self.noise, dim=width, confidence=self.confidence
        )
        plain = vector_projection(dim=width, rank=self.rank, alignment=raised)
        # δ of the draws of u in which ρ is not raised so far
        lost = 1.0 - self.confidence if raised > self.alignment else 0.0
        return profile_from_curves(
            # δ(ε) at the raised ρ plus that: joint convexity of the divergence
            lambda epsilons: np.minimum(plain.forward(epsilons) + lost, 1.0),
            name=f"{plain.name}, after noise {self.noise:g}",
            infinite_mass=min(plain.infinite_mass + lost, 1.0),
            source=f"{plain.source}; lora-privacy, Lemma 10",
            assumptions=(
                f"neighbours' vectors have a cosine of at least {self.alignment!r} before noise",
                *plain.assumptions[1:],
            ),
        )

    def draw(self, vector_given: ArrayLike, rng: RandomSource = None) -> Array:
        """Return y for one vector.

        Args:
            vector_given: (d,), not zero.
            rng: seed or generator, which voids the guarantee; the operating system's when None.

        Raises:
            ValueError: a vector that is zero or not finite.
        """
        # v/‖v‖
        unit = unit_vector("vector", vector_given)
        source = None if rng is None else generator(rng)
        if self.noise:
            # u = n/‖n‖ is uniform on the sphere
            direction = released_normal(unit.shape, source)
            unit = unit_vector("vector", unit + self.noise * direction / np.linalg.norm(direction))
        # Z, N(0, 1/r), of which nobody sees more than this product
        factor = released_normal((unit.size, self.rank), source) / np.sqrt(self.rank)
        projected: Array = factor @ (factor.T @ unit)
        # y of a unit vector is of order 1/√d whatever the vector: the grid is public
        return publish_sum(np.zeros(unit.size), projected, unit.size**-0.5)


def unit_vector(name: str, values: Any) -> Array:
    """Return a vector divided by its norm."""
    found = vector(name, values)
    length = float(np.linalg.norm(found))
    if not length > 0.0:
        raise ValueError(f"{name}: expected one that is not zero, got zero")
    scaled: Array = found / length
    return scaled


@array_value(kw_only=True)
class Projected:
    """Released vectors and what they certify together.

    Attributes:
        vectors: (k, d), as released.
        names: of each.
        profile: of all of them.
        reproducible: whether a seed fixed the projections, which voids the profile.
    """

    vectors: Array = field(repr=False)
    names: tuple[Any, ...]
    profile: PrivacyProfile
    reproducible: bool

    def ranked(self, catalogue: ArrayLike, *, top: int = 10) -> npt.NDArray[np.intp]:
        """Return (k, top) places of the catalogue's rows of largest dot product with each vector.

        Args:
            catalogue: (m, d), public.
            top: at most m.
        """
        rows = matrix("catalogue", catalogue)
        count = integer("top", top, minimum=1, maximum=len(rows))
        order: npt.NDArray[np.intp] = np.argsort(-(self.vectors @ rows.T), axis=1, kind="stable")
        return order[:, :count]


def project_prototypes(
    vectors: ArrayLike,
    labels: ArrayLike,
    *,
    rank: int,
    bound: float,
    least_norm: float,
    noise: float = 0.0,
    confidence: float | None = None,
    rng: RandomSource = None,
) -> Projected:
    """Release the direction of every class's mean, each through its own secret projection.

    Vectors are clipped to norm L. Neighbours differ in one vector of one class and in no label, so
    that one prototype differs and the profile is that of the smallest class.

    Args:
        vectors: (n, d).
        labels: (n,) classes; how many each has is public.
        rank: r.
        bound: L.
        least_norm: c₀: data sets in which a clipped mean is shorter are not covered, and these are
            refused if they are one.
        noise: γ that raises the alignment.
        confidence: as `VectorProjection` takes it, with ``noise``.
        rng: seed or generator, which voids the guarantee.

    Returns:
        A direction for every class in sorted order.

    Raises:
        ValueError: a bad argument, or a mean shorter than c₀.

    Example:
        >>> source = np.random.default_rng(0)
        >>> middles = source.normal(size=(3, 200))
        >>> labels = np.repeat(np.arange(3), 2000)
        >>> rows = middles[labels] + 0.1 * source.normal(size=(6000, 200))
        >>> found = project_prototypes(rows, labels, rank=64, bound=16.0, least_norm=8.0, rng=1)
        >>> found.ranked(middles, top=1)[:, 0].tolist(), round(found.profile.epsilon(1e-3), 3)
        ([0, 1, 2], 0.019)

    Source: lora-privacy, Appendix B.2.
    """
    rows, classes = matrix("vectors", vectors), np.asarray(labels)
    if classes.shape != (len(rows),):
        raise ValueError(f"labels: expected {len(rows)}, one per vector, got {classes.shape}")
    longest, least = positive("bound", bound), positive("least_norm", least_norm)
    # ‖v_i‖ <= L by clipping
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    clipped = rows * np.minimum(1.0, longest / np.maximum(lengths, 1e-300))
    names, counts = np.unique(classes, return_counts=True)
    mechanism = VectorProjection(
        rank=rank,
        # neighbours differ in one class: the smallest one has the least aligned means
        alignment=mean_alignment(int(counts.min()), bound=longest, least_norm=least),
        noise=noise,
        confidence=confidence,
    )
    profile = mechanism.profile(rows.shape[1])
    # mean of every class's clipped vectors
    means = np.stack([clipped[classes == name].mean(axis=0) for name in names])
    if (np.linalg.norm(means, axis=1) < least).any():
        raise ValueError(
            "least_norm: expected one that no class's mean is shorter than, got a shorter mean; "
            "its direction is not aligned with its neighbours'"
        )
    source = None if rng is None else generator(rng)
    return Projected(
        vectors=np.stack([mechanism.draw(mean, source) for mean in means]),
        names=tuple(names.tolist()),
        profile=profile,
        reproducible=rng is not None,
    )


def project_query(
    query: ArrayLike, mechanism: VectorProjection, *, rng: RandomSource = None
) -> Projected:
    """Release one unit vector, such as an average embedding, to rank a public catalogue with.

    Args:
        query: (d,), not zero.
        mechanism: with a bound on the alignment of neighbouring queries.
        rng: seed or generator, which voids the guarantee.

    Returns:
        The released vector; ``ranked`` orders a catalogue by it.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> catalogue = np.random.default_rng(0).normal(size=(50, 300))
        >>> mechanism = VectorProjection(rank=128, alignment=0.9999)
        >>> found = project_query(catalogue[7], mechanism, rng=1)
        >>> int(found.ranked(catalogue, top=1)[0, 0])
        7

    Source: lora-privacy, Appendix B.2.
    """
    given = vector("query", query)
    return Projected(
        vectors=mechanism.draw(given, rng)[None],
        names=("query",),
        profile=mechanism.profile(given.size),
        reproducible=rng is not None,
    )


def projected_descent(
    gradient: Callable[[Array], ArrayLike],
    start: ArrayLike,
    mechanism: VectorProjection,
    *,
    steps: int,
    rate: float,
    rng: RandomSource = None,
) -> Projected:
    """Descend by projected directions, ``w ← w − η M_t g/‖g‖``, with a fresh secret M_t a step.

    The paper draws M once: from the second step on that is a projection of a matrix, whose
    neighbours an attacker tells apart for sure (Proposition 2). Fresh ones compose.

    Args:
        gradient: from w to the mean gradient of the records, (d,).
        start: (d,) w_0, public.
        mechanism: its alignment bounds neighbours' gradients at every w.
        steps: T.
        rate: η.
        rng: seed or generator, which voids the guarantee.

    Returns:
        (T + 1, d) every w; the profile is of all of them.

    Raises:
        ValueError: a bad argument, or a gradient that is zero or not finite.

    Example:
        >>> target = np.linspace(-1.0, 1.0, 50)
        >>> mechanism = VectorProjection(rank=32, alignment=0.99999)
        >>> found = projected_descent(
        ...     lambda w: w - target, np.zeros(50), mechanism, steps=30, rate=0.15, rng=0
        ... )
        >>> bool(np.linalg.norm(found.vectors[-1] - target) < 0.5 * np.linalg.norm(target))
        True

    Source: lora-privacy, Appendix B.2, with M drawn anew.
    """
    place = vector("start", start).copy()
    count, size = integer("steps", steps, minimum=1), positive("rate", rate)
    source = None if rng is None else generator(rng)
    path = [place]
    for _ in range(count):
        # g at w_t
        slope = vector("gradient", gradient(place.copy()), size=place.size)
        place = place - size * mechanism.draw(slope, source)
        path.append(place)
    return Projected(
        vectors=np.stack(path),
        names=tuple(range(count + 1)),
        # T releases, each of a fresh M, composed
        profile=mechanism.profile(place.size) * count,
        reproducible=rng is not None,
    )
