"""Releases together: a list of losses, convolved when one of their curves is first read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial

from tacit._ground.checks import Array
from tacit._ground.numbers import rounded_up
from tacit.accounting.curves.composition import cap_by_moments, compose, least_curve
from tacit.accounting.curves.curve import Curve, guard, guarded
from tacit.accounting.curves.discretisation import ComposedPart, LossMasses
from tacit.divergences.shift import gaussian_curve


@dataclass(frozen=True, eq=False)
class Composition:
    """Independent losses together, their profiles fixed in advance.

    The list is kept, so that a composition that is composed again is one convolution of all.

    Attributes:
        parts: the losses, each with how often it is added; no two of the same curves.
    """

    parts: tuple[ComposedPart, ...]

    @property
    def symmetric(self) -> bool:
        """Whether both directions are the same."""
        return all(part.symmetric for part in self.parts)

    @property
    def closed(self) -> bool:
        """Whether it is one loss, whose curve is known."""
        return len(self.parts) == 1 and self.parts[0].count == 1

    @property
    def curves(self) -> tuple[Curve, Curve]:
        """Both directions, rounded up and convolved when read; one object where they are equal."""
        # one loss once: its own curve, with nothing lost to a lattice
        if self.closed:
            return self.parts[0].forward, self.parts[0].backward
        ahead = self.forward
        return ahead, ahead if self.symmetric else self.backward

    @cached_property
    def bounds(self) -> tuple[tuple[LossMasses, ...], tuple[LossMasses, ...]]:
        """Losses of both directions on lattices, rounded up; the first is that of the whole sum."""
        ahead = compose(self.parts)
        return ahead, ahead if self.symmetric else compose(self._reversed)

    def forward(self, epsilon: Array) -> Array:
        """Upper bound of H_{e^ε}(P‖Q) at any real ε."""
        return self._forward(epsilon)

    def backward(self, epsilon: Array) -> Array:
        """Upper bound of H_{e^ε}(Q‖P) at any real ε."""
        return self._backward(epsilon)

    @property
    def _reversed(self) -> tuple[ComposedPart, ...]:
        return tuple(part.reversed for part in self.parts)

    @cached_property
    def _forward(self) -> Curve:
        """The curve of (P, Q), rounded up."""
        # the masses of all losses convolved on a lattice, and where it is lower Chernoff's bound
        return cap_by_moments(least_curve(self.bounds[0]), self.parts, self.bounds[0][0])

    @cached_property
    def _backward(self) -> Curve:
        """The curve of (Q, P), rounded up."""
        return cap_by_moments(least_curve(self.bounds[1]), self._reversed, self.bounds[1][0])


def gathered(parts: Sequence[ComposedPart]) -> tuple[ComposedPart, ...]:
    """Return the parts with those of the same curves as one, and all Gaussians as one.

    Shifts d of Gaussians are one shift by ``√Σ n d²``, rounded up: N(0, I) against N(z, I) depends
    on ‖z‖ alone.

    Source: Dong, Roth and Su (2022), Corollary 3.3.
    """
    counts: dict[tuple[Curve, Curve], int] = {}
    # Σ n d², exactly
    squares, gaussians = Fraction(0), 0
    for part in parts:
        distance = shift_of(part)
        # a float is an exact fraction: d² and n d² lose nothing; infinite shifts stay as they are
        if distance is not None and math.isfinite(distance):
            squares += part.count * Fraction(distance) ** 2
            gaussians += 1
        else:
            pair = part.forward, part.backward
            counts[pair] = counts.get(pair, 0) + part.count
    found = [ComposedPart(*pair, count) for pair, count in counts.items()]
    if gaussians:
        curve = guard("forward", partial(gaussian_curve, distance=_root_up(squares)))
        found.insert(0, ComposedPart(curve, curve, 1))
    return tuple(found)


def shift_of(part: ComposedPart) -> float | None:
    """Return d, exactly, where the curves are of N(0, I) against N(z, I), ‖z‖ = d; else None."""
    inner = guarded(part.forward)
    if not part.symmetric or not isinstance(inner, partial) or inner.func is not gaussian_curve:
        return None
    return float(inner.keywords["distance"])


def repeated(parts: Sequence[ComposedPart], count: int) -> tuple[ComposedPart, ...]:
    """Return the parts, each so many times as often."""
    return tuple(replace(part, count=part.count * count) for part in parts)


def _root_up(square: Fraction) -> float:
    """Return √x of an exact number, rounded up."""
    # ⌊√(x 4^k)⌋ + 1 over 2^k is above √x and within 2^−64 of it, relatively
    # x is within a factor of 2 of 2^size: k so that x 4^k has some 128 bits, and its root 64
    size = square.numerator.bit_length() - square.denominator.bit_length()
    bits = max(0, 128 - size) // 2 + 1
    scaled = math.isqrt(math.floor(square * 4**bits))
    exact = scaled * scaled == square * 4**bits
    return rounded_up(Fraction(scaled if exact else scaled + 1, 2**bits))
