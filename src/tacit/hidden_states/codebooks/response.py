"""Codes with local differential privacy: randomised response over the nearest codes.

Parts of a product code are reported by coins of their own, ε in equal shares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from tacit._ground.checks import Array, RandomSource, as_float, generator, integer, positive
from tacit._ground.numbers import EPS, readings, rounded_up
from tacit._ground.random import uniform_index
from tacit.guarantees import ApproximateDP, MaximalLeakage, compose_leakage
from tacit.hidden_states.codebooks.certificates import (
    FITTED_APART,
    PROMPT,
    CandidateLaw,
    CodeCertificate,
    Codes,
    checked_codes,
    checked_prior,
)
from tacit.information import response_leakage

# reports are drawn in steps of 2⁻⁵³, the spacing of doubles below 1
RESOLUTION = 2**53
# e^ε beyond it is no double
LARGEST_EPSILON = 700.0
ONE_REPORT = "one report is released about the prompt, ever"
LEAKAGE_FORMULA = "Issa, Wagner and Kamath (2020), Theorem 1: Σ_y max_x P(y|x) = C e^ε/Z"


@dataclass(frozen=True, eq=False)
class RandomizedCodes:
    """Report one of the k codes nearest to the true one with weight e^ε each, any other with 1.

    ``P(y | c) = e^ε/Z`` for the k nearest y and ``1/Z`` otherwise, ``Z = k e^ε + C − k``. Every
    code has the same Z, so ``P(y | c) <= e^ε P(y | c')`` always; k = 1 is k-ary randomised
    response over all C codes.

    Args:
        epsilon: ε > 0 in nats.
        neighbours: (C, k), row c the k codes nearest to c, c itself among them, without repetition.

    Raises:
        ValueError: a bad ε, or neighbours that are not as said.

    Example:
        >>> mechanism = RandomizedCodes(2.0, np.array([[0], [1], [2]]))
        >>> round(mechanism.inside, 4)
        0.787
        >>> mechanism.release([0, 1, 2], rng=0)
        array([0, 1, 2])

    Source: Kairouz, Oh and Viswanath (2016), Sec. 3 (k = 1).
    """

    epsilon: float
    neighbours: Codes

    def __post_init__(self) -> None:
        loss = positive("epsilon", self.epsilon)
        if loss > LARGEST_EPSILON:
            raise ValueError(f"epsilon: expected a number in (0, {LARGEST_EPSILON}], got {loss}")
        table = np.asarray(self.neighbours)
        if table.ndim != 2 or table.dtype.kind not in "iu" or table.size == 0:
            raise ValueError(
                f"neighbours: expected integers of shape (C, k), got {table.dtype} of shape "
                f"{table.shape}"
            )
        count, near = table.shape
        ordered = np.sort(table, axis=1)
        repeated = bool((ordered[:, 1:] == ordered[:, :-1]).any())
        own = bool((table == np.arange(count)[:, None]).any(axis=1).all())
        if near >= count or table.min() < 0 or table.max() >= count or repeated or not own:
            raise ValueError(
                f"neighbours: expected k < C = {count} distinct codes per row, the row's own among "
                "them"
            )
        object.__setattr__(self, "epsilon", loss)
        object.__setattr__(self, "neighbours", table.astype(np.int64))
        # what is drawn has to keep P(y|c) ≤ e^ε P(y|c') too
        near_chance, far_chance = self._drawn_chances()
        # 1 + ε < e^ε; what is drawn is rounded down to 2⁻⁵³, which a tiny ε does not outweigh
        if far_chance > near_chance * (1 + Fraction(loss)):
            raise ValueError(
                f"epsilon: expected more for {count} codes, whose reports are drawn in steps of "
                f"2^-53, got {loss!r}"
            )

    @property
    def size(self) -> int:
        """C."""
        return int(self.neighbours.shape[0])

    @property
    def near(self) -> int:
        """Number k of codes reported more often."""
        return int(self.neighbours.shape[1])

    @property
    def inside(self) -> float:
        """Probability k e^ε/Z of a report among the k nearest, as drawn: rounded down to 2⁻⁵³."""
        # k e^ε/Z = 1/(1 + (C − k)/k e^{−ε}), a form in which nothing overflows
        rest = (self.size - self.near) / self.near * math.exp(-self.epsilon)
        share = (1.0 - 4.0 * EPS) / (1.0 + rest)
        return math.floor(share * RESOLUTION) / RESOLUTION

    def table(self) -> Array:
        """Return ``P(report | code)`` as reports are drawn, (C, C), for an attacker to invert.

        Example:
            >>> RandomizedCodes(2.0, np.array([[0], [1], [2]])).table().round(3)[0].tolist()
            [0.787, 0.107, 0.107]
        """
        # the rest of the mass, alike for all that are not near
        far = (1.0 - self.inside) / (self.size - self.near)
        chances: Array = np.full((self.size, self.size), far)
        np.put_along_axis(chances, self.neighbours, self.inside / self.near, axis=1)
        return chances

    def release(self, codes: Any, rng: RandomSource = None) -> Codes:
        """Draw a report for every code, (N,); from the operating system unless ``rng`` is given.

        Raises:
            ValueError: a code outside 0 … C − 1.
        """
        # one coin: among the k nearest with probability k e^ε/Z, else among the C − k others
        true = checked_codes("codes", codes, self.size, least=1).reshape(-1)
        source = rng if rng is None else generator(rng)
        # a whole number of 2⁻⁵³, so that the coin is exact
        bar = int(self.inside * RESOLUTION)
        reports = np.empty_like(true)
        for place, code in enumerate(true):
            nearest = self.neighbours[code]
            if uniform_index(RESOLUTION, source) < bar:
                reports[place] = nearest[uniform_index(self.near, source)]
                continue
            other = uniform_index(self.size - self.near, source)
            # The other-th code that is not among the nearest.
            for barred in np.sort(nearest):
                other += int(barred <= other)
            reports[place] = other
        return reports

    def guarantee(self, releases: int = 1) -> ApproximateDP:
        """Return local (Tε, 0)-differential privacy of T reports about the same secret."""
        return local_privacy(self.epsilon, releases)

    def leakage(self, releases: int = 1) -> MaximalLeakage:
        """Return the maximal leakage of T reports about one prompt: ``(C e^ε/Z)^T``, as drawn.

        Every report y has its largest probability e^ε/Z under the code y, which is near to itself.

        Raises:
            ValueError: ``releases`` is not an integer >= 1.

        Example:
            >>> mechanism = RandomizedCodes(2.0, np.array([[0], [1], [2]]))
            >>> round(mechanism.leakage().factor, 4)
            2.361

        Source: Issa, Wagner and Kamath (2020), Theorem 1.
        """
        times = integer("releases", releases, minimum=1)
        # Σ_y max_x P(y|x) = C max(a, b), in the exact steps in which reports are drawn
        near, far = self._drawn_chances()
        one = MaximalLeakage(
            factor=rounded_up(self.size * max(near, far)),
            secret=PROMPT,
            evidence="theorem",
            assumptions=reported_assumptions(times),
            source=LEAKAGE_FORMULA,
        )
        return one.repeated(times)

    def certify(self, codes: Any, *, weights: Any = None) -> CodeCertificate:
        """Bound what one report tells, by a factor and about which of N candidates it is.

        With m_c the largest prior in cell c: ``P(success) = Σ_y max_c m_c P(y | c)``, attained by
        the Bayes attacker, and ``I = H(Y) − H(Y | code)`` is at most
        ``ln C + k a ln a + (C − k) b ln b``, a = e^ε/Z and b = 1/Z, and at most ε.

        Args:
            codes: the true code of every candidate, (N,).
            weights: (N,) probabilities up to a factor; uniform when None.

        Returns:
            The bounds, rounded up.

        Raises:
            ValueError: as ``certify`` of the codes themselves.
        """
        cells = checked_codes("codes", codes, self.size)
        if cells.ndim != 1:
            raise ValueError(f"codes: expected shape (N,), got {cells.shape}")
        masses = checked_prior(np.ones(len(cells)) if weights is None else weights, len(cells))
        largest = np.zeros(self.size)
        np.maximum.at(largest, cells, masses)
        # Σ_y max_c m_c P(y | c): report y is best explained by a cell near to it, or by any
        near, far = self._chances()
        reached = np.full(self.size, far * largest.max())
        for column in self.neighbours.T:
            np.maximum.at(reached, column, near * largest)
        success = math.fsum(reached.tolist()) * (1.0 + 16.0 * EPS)
        # chance of a blind guess: that of the likeliest candidate
        count, chance = len(cells), float(masses.max())
        law = CandidateLaw(count, chance, uniform=weights is None)
        return CodeCertificate(
            leakage=self.leakage(),
            success=law.success(
                min(1.0, success),
                1,
                ONE_REPORT,
                "Bayes' rule: Σ over reports of the largest joint probability",
            ),
            information=law.information(self._nats(), 1, ONE_REPORT, "I = H(Y) − H(Y | code)"),
            candidates=count,
            occupied=int(np.count_nonzero(largest)),
            releases=1,
        )

    def _drawn_chances(self) -> tuple[Fraction, Fraction]:
        """P(y | c) for a near and for a far y, in the steps of 2⁻⁵³ in which it is drawn."""
        # fractions: these are the probabilities as drawn, without rounding
        inside = Fraction(self.inside)
        return inside / self.near, (1 - inside) / (self.size - self.near)

    def _chances(self) -> tuple[float, float]:
        """P(y | c) for a near and for a far y, rounded up."""
        up = 1.0 + 8.0 * EPS
        rest = (self.size - self.near) / self.near * math.exp(-self.epsilon)
        outside = (1.0 - self.inside) / (self.size - self.near)
        return up / (self.near * (1.0 + rest)), up * outside

    def _nats(self) -> float:
        """Nats that a report tells of the candidate at most."""
        # I ≤ ln C − H(Y | code), and ≤ ε; the slack is what these logarithms lose
        share = self.inside
        entropy = -share * math.log(share / self.near)
        entropy -= (1.0 - share) * math.log((1.0 - share) / (self.size - self.near))
        slack = 16.0 * EPS * (1.0 + math.log(self.size) + self.epsilon)
        return as_float("nats", min(self.epsilon, max(0.0, math.log(self.size) - entropy) + slack))


def reported_assumptions(releases: int) -> tuple[str, ...]:
    """Return what the maximal leakage of T reports about one prompt rests on."""
    many = f"{releases} reports are released about the prompt, ever"
    return (
        ONE_REPORT if releases == 1 else many,
        "the coins of a report are independent of all else",
        FITTED_APART,
    )


def local_privacy(epsilon: float, releases: int = 1) -> ApproximateDP:
    """Return local (Tε, 0)-differential privacy of T reports about the same secret."""
    times = integer("releases", releases, minimum=1)
    # basic composition, the product rounded up
    total = epsilon if times == 1 else math.nextafter(times * epsilon, math.inf)
    return ApproximateDP(
        epsilon=total,
        delta=0.0,
        adjacency="any two prompts",
        evidence="theorem",
        assumptions=(
            f"{times} report{'s' if times > 1 else ''} about the same prompt",
            FITTED_APART,
        ),
        source="Kairouz, Oh and Viswanath (2016), Section 3",
    )


def nearest_codes(distances: Array, near: int) -> Codes:
    """Return the k codes nearest to each, itself first, from their distances (C, C)."""
    # a code is nearest to itself, whatever rounding says
    held = distances.astype(np.float64)
    count = integer("near", near, minimum=1, maximum=len(held) - 1)
    np.fill_diagonal(held, -np.inf)
    found: Codes = np.argsort(held, axis=1, kind="stable")[:, :count]
    return found


@dataclass(frozen=True, eq=False)
class RandomizedParts:
    """Report every part of a product code by randomised response at ε/m nats.

    The coins of the parts are independent, so that ``P(y | c) = Π_j P_j(y_j | c_j)``: losses add
    up to ε, and the factors of the parts multiply. Parts of one cell tell nothing, are reported as
    they are and take no share of ε.

    Args:
        epsilon: ε > 0 in nats of all parts together.
        neighbours: of every part (C_j, k), as ``RandomizedCodes`` takes them.

    Raises:
        ValueError: a bad ε, neighbours that are not as said, or no part of two cells.

    Example:
        >>> each = np.array([[0], [1], [2]])
        >>> mechanism = RandomizedParts(4.0, (each, each))
        >>> one = RandomizedCodes(2.0, each).leakage().factor
        >>> round(mechanism.leakage().factor / one**2, 9)
        1.0

    Source: Kairouz, Oh and Viswanath (2016), Sec. 3, for every part; basic composition.
    """

    epsilon: float
    neighbours: tuple[Codes, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon))
        shared = share(self.epsilon, [len(table) for table in self.neighbours])
        parts = tuple(
            RandomizedCodes(shared, table) if len(table) > 1 else None for table in self.neighbours
        )
        object.__setattr__(self, "_parts", parts)

    @classmethod
    def nearest(cls, epsilon: float, tables: Sequence[Array], near: int) -> RandomizedParts:
        """Return reports of the k centroids of every part, (C_j, d_j), nearest to the true one.

        Args:
            epsilon: ε > 0 in nats of all parts together.
            tables: centroids of every part.
            near: k.

        Raises:
            ValueError: a bad ε, or k cells that some part does not have beside others.
        """
        # parts of one cell tell nothing and are not randomised
        least = min((len(table) for table in tables if len(table) > 1), default=2)
        count = integer("near", near, minimum=1, maximum=least - 1)
        return cls(epsilon, tuple(_neighbours(table, count) for table in tables))

    @property
    def parts(self) -> tuple[RandomizedCodes | None, ...]:
        """What reports each part; None for one of a single cell."""
        found: tuple[RandomizedCodes | None, ...] = self.__dict__["_parts"]
        return found

    @property
    def near(self) -> int:
        """Number k of cells of a part that are reported more often."""
        return max(part.near for part in self.parts if part is not None)

    def release(self, codes: Any, rng: RandomSource = None) -> Codes:
        """Draw a report for every code (N, m); from the operating system unless ``rng`` is given.

        Raises:
            ValueError: codes of another shape, or outside their parts.
        """
        true = checked_codes("codes", codes, max(map(len, self.neighbours)), least=1)
        if true.ndim != 2 or true.shape[1] != len(self.parts):
            raise ValueError(f"codes: expected shape (n, {len(self.parts)}), got {true.shape}")
        source = rng if rng is None else generator(rng)
        columns = [
            true[:, place] if part is None else part.release(true[:, place], source)
            for place, part in enumerate(self.parts)
        ]
        return np.stack(columns, axis=1)

    def guarantee(self, releases: int = 1) -> ApproximateDP:
        """Return local (Tε, 0)-differential privacy of T reports about the same secret."""
        return local_privacy(self.epsilon, releases)

    def leakage(self, releases: int = 1) -> MaximalLeakage:
        """Return the maximal leakage of T reports about one prompt: ``Π_j (C_j e^ε_j/Z_j)^T``.

        Source: Issa, Wagner and Kamath (2020), Theorem 1; factors of independent parts multiply.
        """
        # Π_j C_j e^ε_j/Z_j: coins of the parts are independent
        held = [part for part in self.parts if part is not None]
        # the parts of one code are one release
        one = replace(compose_leakage([part.leakage() for part in held]), releases=1)
        times = integer("releases", releases, minimum=1)
        return replace(one.repeated(times), assumptions=held[0].leakage(times).assumptions)


def _neighbours(table: Array, near: int) -> Codes:
    if near == 1 or len(table) == 1:
        return np.arange(len(table))[:, None]
    return nearest_codes(cdist(table, table), near)


def share(epsilon: float, sizes: list[int]) -> float:
    """Return the ε of every part of two cells or more: the largest that adds up to ε at most.

    Raises:
        ValueError: no part has two cells.

    Example:
        >>> share(0.3, [4, 1, 4, 4]) * 3 <= 0.3
        True
    """
    count = sum(size > 1 for size in sizes)
    if not count:
        raise ValueError("epsilon: expected a codebook of at least 2 cells, got one of 1")
    # the sum of the shares has to be at most ε in exact arithmetic, as doubles and as a file says
    # them
    each = epsilon / count
    while readings(each)[1] * count > readings(epsilon)[0]:
        each = math.nextafter(each, 0.0)
    return each


def reported_leakage(sizes: tuple[int, ...], epsilon: float, *, near: int = 1) -> float:
    """Return the nats of randomised reports of a product code, ``Σ_j ln(C_j e^ε_j/Z_j)``.

    Example:
        >>> round(reported_leakage((4,), 2.0), 4), round(reported_leakage((4, 4), 4.0), 4)
        (1.0455, 2.0911)
    """
    each = share(epsilon, list(sizes))
    return math.fsum(response_leakage(size, each, near=near).nats for size in sizes if size > 1)
