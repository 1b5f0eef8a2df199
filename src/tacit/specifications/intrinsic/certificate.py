"""What a compact release with a secret matrix and an enforced floor promises, and when nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit._ground.checks import array, generator, in_interval, integer, positive
from tacit._ground.frozen import array_value
from tacit._ground.random import released_normal
from tacit._ground.reprs import short_repr, shown
from tacit._ground.values import value
from tacit.accounting import PrivacyProfile, gaussian, sketch_within
from tacit.covariance.publication import publish_sum
from tacit.guarantees import ApproximateDP, Guarantee, SuccessBound
from tacit.specifications.intrinsic.secret import SecretFactor
from tacit.specifications.intrinsic.stability import (
    MeasuredStability,
    ratio_under_floor,
    replacement_difference,
)
from tacit.specifications.methods import Size
from tacit.specifications.release import ADJACENCY

ASSUMPTIONS = (
    "A is Gaussian, drawn by whoever computes B, its floor columns afresh for every release, and "
    "never shown to anyone: not to the submitter, and not as BA",
    "every record's coordinates are clipped, the floor is added, and the clip, the floor, the "
    "public subspace and the number of records do not depend on the records",
    "the coordinates are computed without A",
)
# Δ/√λ: a record beyond it is seen through the floor almost surely
MOST_SHARE, MOST_DIMS = 1e3, 100_000
SOURCE = "pave, Theorem 3.5, with a floor and the whole profile"
REFUSALS = {
    "A": (
        "neither A nor its seed is published beside B: with A known, B = H Aᵀ is a noiseless "
        "release of H (pave, Proposition 3.7)"
    ),
    "BA": (
        "BA is not published: its row space is that of A, and what A multiplies can be read off "
        "(pave, Remark 7.11)"
    ),
    "iterated": (
        "the coordinates are computed without A: from the second step of training on A is in the "
        "forward pass, and one record can change B though H is the same"
    ),
    "floor": (
        "every release has floor columns of its own. With the whole A shared, the floor cancels "
        "in the difference of two releases, and one record can make that difference other than 0"
    ),
    "submitter": (
        "whoever chooses records does not learn B under the same A: about n/k chosen submissions "
        "determine A (see recover_factor), so a trusted dock computes B and keeps A"
    ),
    "own model": (
        "the targets do not come from a model trained on the same records, which one record "
        "changes for all others, so that 2C/n does not bound the difference"
    ),
}


@value
class CountedTogether:
    """Which releases of the same records count together, and what shares their matrix.

    Args:
        releases: J of the same records.
        shared_factor: whether other factors have the same columns of A beside H: the J of these
            records, whose H stand above each other, so that Δ grows by √J, and any of other
            records, which may be known and tell of A. The floor's columns are each one's own.
        record_rank: q, largest rank of the difference of two records' coordinates; k when None.

    Example:
        >>> CountedTogether(releases=2)
        CountedTogether(releases=2)
    """

    releases: Size = 1
    shared_factor: bool = False
    record_rank: Size | None = None


ALONE = CountedTogether()


@short_repr
@dataclass(frozen=True, kw_only=True)
class IntrinsicCertificate:
    """What one or several compact releases of the same records promise together.

    Attributes:
        guarantees: success at even odds, and (ε, δ).
        difference: Δ, how far one record moves H, or all H that share a matrix.
        ratio: largest ratio of two neighbours' covariances; the smallest is its inverse.
        floor_std: √(λ/r), the standard deviation of the noise that the floor is.
        profile: of the ratios, from which ε is told.
    """

    guarantees: tuple[Guarantee, ...]
    difference: float
    ratio: float
    floor_std: float
    profile: PrivacyProfile


def certify(
    dims: int | Sequence[int],
    *,
    rank: int,
    records: int,
    clip: float,
    floor: float,
    delta: float,
    together: CountedTogether = ALONE,
    violated: str | MeasuredStability | None = None,
) -> IntrinsicCertificate:
    """Certify ``B = [H, √λ I] Aᵀ`` with A secret, H the mean of n clipped coordinates.

    The floor is additive noise N(0, λ/r). Two bounds hold, and the better one is told:

    * with A shown to the attacker too, B is a Gaussian mechanism whose squared sensitivity has the
      mean Δ², so the advantage is at most ``2Φ(Δ/(2√(λ/r))) − 1`` (it is concave in the square);
    * without, neighbours' covariances have at most min(k, 2q) ratios other than 1, or 2 min(k, q)
      beside other factors under the same A, all in [1/ρ, ρ], ρ = e^{2 arsinh(Δ/(2√λ))}, and the
      whole profile of such a pair is known.

    The second is better by √2 in one dimension; in several, H may tell A along one direction and
    the first is what remains: then adding the same noise and publishing A promises as much.

    Args:
        dims: k, or one for each layer; layers count as one matrix of Σ k rows.
        rank: r, columns of B.
        records: n.
        clip: C, Frobenius norm of a record's coordinates, all layers joined.
        floor: λ > 0.
        delta: δ in (0, 1) at which ε is told.
        together: the releases that count together, and what shares their matrix.
        violated: a condition that does not hold: ``"A"``, ``"BA"``, ``"iterated"``,
            ``"floor"``, ``"submitter"`` or ``"own model"``; or a ``MeasuredStability`` in the place
            of a floor. There is no certificate then; the error says why.

    Returns:
        The ``IntrinsicCertificate``.

    Raises:
        ValueError: a bad argument, no floor, a measured γ, or a condition that is violated.

    Example:
        >>> found = certify(1, rank=4, records=1000, clip=1.0, floor=1e-4, delta=1e-5)
        >>> round(found.guarantees[0].success, 3), round(found.floor_std, 4)
        (0.554, 0.005)

    Source: pave, Theorem 3.5, Lemmas 7.8, 7.9, 7.12 and 7.13, corrected.
    """
    _refuse(violated, floor)
    if not isinstance(together, CountedTogether):
        raise ValueError(f"together: expected CountedTogether, got {shown(together)}")
    total = _total(dims)
    columns, count = integer("rank", rank, minimum=1), together.releases
    limit = in_interval("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
    shared = together.shared_factor
    # Δ = 2C/n of one release
    single = replacement_difference(positive("clip", clip), records)
    # H of J releases above each other differ by √J Δ in the Frobenius norm
    difference = single * math.sqrt(count) if shared else single
    level = positive("floor", floor)
    if difference > MOST_SHARE * math.sqrt(level):
        raise ValueError(
            f"floor: expected √λ of at least {difference / MOST_SHARE:.3g}, a thousandth of what "
            f"one record moves, below which nothing is hidden, got λ = {level:g}"
        )
    # ρ = e^{2 arsinh(Δ/(2√λ))}: ratios of neighbours' covariances are in [1/ρ, ρ], rounded up
    ratio = ratio_under_floor(floor=level, difference=difference)
    wide = total if together.record_rank is None else together.record_rank
    # the rows of other factors under the same matrix stand beside: E changes 2 rank(E) ratios
    moved = count * (2 * min(total, wide) if shared else min(total, 2 * wide))
    # the floor √λ I times A's own columns is noise N(0, λ/r)
    std = math.sqrt(level / columns)
    # with A shown all releases are Gaussian mechanisms, whose squares add
    composed = single * math.sqrt(count)
    profile, guarantees = _certified(columns, moved, ratio, composed, std, limit)
    return IntrinsicCertificate(
        guarantees=guarantees,
        difference=difference,
        ratio=ratio,
        floor_std=std,
        profile=profile,
    )


@array_value(kw_only=True)
class CompactFactor:
    """B of one release and what it promises; neither A nor the floor's noise is kept in it.

    Attributes:
        factor: (k, r) B.
        certificate: of this release, others under ``secret`` beside it being of other records; of J
            that share records too, call ``certify`` with them as ``CountedTogether``.
        reproducible: whether a seed fixed A or the floor, which voids the certificate.
        identifier: of the matrix that it shares with others, None where A is its own.
    """

    factor: NDArray[np.float64]
    certificate: IntrinsicCertificate
    reproducible: bool
    identifier: str | None = None


def compact_factor(
    coordinates: ArrayLike,
    *,
    rank: int,
    clip: float,
    floor: float,
    delta: float,
    secret: SecretFactor | None = None,
    rng: int | np.random.Generator | None = None,
) -> CompactFactor:
    """Clip, average, multiply by A and add the floor: what a trusted dock does.

    Factors that share ``secret`` can be compared with each other; those that do not, cannot.

    Args:
        coordinates: (n, k, m), H of every record, computed without A.
        rank: r.
        clip: C.
        floor: λ > 0.
        delta: as in ``certify``.
        secret: the matrix that releases share, (r, m); one of its own when None.
        rng: None draws from the operating system; a seed voids the certificate.

    Returns:
        The ``CompactFactor``.

    Raises:
        ValueError: as ``certify``.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(50, 4, 6))
        >>> found = compact_factor(rows, rank=2, clip=1.0, floor=0.01, delta=1e-5)
        >>> found.factor.shape
        (4, 2)

    Source: pave, Eq. 5 and Theorem 3.5, with the floor [H, √λ I].
    """
    rows = array("coordinates", coordinates, ndim=3)
    if secret is not None and not isinstance(secret, SecretFactor):
        raise ValueError(f"secret: expected a SecretFactor or None, got {shown(secret)}")
    certificate = certify(
        rows.shape[1], rank=rank, records=len(rows), clip=clip, floor=floor, delta=delta,
        together=CountedTogether(shared_factor=secret is not None),
    )  # fmt: skip
    most, level = positive("clip", clip), positive("floor", floor)
    # ‖H_i‖ in the Frobenius norm, all columns joined
    lengths = np.sqrt((rows**2).sum(axis=(1, 2)))
    shares = np.minimum(1.0, most * (1.0 - 1e-12) / np.maximum(lengths, 1e-300))
    # H: the mean of clipped rows, over a public n
    mean = (rows * shares[:, None, None]).mean(axis=0)
    source = None if rng is None else generator(rng)
    held = SecretFactor(rank, rows.shape[2], rng=source) if secret is None else secret
    # the floor's own columns, drawn afresh for every release
    deviation = math.sqrt(level / rank)
    noise = deviation * released_normal((len(mean), rank), source)
    return CompactFactor(
        factor=publish_sum(held.times(mean, rank), noise, deviation),
        certificate=certificate,
        reproducible=rng is not None or held.reproducible,
        identifier=None if secret is None else held.identifier,
    )


def recover_factor(chosen: Sequence[ArrayLike], factors: Sequence[ArrayLike]) -> Any:
    """Return A from submissions that somebody chose and the B that they got: A Hᵀ = Bᵀ, solved.

    It is why A may not be shared with submitters who are not trusted: once the chosen H have as
    many rows together as A has columns, A is known, and what B tells of every other H with it.

    Args:
        chosen: (k_j, n) H of each submission.
        factors: (k_j, r) B of each.

    Returns:
        A, (r, n), of least norm where it is not determined.

    Raises:
        ValueError: not one B for every H, or shapes that do not fit.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> secret, chosen = rng.normal(size=(2, 6)), [rng.normal(size=(3, 6)) for _ in range(2)]
        >>> found = recover_factor(chosen, [held @ secret.T for held in chosen])
        >>> bool(np.abs(found - secret).max() < 1e-12)
        True

    Source: pave, Proposition 3.7, as an attack.
    """
    parts = []
    for name, held in (("chosen", chosen), ("factors", factors)):
        if not isinstance(held, (Sequence, np.ndarray)) or not len(held):
            raise ValueError(f"{name}: expected matrices, at least one, got {shown(held)}")
        parts.append([array(name, one, ndim=2) for one in held])
        if len({one.shape[1] for one in parts[-1]}) > 1:
            raise ValueError(f"{name}: expected matrices of as many columns, got several widths")
    rows = [[len(one) for one in side] for side in parts]
    if rows[0] != rows[1]:
        raise ValueError(f"factors: expected {shown(rows[0])} rows, got {shown(rows[1])}")
    left, right = (np.concatenate(side) for side in parts)
    return np.linalg.lstsq(left, right, rcond=None)[0].T


@lru_cache(maxsize=16)
def _certified(
    rank: int, dim: int, ratio: float, difference: float, std: float, delta: float
) -> tuple[PrivacyProfile, tuple[Guarantee, ...]]:
    """Certify once what a dock asks for at every submission."""
    # A hidden: the whole profile of the worst pair with so many ratios in [1/ρ, ρ], rounded up
    profile = sketch_within(rank=rank, dim=dim, lowest=1.0 / ratio, highest=ratio)
    return profile, _guarantees(profile, gaussian(difference, std), delta)


def _total(dims: Any) -> int:
    """Return Σ k of one layer or several."""
    single = isinstance(dims, (int, np.integer)) and not isinstance(dims, bool)
    if not single and not isinstance(dims, (list, tuple)):
        raise ValueError(f"dims: expected a number, or a list of them, got {shown(dims)}")
    sizes = [dims] if single else dims
    total = sum(integer("dims", size, minimum=1) for size in sizes)
    if not 1 <= total <= MOST_DIMS:
        raise ValueError(f"dims: expected 1 to {MOST_DIMS} rows in all, got {total}")
    return total


def _refuse(violated: Any, floor: Any) -> None:
    if isinstance(violated, MeasuredStability):
        raise ValueError(
            f"violated: expected a floor, got γ = {violated.gamma:.3g} measured on one data set: "
            "it is evidence about that one, and no γ < 1 holds for all without a floor"
        )
    if violated is not None:
        if not isinstance(violated, str) or violated not in REFUSALS:
            raise ValueError(
                f"violated: expected one of {', '.join(REFUSALS)}, got {shown(violated)}"
            )
        raise ValueError(f"violated: there is a certificate only where {REFUSALS[violated]}")
    if floor is None or (isinstance(floor, (int, float)) and floor == 0):
        raise ValueError(
            "floor: expected λ > 0: without one the smallest singular value depends on the "
            "records, and one of them can change the law to another support"
        )


def _guarantees(
    profile: PrivacyProfile, shown_factor: PrivacyProfile, delta: float
) -> tuple[Guarantee, ...]:
    # two bounds on one success, and the smaller is told
    hidden, known = profile.success(), shown_factor.success()
    rest: dict[str, Any] = {"assumptions": ASSUMPTIONS, "source": SOURCE}
    return (
        SuccessBound(
            success=min(hidden.success, known.success),
            prior=hidden.prior,
            task=f"which of two neighbouring inputs ({ADJACENCY}) was used",
            law=hidden.law,
            evidence="numerical",
            **rest,
        ),
        ApproximateDP(
            epsilon=profile.epsilon(delta), delta=delta, adjacency=ADJACENCY,
            evidence="numerical", **rest,
        ),
    )  # fmt: skip
