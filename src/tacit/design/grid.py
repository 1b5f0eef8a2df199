"""Release by a discrete Gaussian: integers are published, and every rounding is in the bound.

The product that finds a value's place on the grid, the rounding to it and the samples are computed
in integers: no floating point is between the value and what is published.
"""

from __future__ import annotations

import math
import os
import random
from array import array as array_of_words
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn, Protocol

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from tacit._ground import outlet
from tacit._ground.checks import (
    Array,
    RandomSource,
    array,
    as_float,
    generator,
    is_reproducible,
    vector,
)
from tacit._ground.frozen import array_value, frozen
from tacit._ground.numbers import EPS, LARGEST
from tacit.accounting import PrivacyProfile, gaussian_shift
from tacit.covariance.base import Covariance
from tacit.covariance.publication import doubles
from tacit.covariance.whitening import principal_axes
from tacit.design.base import Design

# Of a double: an integer of so many bits times a power of two.
SIGNIFICANT_BITS = 53
# Steps are powers of two between these, in standard deviations of the noise.
COARSEST_BITS, FINEST_BITS = 4, 60
# Of its variance s² the discrete Gaussian gives 4² to the rounding that makes it of a continuous
# one, exactly up to factors exp(±7 exp(−2π² 4²)); the slack covers them, and a square or a root.
ROUNDING_VARIANCE = 16.0
SLACK = 1.0 + 2.0**-48
# More than the roundings of a widening by a factor of up to 10¹².
WIDENING_SLACK = 1.0 + 1e-9
# Added to the number of columns: the roundings beside those of a product of rows.
PRODUCT_UNITS = 4
# What underflows is below 2⁻¹⁰⁰⁰ a product, beside a step of 2⁻⁶⁰ of the noise.
STEP_SLACK = 1.0 + 2.0**-40
# Random bits are fetched in words, so many bytes at a time.
WORD_BITS, FETCHED_BYTES = 64, 2**13
# Bytes of a generator that a seed fixes.
SEED_BYTES = 32
SOURCE = (
    "Canonne, Kamath and Steinke (2020), Proposition 5; domination by the Gaussian of variance "
    "s² − 16: docs/explanation/released-floats.md"
)
ASSUMPTIONS = (
    "the two values differ by one of the listed differences, as real numbers",
    "the covariance, the step and the centre were chosen without the value",
)

Integers = npt.NDArray[np.object_]
# The first 64 binary digits of 1/e.
INVERSE_E = 0x5E2D58D8B3BCDF1A


@dataclass(frozen=True, eq=False)
class Scaled:
    """The numbers ``integers · 2^exponent``.

    Attributes:
        integers: Python integers of any size.
        exponent: common to all.
    """

    integers: Integers
    exponent: int

    def rounded(self, bits: int) -> Integers:
        """Return the integers nearest to ``2^bits`` times the numbers, exactly, halves up."""
        shift = self.exponent + bits
        if shift >= 0:
            return _shift(self.integers, shift)
        # ⌊x + ½⌋ by a shift, which is a floor of negative numbers too
        half = 1 << (-shift - 1)
        return np.array([(each + half) >> -shift for each in self.integers], dtype=object)

    def plus(self, other: Scaled) -> Scaled:
        """Return the exact sums."""
        # to the smaller exponent, where both are integers
        low = min(self.exponent, other.exponent)
        mine = _shift(self.integers, self.exponent - low)
        return Scaled(mine + _shift(other.integers, other.exponent - low), low)


def scaled_integers(values: Array) -> Scaled:
    """Return the doubles, exactly, as integers of one common exponent."""
    # 53 bits each, shifted to the smallest exponent that is used
    fractions, exponents = np.frexp(values)
    whole = np.ldexp(fractions, SIGNIFICANT_BITS).astype(np.int64)
    used = exponents[whole != 0] - SIGNIFICANT_BITS
    low = int(used.min()) if used.size else 0
    shifts = np.maximum(exponents.astype(np.int64) - SIGNIFICANT_BITS - low, 0)
    shifted: Any = whole.astype(object) << shifts.astype(object)
    return Scaled(np.asarray(shifted, dtype=object), low)


def linear_image(weights: Scaled, values: Scaled) -> Scaled:
    """Return the exact ``weights @ values``; entry by entry where the weights are a diagonal."""
    # sums of products of integers: no bit is lost, whatever their size
    both = weights.integers
    image = both * values.integers if both.ndim == 1 else both @ values.integers
    return Scaled(np.asarray(image, dtype=object), weights.exponent + values.exponent)


