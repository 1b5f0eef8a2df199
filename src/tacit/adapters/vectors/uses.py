"""Prototypes, private queries and descent by directions, each through fresh projections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, RandomSource, generator, integer, matrix, positive, vector
from tacit._ground.frozen import read_only
from tacit._ground.reprs import short_repr
from tacit.accounting import PrivacyProfile
from tacit.adapters.vectors.alignment import mean_alignment
from tacit.adapters.vectors.projection import VectorProjection


@short_repr
@read_only
@dataclass(frozen=True, kw_only=True, eq=False)
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
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    clipped = rows * np.minimum(1.0, longest / np.maximum(lengths, 1e-300))
    names, counts = np.unique(classes, return_counts=True)
    mechanism = VectorProjection(
        rank=rank,
        alignment=mean_alignment(int(counts.min()), bound=longest, least_norm=least),
        noise=noise,
        confidence=confidence,
    )
    profile = mechanism.profile(rows.shape[1])
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
        slope = vector("gradient", gradient(place.copy()), size=place.size)
        place = place - size * mechanism.draw(slope, source)
        path.append(place)
    return Projected(
        vectors=np.stack(path),
        names=tuple(range(count + 1)),
        profile=mechanism.profile(place.size) * count,
        reproducible=rng is not None,
    )
