"""Composition of discretised losses by tilted Fourier transforms, every error added to δ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.fft import irfft, next_fast_len, rfft
from scipy.optimize import minimize_scalar

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS
from tacit.accounting.curves.discretisation import (
    Curve,
    LossMasses,
    discretise,
    loss_range,
    mean_loss,
)

STEP = 1e-4
UPPER_TAIL = 1e-28
LOWER_TAIL = 1e-16
MOST_POINTS = 2**21
MOST_FINE = 2**19  # for the sake of losses much shorter than their range
FEWEST_POINTS = 2**16
ENOUGH_POINTS = 2**17
DRIFT = 2e-5
SMALL_DRIFT = 5.01e-6
SPREAD = 2.5e-4  # of the variance of the sum, added by each lattice
MANY_LENGTHS = 8  # of one loss in the range of the sum, where groups are shorter than it
NORMAL_WIDTH = 20.0  # standard deviations in the range of a sum of many
MOST_WHOLE = 2**18  # points of a sum that is convolved at once
MOST_FOLDS = 6
SKETCH_POINTS = 2**11
SKETCH_WIDTHS = 40.0
TILTED_TAILS = (1e-1, 1e-3, 1e-5, 1e-7, 1e-10)  # a normal sum tilted by 2 to 7 standard deviations
REFINED = 16  # times finer than one lattice of a sum is the next, where that is coarse
REFINED_POINTS = 2**16  # of a loss on each side of 0, on the finer lattices
SPENT = 0.9  # of the mass at infinite loss: a lattice that ends so early says nothing
CLOSE_TILTS = 1.1  # ratio of two tilts of which one is as good as both
COARSE = 32
NOTHING = 1e-290
SILENCE = -100.0  # of a product of transforms, in logarithm: added to the error
FOURIER_ROUNDING = 4 * EPS  # of a transform of length N: this · log2 N times the sum of |input|


@dataclass(frozen=True, eq=False)
class Part:
    """One direction of a profile, and how often it enters a composition.

    Args:
        forward: Its curve.
        backward: The curve of the other direction.
        count: How many releases it stands for.
        masses: Its losses where they are already discrete.
    """

    forward: Curve
    backward: Curve
    count: int
    masses: LossMasses | None = None

    def on(self, step: float, tail: float, most: float = math.inf) -> LossMasses:
        """Return its losses on the lattice of ``step``, those above ``most`` at infinity."""
        if self.masses is not None and self.masses.step == step:
            return self.masses
        return discretise(self.forward, self.backward, step, tail, most)


@dataclass(frozen=True, eq=False)
class Sum:
    """The sum of independent losses on one lattice, and its cumulant generating function."""

    terms: Sequence[tuple[LossMasses, int]]

    def cumulants(self, tilt: float) -> tuple[float, ...]:
        """ln E exp(tilt · L) over the finite losses of each term, upper bounds."""
        return tuple(_log_moment(term, tilt) for term, _ in self.terms)

    def cumulant(self, tilt: float) -> float:
        """ln E exp(tilt · S) over the finite losses, an upper bound."""
        return self.added(self.cumulants(tilt))

    def added(self, cumulants: Sequence[float]) -> float:
        """The cumulant of the sum from those of its terms."""
        pairs = zip(cumulants, self.terms, strict=True)
        return math.fsum(count * cumulant for cumulant, (_, count) in pairs)

    def ends(self) -> tuple[int, int]:
        """Lowest and highest index of the sum."""
        low = sum(count * term.first for term, count in self.terms)
        width = sum(count * (term.masses.size - 1) for term, count in self.terms)
        return low, low + width

    @cached_property
    def sketch(self) -> tuple[tuple[Array, Array, int], ...]:
        """Losses and masses of each term, many lattice points to one: good for a choice only."""
        sketches = []
        for term, count in self.terms:
            group = max(1, min(COARSE, term.masses.size // COARSE))
            starts = np.arange(0, term.masses.size, group)
            masses = np.add.reduceat(term.masses, starts)
            some = masses > 0
            losses = np.add.reduceat(term.masses * term.losses, starts)[some] / masses[some]
            sketches.append((losses, masses[some], count))
        return tuple(sketches)

    def best_tilt(self, mass: float, sign: int) -> float:
        """The tilt of Chernoff's bound for the loss beyond which about ``mass`` lies."""
        needed = -math.log(mass)
        spread = 0.0
        for losses, masses, count in self.sketch:
            share = masses / masses.sum()
            spread += count * float((share * (losses - (share * losses).sum()) ** 2).sum())

        def bound(log_tilt: float) -> float:
            tilt = math.exp(log_tilt)
            total = 0.0
            for losses, masses, count in self.sketch:
                exponents = sign * tilt * losses
                shift = float(exponents.max())
                total += count * (
                    shift + math.log(float((np.exp(exponents - shift) * masses).sum()))
                )
            return (total + needed) / tilt

        step = self.terms[0][0].step
        guess = math.log(2 * needed / max(spread, step * step / 4)) / 2
        low, high = self.ends()
        widest = math.log(needed / (max(high - low, 1) * step))
        with np.errstate(under="ignore"):
            best = minimize_scalar(
                bound,
                bounds=(min(guess - 6, widest), min(guess + 6, math.log(needed / step))),
                method="bounded",
                options={"xatol": 0.01},
            )
        return sign * math.exp(float(best.x))

    def reach(self, mass: float, sign: int) -> float:
        """Return a loss beyond which at most ``mass`` lies, by Chernoff's bound."""
        tilt = self.best_tilt(mass, sign)
        return (self.cumulant(tilt) - math.log(mass)) / tilt