def to_doubles(numbers: Scaled) -> Array:
    """Return the nearest doubles, rounded once; what is larger than all becomes the largest."""
    return np.array([_double(int(each), numbers.exponent) for each in numbers.integers])


def _double(integer: int, exponent: int) -> float:
    """Return the nearest double of ``integer · 2^exponent``, the largest where none is near."""
    try:
        # Python rounds the quotient of two integers, and an integer to a float, once
        return float(integer << exponent) if exponent >= 0 else integer / (1 << -exponent)
    except OverflowError:
        return LARGEST if integer > 0 else -LARGEST


def _shift(integers: Integers, bits: int) -> Integers:
    """Return integers times 2^bits, exactly."""
    return np.array([each << bits for each in integers], dtype=object)


class Bits(Protocol):
    """Where random integers come from."""

    def randrange(self, stop: int, /) -> int:
        """Return an integer uniform on 0 … ``stop`` − 1."""

    def getrandbits(self, count: int, /) -> int:
        """Return ``count`` fair bits."""


class SystemBits:
    """The operating system's random bits, fetched some thousands at a time; no copy has them."""

    def __init__(self) -> None:
        self._words: Iterator[int] = iter(())

    def __reduce__(self) -> NoReturn:
        # two that hold the same words would draw the same noise twice
        raise TypeError("random bits of the operating system are drawn once: they have no copy")

    def getrandbits(self, count: int, /) -> int:
        """Return ``count`` fair bits."""
        if count > WORD_BITS:
            rest = count - WORD_BITS
            return self.getrandbits(WORD_BITS) << rest | self.getrandbits(rest)
        for word in self._words:
            return word >> (WORD_BITS - count)
        self._words = iter(array_of_words("Q", os.urandom(FETCHED_BYTES)))
        return self.getrandbits(count)

    def randrange(self, stop: int, /) -> int:
        """Return an integer uniform on 0 … ``stop`` − 1."""
        # as many bits as stop − 1 has: uniform below stop once they are below
        count = (stop - 1).bit_length()
        while (drawn := self.getrandbits(count)) >= stop:
            pass
        return drawn


def random_bits(rng: RandomSource) -> Bits:
    """Return the operating system's generator, or one that the seed or generator given fixes."""
    if rng is None:
        return SystemBits()
    return random.Random(int.from_bytes(generator(rng).bytes(SEED_BYTES), "little"))


def discrete_gaussian(variance: int, bits: Bits) -> int:
    """Draw an integer k with probability proportional to ``exp(−k²/2s²)``, s² = ``variance``.

    Args:
        variance: s² >= 1, an integer; the variance of k is at most s².
        bits: source of random integers.

    Source: Canonne, Kamath and Steinke (2020), Algorithm 3.
    """
    # a discrete Laplace of this scale lies above it, and is kept with e^{−(|k| − s²/t)²/(2s²)}
    scale = math.isqrt(variance) + 1
    while True:
        drawn = discrete_laplace(scale, bits)
        # (|k| − s²/t)²/(2s²) in integers: t² cancels the fraction
        excess = abs(drawn) * scale - variance
        if _happens(excess * excess, 2 * variance * scale * scale, bits):
            return drawn


def discrete_laplace(scale: int, bits: Bits, divisor: int = 1) -> int:
    """Draw an integer k with probability proportional to ``exp(−|k| divisor/scale)``.

    Args:
        scale: >= 1, an integer; the variance of k is at most twice the square of scale/divisor.
        bits: source of random integers.
        divisor: >= 1, an integer.

    Source: Canonne, Kamath and Steinke (2020), Algorithm 2.
    """
    while True:
        # |k| = low + scale · high: low with e^{−low/scale}, high geometric with e^{−1}
        low = bits.randrange(scale)
        if not _happens(low, scale, bits):
            continue
        high = 0
        while _happens_once_in_e(bits):
            high += 1
        # ⌊|k|/divisor⌋ of such a k has the law of scale/divisor
        magnitude = (low + scale * high) // divisor
        # zero has one sign
        negative = bits.getrandbits(1)
        if negative and magnitude == 0:
            continue
        return -magnitude if negative else magnitude


