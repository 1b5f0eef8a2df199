"""Product codes with local differential privacy: every part is reported by coins of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from tacit._ground.checks import RandomSource, generator, integer, positive
from tacit.guarantees import ApproximateDP, MaximalLeakage
from tacit.guarantees.leakage import compose_leakage
from tacit.hidden_states.codebooks.certificates import Codes, checked_codes
from tacit.hidden_states.codebooks.response import RandomizedCodes, local_privacy
from tacit.information import response_leakage


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
        held = [part for part in self.parts if part is not None]
        # the parts of one code are one release
        one = replace(compose_leakage([part.leakage() for part in held]), releases=1)
        times = integer("releases", releases, minimum=1)
        return replace(one.repeated(times), assumptions=held[0].leakage(times).assumptions)


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
    each = epsilon / count
    while Fraction(each) * count > Fraction(epsilon):
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