def compose(parts: Sequence[Part]) -> tuple[LossMasses, ...]:
    """Return losses whose curves are each at least that of all the parts released together.

    The first are on a lattice of the whole range of the sum. A few heavy losses make that range
    wide and the lattice coarse, so that every loss is rounded up by much of it: then finer ones
    follow, which end earlier and put what lies beyond at infinite loss. A loss far above ε counts
    in δ(ε) as an infinite one does, up to a factor 1 − e^{ε−ℓ}.

    Args:
        parts: The same direction of each profile.

    Returns:
        The masses on lattices of step 1e-4 times a power of two, coarser or finer where the
        range of the sum or the size of one loss needs it; `least` is the curve of all of them.

    Source: Koskela, Jälkö and Honkela (2020); Gopi, Lee and Wutschitz (2021).
    """
    releases = sum(part.count for part in parts)
    tail = UPPER_TAIL / releases
    step = lattice_step(parts, tail)
    found = [_by_groups([(part.on(step, tail), part.count) for part in parts])]
    # each release adds up to step²/8 to ε
    while releases * step**2 > 8 * DRIFT:
        step /= REFINED
        most = REFINED_POINTS * step
        finer = _by_groups([(part.on(step, tail, most), part.count) for part in parts])
        if finer.infinite > SPENT:
            break
        found.append(finer)
    return tuple(found)


def least(bounds: Sequence[LossMasses]) -> Curve:
    """Return the least of several bounds of one curve."""
    if len(bounds) == 1:
        return bounds[0].curve
    return lambda epsilon: np.min([bound.curve(epsilon) for bound in bounds], axis=0)


def _by_groups(terms: Sequence[tuple[LossMasses, int]]) -> LossMasses:
    """Convolve in groups of 4^j first, each put on a lattice 2^j times as coarse as its losses.

    n losses on a step h add n h²/4 to the variance at most, and n/4^j groups on a step 2^j h as
    much again: the lattice of a sum need not be as fine as one of its losses.
    """
    longest = max(term.masses.size for term, _ in terms)
    points = NORMAL_WIDTH * math.sqrt(math.fsum(n * term.variance for term, n in terms))
    points /= terms[0][0].step
    fold = min(math.ceil(math.log2(max(points / MOST_WHOLE, 1.0))), MOST_FOLDS)
    if fold < 1 or points < MANY_LENGTHS * longest:
        return convolve(terms)
    groups: list[tuple[LossMasses, int]] = []
    for term, count in terms:
        whole, rest = divmod(count, 4**fold)
        for size, times in ((4**fold, whole), (rest, 1)):
            if size and times:
                group = convolve([(term, size)], 1.0 / times) if size > 1 else term
                groups.append((group.coarsened(2**fold), times))
    return _by_groups(groups)