def _happens_once_in_e(bits: Bits) -> bool:
    """Return True with probability 1/e, exactly: fair bits held against its binary digits."""
    drawn = bits.getrandbits(WORD_BITS)
    if drawn != INVERSE_E:
        return drawn < INVERSE_E
    # the first digits are the same, once in 2⁶⁴ times: the next ones decide
    count = WORD_BITS
    while True:
        drawn, count = drawn << WORD_BITS | bits.getrandbits(WORD_BITS), count + WORD_BITS
        digits = _inverse_e(count)
        if drawn != digits:
            return drawn < digits


def _inverse_e(count: int) -> int:
    """Return the first ``count`` binary digits of 1/e, exactly, as an integer."""
    # Σ (−1)^k/k! of so many more digits that what is cut cannot reach the last one, unless all
    # that are added are alike, for which more of them are taken
    guard = WORD_BITS
    while True:
        term, total, k = 1 << (count + guard), 0, 0
        while term:
            total += -term if k % 2 else term
            k += 1
            term //= k
        # every term was cut by less than 1, and the rest of the series is less than 1
        low, high = (total - k) >> guard, (total + k) >> guard
        if low == high:
            return low
        guard *= 2


def _happens(numerator: int, denominator: int, bits: Bits) -> bool:
    """Return True with probability ``exp(−numerator/denominator)`` (Algorithm 1)."""
    # e^{−x} = e^{−1} e^{−(x − 1)}
    while numerator > denominator:
        if not _happens_once_in_e(bits):
            return False
        numerator -= denominator
    # von Neumann: how long uniform numbers stay below x/1, x/2, x/3 …; odd with e^{−x}
    stop, odd = denominator, True
    while True:
        # 64 bits of a uniform number against those of numerator/stop; the rest where they agree
        digits, rest = divmod(numerator << WORD_BITS, stop)
        drawn = bits.getrandbits(WORD_BITS)
        if drawn > digits or (drawn == digits and bits.randrange(stop) >= rest):
            return odd
        stop, odd = stop + denominator, not odd


@array_value()
class DiscreteRelease:
    """What a discrete Gaussian release publishes.

    Attributes:
        integers: (p,) noisy integers, of any size; the whole release.
        value: (d,) ``centre + step · A integers``, the nearest doubles: the integers in the units
            of the value, for whoever holds the noise as doubles.
        reproducible: whether a seed or generator fixed the randomness, which voids the guarantee.
        seed: the integer seed, when one was given.
    """

    integers: tuple[int, ...]
    value: Array
    reproducible: bool
    seed: int | None