def lattice_step(parts: Sequence[Part], tail: float) -> float:
    """Return a step that suits the range of the sum and the size of one loss."""
    ranges = [_range(part, tail) for part in parts]
    width = _sketched_width(parts, ranges, tail)
    points = width / STEP
    if points <= 0:
        return STEP
    releases = sum(part.count for part in parts)
    # each release adds up to step²/8 to ε
    coarser = min(points / ENOUGH_POINTS, math.sqrt(8 * SMALL_DRIFT / releases) / STEP)
    if points > MOST_POINTS:
        power = math.ceil(math.log2(points / MOST_POINTS))
    elif coarser >= 2:
        power = math.floor(math.log2(coarser))
    else:
        finer = max(FEWEST_POINTS / points, STEP * math.sqrt(releases / (8 * DRIFT)), 1.0)
        power = -math.ceil(math.log2(min(finer, MOST_POINTS / points)))
    # and up to step²/4 to the variance, which is about twice the mean
    mean = sum(part.count * mean_loss(part.forward, part.backward, tail) for part in parts)
    if mean > 0:
        longest = max(ranges) if width >= MANY_LENGTHS * max(ranges) else width
        finest = math.ceil(math.log2(longest / STEP / MOST_FINE))
        wanted = math.floor(math.log2(math.sqrt(8 * SPREAD * mean / releases) / STEP))
        power = min(power, max(wanted, finest))
    return float(STEP * 2.0**power)


def _sketched_width(parts: Sequence[Part], ranges: Sequence[float], tail: float) -> float:
    """The range of the sum, from a coarse lattice."""
    some = [width for width in ranges if width > 0]
    if not some:
        return 0.0
    # one lattice for the sketch of all, as fine as the narrowest of them
    step = max(min(some) / SKETCH_POINTS, max(some) / 2**16)
    releases = sum(part.count for part in parts)
    while True:
        sketch = Sum([(discretise(p.forward, p.backward, step, tail), p.count) for p in parts])
        low, high = _window(sketch)
        width = max((high - low) * step, *some)
        # a sketch too coarse for so many releases widens their sum
        settled = releases * step**2 <= min(width, width**2 / SKETCH_WIDTHS) / 8
        if settled or max(some) / step > FEWEST_POINTS:
            return width
        step /= 8


def convolve(terms: Sequence[tuple[LossMasses, int]], share: float = 1.0) -> LossMasses:
    """Return the law of the sum of independent losses, each mass rounded up.

    For a tilt θ the masses p_j exp(θ ℓ_j)/M(θ) are convolved by real Fourier transforms. The
    error of each entry of the result is bounded and added; untilting turns it into a bound
    relative to M exp(−θ ℓ), so that far tails keep their relative precision. Every loss takes
    the least of the bounds that the tilts give.

    Args:
        terms: Losses on one lattice with how often each is added.
        share: What part of the mass that may be cut off is left to this sum.

    Returns:
        Masses on the same lattice. What Chernoff's bound leaves above the window is at infinite
        loss, what it leaves below is at the lowest.
    """
    total = Sum(terms)
    step = terms[0][0].step
    if any(float(term.masses.sum()) < NOTHING for term, _ in terms):
        return LossMasses(step, total.ends()[0], np.zeros(1), 1.0)
    upper, lower = UPPER_TAIL * share, LOWER_TAIL * share
    low, high = _window(total, share)
    size = next_fast_len(high - low + 1, real=True)
    losses = (low + np.arange(high - low + 1)) * step
    # each tilt bounds every mass from above: wrapping round the window adds to it, its error is
    # added, and untilting carries both along, small where the tilt expects the loss. The least of
    # all bounds is kept
    masses = np.full(losses.shape, math.inf)
    for tilt in _tilts(total, share):
        cumulants = total.cumulants(tilt)
        cumulant = total.added(cumulants)
        entries, error = tilted(terms, tilt, cumulants, low, size, losses.size)
        with np.errstate(under="ignore", over="ignore"):
            bound = (np.maximum(entries, 0.0) + error) * np.exp(cumulant - tilt * losses)
        # rounding of the exponent of the untilting
        exponent = abs(cumulant) + tilt * float(np.abs(losses).max())
        masses = np.minimum(masses, bound * (1 + 8 * EPS * (1 + exponent)))
    lowest, highest = total.ends()
    masses[0] += lower if low > lowest else 0.0
    cut = upper if high < highest else 0.0
    return LossMasses(step, low, masses, _infinite(terms) + cut)