@array_value()
class DiscreteNoise:
    """Integer noise on a grid of the coordinates in which N(0, Σ) is N(0, I).

    A value f is published as the integers ``k = round(W (f − c)/g) + N``, where W are p × d doubles
    with ``W Σ Wᵀ ≈ I``, c is a public centre, g the step, and every entry of N a discrete Gaussian,
    ``P(N = n) ∝ exp(−n² g²/2)``. The product and the rounding are computed in integers, and N is
    sampled exactly, so that nothing else tells of f.

    Attributes:
        covariance: Σ.
        forward: W, (p, d); its diagonal, (d,), where Σ is diagonal.
        backward: A, (d, p), with ``W A ≈ I``, or its diagonal.
        centre: c, (d,).
        step_bits: g = 2^−step_bits.
        widening: factor by which Σ exceeds the design's, for the budgets that were to be kept.
    """

    covariance: Covariance
    forward: Array
    backward: Array
    centre: Array
    step_bits: int
    widening: float

    @property
    def step(self) -> float:
        """The step g, in standard deviations of the noise."""
        return 2.0**-self.step_bits

    @property
    def rank(self) -> int:
        """Number p of integers published."""
        return int(self.forward.shape[0])

    def mahalanobis(self, z: ArrayLike) -> Any:
        """Return the certified squared distance of a difference, with all rounding in it.

        ``(‖Wz‖ + g √r)² / (1 − 16 g²)``, r the number of coordinates that z moves: the rounded
        coordinates of two values differ by integers within 1 of ``(Wz)_j/g``, and the discrete
        Gaussian of variance 1/g² tells no more of such a shift than a Gaussian of variance
        1/g² − 16. A direction without noise is not published, and counts as nothing.

        Args:
            z: (d,) or (m, d).

        Returns:
            float for a vector, (m,) for rows; rounded up.

        Raises:
            ValueError: wrong shape or a non-finite entry.
        """
        rows = array("z", z, ndim=(1, 2))
        if rows.shape[-1] != self.centre.size:
            raise ValueError(f"z: expected {self.centre.size} columns, got shape {rows.shape}")
        # the root and the square round: raised by the slack
        squares = self._distances(np.atleast_2d(rows)) ** 2 * SLACK
        return float(squares[0]) if rows.ndim == 1 else squares

    def profile(self, differences: ArrayLike) -> PrivacyProfile:
        """Return the privacy profile over the listed differences, rounded up.

        Args:
            differences: (m, d), or one (d,).

        Returns:
            δ(ε) of the farthest of them; ``.success()``, ``.epsilon(delta)``, ``.renyi(orders)``
            and composition follow. The KL divergence is at most ``mahalanobis/2``.

        Raises:
            ValueError: wrong shape or a non-finite entry.

        Source: docs/explanation/released-floats.md; Balle and Wang (2018), Theorem 8.
        """
        rows = np.atleast_2d(array("differences", differences, ndim=(1, 2)))
        # δ rises with the distance: the farthest pair is the worst
        farthest = float(np.max(self.mahalanobis(rows)))
        return replace(
            gaussian_shift(math.sqrt(farthest) * SLACK),
            name=f"discrete Gaussian of step {self.step:g}",
            source=SOURCE,
            assumptions=ASSUMPTIONS,
        )

    def release(self, value: ArrayLike, *, rng: RandomSource = None) -> DiscreteRelease:
        """Draw the integers to publish.

        Args:
            value: f, (d,), finite.
            rng: None draws from the operating system. A seed or generator can be repeated by
                whoever knows it, which voids the guarantee and is recorded.

        Returns:
            The release; it holds nothing of the value but the noisy integers.

        Raises:
            ValueError: a value of another length or not finite.
        """
        # values beyond doubles are clipped before anything is computed of them
        clean = vector("value", doubles(value), size=self.centre.size)
        # f − c and its product with W, in integers; rounded once, to the grid
        both = scaled_integers(np.stack([clean, self.centre]))
        moved = Scaled(both.integers[0] - both.integers[1], both.exponent)
        coordinates = linear_image(self._forward_integers, moved).rounded(self.step_bits)
        bits = random_bits(rng)
        # in units of the step, an integer
        variance = 4**self.step_bits
        noisy = (int(k) + discrete_gaussian(variance, bits) for k in coordinates)
        # the one place where integers of the value leave
        integers = outlet.let_out(tuple(noisy))
        return DiscreteRelease(
            integers=integers,
            value=self._reconstruct(integers),
            reproducible=is_reproducible(rng),
            seed=int(rng) if isinstance(rng, (int, np.integer)) else None,
        )

    @cached_property
    def _forward_integers(self) -> Scaled:
        """W as exact integers, once for all releases."""
        return scaled_integers(self.forward)

    def _reconstruct(self, integers: tuple[int, ...]) -> Array:
        """Return ``c + g A k`` in integers, rounded once: nothing between can overflow."""
        noisy = Scaled(np.array(integers, dtype=object), -self.step_bits)
        image = linear_image(scaled_integers(self.backward), noisy)
        return frozen(to_doubles(image.plus(scaled_integers(self.centre))))

    def _distances(self, rows: Array) -> Array:
        """Return ``(‖Wz‖ + g √r)/√(1 − 16 g²)``, rounded up by what every product rounds."""
        weights, moved = np.abs(self.forward), np.abs(rows)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            if self.forward.ndim == 1:
                # |Wz| with what a sum of d products rounds, and how many coordinates z moves
                images, sizes = np.abs(rows * self.forward), moved * weights
                touched = (moved > 0.0).sum(axis=1)
            else:
                images, sizes = np.abs(rows @ self.forward.T), moved @ weights.T
                touched = ((moved > 0.0).astype(float) @ (weights > 0.0).T > 0.0).sum(axis=1)
            error = (rows.shape[1] + PRODUCT_UNITS) * EPS * sizes
            # What underflows is below 2⁻¹⁰⁰⁰ a product: the step is far above it.
            norms = np.linalg.norm(np.nan_to_num(images + error, nan=np.inf), axis=1)
            # ‖·‖ rounds by a unit for each of the columns summed
            norms = norms * (1.0 + rows.shape[1] * EPS)
            # the rounded coordinates of two values differ by integers within 1 of (Wz)_j/g
            shifts = norms + self.step * np.sqrt(touched) * STEP_SLACK
        # 16 of the variance 1/g² pay for the rounding of a continuous Gaussian
        spread = math.sqrt(1.0 - ROUNDING_VARIANCE * self.step**2)
        distances: Array = np.where(touched > 0, shifts, 0.0) / spread * SLACK
        return distances


def discrete(
    design: Design,
    *,
    step: float = 2.0**-20,
    centre: ArrayLike | None = None,
    budgets: ArrayLike | None = None,
) -> DiscreteNoise:
    """Return the design's noise as integers on a grid, with exact accounting of the rounding.

    Args:
        design: what to release with; its noise must be Gaussian.
        step: g, a power of two between 2⁻⁶⁰ and 2⁻⁴, in standard deviations of the noise. Rounding
            adds g √p to every distance and g²/12 of the variance to the error.
        centre: (d,) public, chosen without the value; what the release says where there is no
            noise. None for 0, which only noise of full rank allows.
        budgets: squared distances under Σ, a number or (m,), that are to hold with the rounding
            too: Σ is widened just enough. None leaves Σ as it is.

    Returns:
        The ``DiscreteNoise``.

    Raises:
        ValueError: noise that is not Gaussian, is absent, or leaves a direction bare without a
            centre; a step that is no such power of two or too coarse for the budgets.

    Example:
        >>> from tacit.design import discrete, worst_case
        >>> differences = [[3.0, 0.0], [0.0, 4.0]]
        >>> noise = discrete(worst_case(differences, 1.0), budgets=1.0)
        >>> bool((noise.mahalanobis(differences) <= 1.0).all())
        True
        >>> len(noise.release([10.0, 20.0]).integers)
        2

    Source: Canonne, Kamath and Steinke (2020), "The discrete Gaussian for differential privacy".
    """
    if not isinstance(design, Design):
        raise ValueError(f"design: expected a Design, got {type(design).__name__}")
    if design.noise is not None:
        raise ValueError("design: expected Gaussian noise, got a scale mixture")
    bits = _step_bits(step)
    size = design.covariance.dim
    middle = np.zeros(size) if centre is None else vector("centre", centre, size=size)
    # coordinates in which the noise is N(0, I)
    forward, backward = principal_axes(design.covariance)
    if len(forward) < size and centre is None:
        raise ValueError(
            f"centre: expected a public point, since the noise covers {len(forward)} of {size} "
            "directions and says nothing of the others, got None"
        )
    widening = 1.0 if budgets is None else _widening(budgets, len(forward), bits)
    # Σ widened by c: W smaller and A larger by its root
    root = math.sqrt(widening)
    return DiscreteNoise(
        covariance=design.covariance if widening == 1.0 else design.covariance.scaled(widening),
        forward=frozen(forward / root),
        backward=frozen(backward * root),
        centre=frozen(middle),
        step_bits=bits,
        widening=widening,
    )


def _step_bits(step: float) -> int:
    """Return b with g = 2^−b, exactly, or refuse the step."""
    fraction, exponent = math.frexp(as_float("step", step))
    if fraction != 0.5 or not COARSEST_BITS <= 1 - exponent <= FINEST_BITS:
        raise ValueError(f"step: expected a power of two from 2^-60 to 2^-4, got {step!r}")
    return 1 - exponent


def _widening(budgets: Any, rank: int, bits: int) -> float:
    """Return c, rounded up, with ``(√(b/c) + g √p)/√(1 − 16 g²) <= √b`` for the least budget b."""
    least = float(np.min(array("budgets", budgets, ndim=(0, 1))))
    if least <= 0.0:
        raise ValueError(f"budgets: expected numbers > 0, got {least!r}")
    step = 2.0**-bits
    # 1/√c is what is left of √(1 − 16 g²) after the rounding of p coordinates
    room = math.sqrt(1.0 - ROUNDING_VARIANCE * step**2) - step * math.sqrt(rank / least)
    if room <= 0.0:
        raise ValueError(
            f"step: expected one below {math.sqrt(least / rank):.3g} for a budget of {least:.3g} "
            f"in {rank} directions, got {step:g}"
        )
    # c = 1/room², upwards
    return WIDENING_SLACK / room**2