def _tilts(total: Sum, share: float) -> list[float]:
    """Return tilts from 0 to that of the rarest loss that matters, none close to another.

    The tilts of Chernoff's bound for the masses of `TILTED_TAILS`. Of a normal sum they lie apart;
    of one whose tail a single release makes they nearly coincide, and the losses between the
    middle and that tail are covered by halves of the least of them.
    """
    # what is rare in one of many such sums is not rare in all of them
    rare = np.arange(-3, math.log10(share), -3)
    tails = [*TILTED_TAILS, *(TILTED_TAILS[-1] * 10.0**rare)]
    apart: list[float] = []
    for tilt in sorted(total.best_tilt(mass, 1) for mass in tails):
        if not apart or tilt > CLOSE_TILTS * apart[-1]:
            apart.append(tilt)
    halves = apart[0] * 0.5 ** np.arange(1, len(TILTED_TAILS) - len(apart) + 1)
    return [0.0, *halves.tolist(), *apart]


def tilted(
    terms: Sequence[tuple[LossMasses, int]],
    tilt: float,
    cumulants: Sequence[float],
    low: int,
    size: int,
    kept: int,
) -> tuple[Array, float]:
    """Return the convolution of the tilted laws on the window, and a bound on each entry's error.

    With a the largest mass of a law and F = a(1 + z) its transform about the place of a, the
    transform of the sum of n less its largest mass is aⁿ((1 + z)ⁿ − 1): where a law is nearly one
    point, all rounding is relative to the rest of it. Wrapping round the window only adds mass.
    """
    depth = FOURIER_ROUNDING * (math.log2(size) + 1)
    logs, turns, relative = np.zeros((3, size // 2 + 1))
    origin, whole, rounding = 0, 0.0, 0.0
    for (term, count), moment in zip(terms, cumulants, strict=True):
        # a tiny mass may need a factor beyond the largest float, so half of it at a time;
        # a mass > 0 allows no factor above e^745
        half = np.exp(np.minimum((tilt * term.losses - moment) / 2, 373.0))
        rest = half * term.masses * half
        place = int(rest.argmax())
        atom, rest[place] = float(rest[place]), 0.0
        # |F̂ − F| <= depth · Σ|input|
        z = rfft(np.roll(_wrapped(rest, size), -place)) / atom
        error = (depth + 4 * EPS) * float(rest.sum()) / atom
        grown, turned, rounded = _logarithm(z, error)
        logs += count * grown
        turns += count * turned
        relative += count * rounded
        origin += count * (term.first + place)
        whole += count * math.log(atom)
        # each tilted mass is rounded relative to itself and its exponent, and so is their sum
        exponent = abs(tilt) * float(np.abs(term.losses[[0, -1]]).max())
        rounding += count * 8 * EPS * (2 + exponent + abs(moment) + abs(math.log(atom)))
    logs = np.minimum(logs, -whole)  # no transform of a law is above one
    heard = np.flatnonzero(logs + whole > SILENCE)
    spectrum = np.full(size // 2 + 1, complex(-math.exp(whole)))
    spectrum[heard] = _less_one(logs[heard], turns[heard], whole)
    upper = np.exp(logs[heard] + whole)
    # the product moves by at most upper · relative, in modulus and through the angle
    moved = 2 * float((upper * np.minimum(relative[heard], 1.0)).sum())
    moved += depth * float(np.abs(spectrum).sum())
    error = (2 * moved + size * math.exp(SILENCE)) / size
    entries = irfft(spectrum, size)
    entries[0] += math.exp(whole)
    start = (low - origin) % size
    scale = math.exp(2 * rounding)
    return np.roll(entries, -start)[:kept] * scale, error * scale * (1 + 1e-9)


def _logarithm(z: npt.NDArray[np.complex128], error: float) -> tuple[Array, Array, Array]:
    """Return ln(|1 + z| + error), the angle of 1 + z, and what both are off by.

    From ½ ln(1 + 2x + x² + y²) where z = x + iy is small, which keeps its relative precision.
    """
    modulus = np.abs(1 + z)
    squares = z.real * (2 + z.real) + z.imag * z.imag
    near = np.abs(squares) < 0.5
    with np.errstate(divide="ignore"):
        grown = np.log(modulus + error)
    grown[near] = np.log1p(squares[near]) / 2 + np.log1p(error / modulus[near])
    turned = np.angle(1 + z)
    size = np.where(near, np.abs(z), 1 + np.abs(turned))
    return grown, turned, error / np.maximum(modulus + error, NOTHING) + 16 * EPS * size


def _less_one(logs: Array, turns: Array, whole: float) -> npt.NDArray[np.complex128]:
    """e^whole (exp(logs + i·turns) − 1), without cancellation where both are small."""
    small = logs < 1.0
    real = np.exp(logs + whole) * np.cos(turns) - math.exp(whole)
    # e^x cos t − 1 = (e^x − 1) cos t − 2 sin²(t/2)
    x, t = logs[small], turns[small]
    real[small] = math.exp(whole) * (np.expm1(x) * np.cos(t) - 2 * np.sin(t / 2) ** 2)
    result: npt.NDArray[np.complex128] = real + 1j * np.exp(logs + whole) * np.sin(turns)
    return result


def _wrapped(weights: Array, size: int) -> Array:
    if weights.size <= size:
        return np.concatenate([weights, np.zeros(size - weights.size)])
    folded = np.bincount(np.arange(weights.size) % size, weights=weights, minlength=size)
    return folded.astype(np.float64)


def _window(total: Sum, share: float = 1.0) -> tuple[int, int]:
    lowest, highest = total.ends()
    step = total.terms[0][0].step
    if any(float(term.masses.sum()) < NOTHING for term, _ in total.terms):
        return lowest, lowest
    upper, lower = total.reach(UPPER_TAIL * share, 1), total.reach(LOWER_TAIL * share, -1)
    high = min(math.ceil(upper / step) + 1, highest)
    low = max(math.floor(lower / step) - 1, lowest)
    return min(low, high), high


def _log_moment(term: LossMasses, tilt: float) -> float:
    """ln Σ p_j exp(tilt ℓ_j), rounded up."""
    exponents = tilt * term.losses
    positive = term.masses > 0
    if not positive.any():
        return -math.inf
    shift = float(exponents[positive].max())
    with np.errstate(under="ignore"):
        moment = float((np.exp(np.minimum(exponents - shift, 0.0)) * term.masses).sum())
    return (shift + math.log(moment)) + 8 * EPS * (4 + float(np.abs(exponents).max()))


def _infinite(terms: Sequence[tuple[LossMasses, int]]) -> float:
    """(F + I)^n − F^n over all terms, for finite mass F and infinite mass I."""
    finite = math.fsum(n * math.log(max(float(t.masses.sum()), 1e-300)) for t, n in terms)
    grown = math.fsum(
        n * math.log1p(t.infinite / max(float(t.masses.sum()), 1e-300)) for t, n in terms
    )
    if finite + grown > 1:
        return 1.0
    if grown > 700:
        return math.exp(finite + grown)
    return math.exp(finite) * math.expm1(grown) * (1 + 1e-9)


def _range(part: Part, tail: float) -> float:
    low, high = loss_range(part.forward, part.backward, tail)
    return high - low
