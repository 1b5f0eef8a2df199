"""Composition of losses by tilted Fourier transforms, every error added to δ, and by moments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
from scipy.fft import irfft, next_fast_len, rfft
from scipy.optimize import minimize_scalar

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS
from tacit.accounting.curves.curve import LARGEST_LOG, Curve
from tacit.accounting.curves.discretisation import (
    ORDERS,
    ComposedPart,
    LossMasses,
    discretise,
    log_moments,
    loss_ranges,
    mean_loss,
)

# Nats between the losses of a lattice, before it is made coarser or finer by powers of two.
STEP = 1e-4
# Mass above the window of all releases together: it is counted in every δ, and is far below any
# that is asked for. What is below goes to the lowest loss, where no ε >= 0 sees it.
UPPER_TAIL, LOWER_TAIL = 1e-28, 1e-16
# Points of a lattice: what memory holds; of losses much shorter than their range; so few that all
# else is quick; and so many that nothing is gained by more.
MOST_POINTS, MOST_FINE = 2**21, 2**19
FEWEST_POINTS, ENOUGH_POINTS = 2**16, 2**17
# What all lattices together may add to ε: at most, and where a coarser lattice would do. The second
# is that of 4,000 releases at STEP and of 16,000 at its half, with room for rounding.
DRIFT, SMALL_DRIFT = 2e-5, 5.01e-6
# What they may add to the variance of the sum, relative to it.
SPREAD = 2.5e-4
# How many times finer than one lattice of a sum the next is, where that is coarse; points of a loss
# on each side of 0 there; and the mass at infinite loss of a lattice that says nothing.
REFINED, REFINED_POINTS, SPENT = 16, 2**16, 0.9
# A sum of so many lengths of one loss is convolved in groups that are shorter than it.
MANY_LENGTHS = 8
# Standard deviations in the range of a sum of many: 10 on either side leave 1e-23.
NORMAL_WIDTH = 20.0
# Points of a sum that is convolved at once; groups of 4, at most so often.
MOST_WHOLE, MOST_FOLDS = 2**18, 6
# Points of the lattice from which the range of the sum is sketched: of the narrowest loss, and of
# the widest. It is finer by 8 until it widens the sum by less than a 40th.
SKETCH_POINTS, MOST_SKETCHED, SKETCH_FINER, SKETCH_WIDTHS = 2**11, 2**16, 8, 40.0
# Upper tails for whose losses a tilt is best: a normal sum tilted by 2 to 7 standard deviations.
TILTED_TAILS = (1e-1, 1e-3, 1e-5, 1e-7, 1e-10)
# Decades of mass from one tilt to the next, beyond these; tilts nearer than this are one.
TILT_DECADES, CLOSE_TILTS = 3, 1.1
# A tilt is sought to a hundredth, e^±6 around that of a normal law of the same variance.
TILT_TOLERANCE, TILT_REACH = 0.01, 6.0
# Lattice points to one of a sketch.
COARSE = 32
# Of a mass or a product: below it digits are lost.
NOTHING, TINY = 1e-290, 1e-300
# Logarithm of a product of transforms that is left out, and added to the error.
SILENCE = -100.0
# e^373 squared is a float: a mass > 0 allows no factor beyond e^745.
LARGEST_ROOT = 373.0
# Units in the last place of an exponential, a product and a sum, beside the size of the exponent.
UNITS = 8
# Units in the last place of a quotient by the largest mass; of a logarithm and an angle of what is
# near 1, four functions in all.
QUOTIENT_UNITS, LOG_UNITS = 4, 16
# A fast Fourier transform of N numbers is off by this, times log₂ N and the sum of their sizes, at
# most: every input reaches an output through log₂ N butterflies, each of which multiplies it by
# 1 + δ with |δ| <= (1 + 4√2) 2⁻⁵³ (Higham 2002, Section 24.1), which is below 3.4 EPS.
FOURIER_ROUNDING = 4 * EPS
# More than the roundings of a few sums and products that have no digit to lose.
SLACK = 1e-9
# Parts of the upper tail that Chernoff's bound puts at infinite loss, of all releases together:
# each is tried.
CUTS = (UPPER_TAIL, 1e-13, 1e-10, 1e-7, 1e-5)
# A curve on a lattice is taken as it is where it would be no smaller than by this without rounding,
# and where what was cut off above, of all releases, is not seen.
HARDLY, CUT_TAIL = 0.02, 1e-26
# Of its logarithms and exponentials, as of a moment's; and of λ ε and of λ ln λ, relative: five and
# fifty units in the last place.
CHERNOFF_ROUNDING, EXPONENT_ROUNDING, LOG_ROUNDING = 1e-9, 1e-15, 1e-14


@dataclass(frozen=True, eq=False)
class LossSum:
    """The sum of independent losses on one lattice, and its cumulant generating function."""

    terms: Sequence[tuple[LossMasses, int]]

    def cumulants(self, tilt: float) -> tuple[tuple[float, ...], float]:
        """K = ln E exp(tilt · L) over finite losses, upper bounds: of each term, and Σ n K."""
        each = tuple(_log_moment(term, tilt) for term, _ in self.terms)
        return each, math.fsum(n * k for k, (_, n) in zip(each, self.terms, strict=True))

    def ends(self) -> tuple[int, int]:
        """Lowest and highest index of the sum, exactly."""
        low = sum(count * term.first for term, count in self.terms)
        width = sum(count * (term.masses.size - 1) for term, count in self.terms)
        return low, low + width

    @cached_property
    def sketch(self) -> tuple[tuple[Array, Array, int], ...]:
        """Losses and masses of each term, many lattice points to one: good for a choice only."""
        sketches = []
        for term, count in self.terms:
            # about 32 points to one, and no fewer than 32 groups
            group = max(1, min(COARSE, term.masses.size // COARSE))
            starts = np.arange(0, term.masses.size, group)
            masses = np.add.reduceat(term.masses, starts)
            some = masses > 0
            losses = np.add.reduceat(term.masses * term.losses, starts)[some] / masses[some]
            sketches.append((losses, masses[some], count))
        return tuple(sketches)

    def best_tilt(self, mass: float, sign: int) -> float:
        """The best tilt of Chernoff's bound for a tail of ``mass``, good for a choice only."""
        # the search starts at a normal sum's: of variance v it passes ℓ = √(2 v ln(1/mass)) with
        # probability ``mass``, at the tilt √(2 ln(1/mass)/v)
        needed = -math.log(mass)
        spread = 0.0
        for losses, masses, count in self.sketch:
            share = masses / masses.sum()
            spread += count * float((share * (losses - (share * losses).sum()) ** 2).sum())

        # P(S > ℓ) <= e^{K(θ) − θℓ}: (K(θ) − ln mass)/θ bounds the loss, and is least at the best θ
        def bound(log_tilt: float) -> float:
            tilt = math.exp(log_tilt)
            total = 0.0
            for losses, masses, count in self.sketch:
                # ln Σ p e^{θℓ} about its largest exponent, which must not overflow
                exponents = sign * tilt * losses
                shift = float(exponents.max())
                total += count * (
                    shift + math.log(float((np.exp(exponents - shift) * masses).sum()))
                )
            return (total + needed) / tilt

        step = self.terms[0][0].step
        guess = math.log(2 * needed / max(spread, step * step / 4)) / 2
        # no tilt is of use below ln(1/mass) over the whole range, or above ln(1/mass) over one step
        low, high = self.ends()
        widest = math.log(needed / (max(high - low, 1) * step))
        with np.errstate(under="ignore"):
            best = minimize_scalar(
                bound,
                bounds=(
                    min(guess - TILT_REACH, widest),
                    min(guess + TILT_REACH, math.log(needed / step)),
                ),
                method="bounded",
                options={"xatol": TILT_TOLERANCE},
            )
        return sign * math.exp(float(best.x))

    def reach(self, mass: float, sign: int, *, nearest: bool = True) -> float:
        """Return a loss beyond which at most ``mass`` lies, by Chernoff's bound at any tilt.

        Args:
            mass: beyond it.
            sign: 1 above, −1 below.
            nearest: whether a tilt that is far too large is made smaller. The sketch's is, where
                one mass of a loss swallows the rare ones beside it that a sum of many is made of.
        """
        tilt = self.best_tilt(mass, sign)
        reached = self._beyond(tilt, mass)
        while nearest and sign * (found := self._beyond(tilt / 2, mass)) < sign * reached:
            reached, tilt = found, tilt / 2
        return reached

    def _beyond(self, tilt: float, mass: float) -> float:
        """Return Chernoff's bound, (K(θ) − ln mass)/θ, rounded outwards."""
        return (self.cumulants(tilt)[1] - math.log(mass)) / tilt


def compose(parts: Sequence[ComposedPart]) -> tuple[LossMasses, ...]:
    """Return losses, rounded up: each curve is at least that of all the parts released together.

    The first are on a lattice of the whole range of the sum. A few heavy losses make that range
    wide and the lattice coarse, so that every loss is rounded up by much of it: then finer ones
    follow, which end earlier and put what lies beyond at infinite loss. A loss far above ε counts
    in δ(ε) as an infinite one does, up to a factor 1 − e^{ε−ℓ}.

    Args:
        parts: The same direction of each profile.

    Returns:
        The masses on lattices of step 1e-4 times a power of two, coarser or finer where the
        range of the sum or the size of one loss needs it; `least_curve` is that of all of them.

    Source: Koskela, Jälkö and Honkela (2020); Gopi, Lee and Wutschitz (2021).
    """
    # each part may lose its share of the tail
    releases = sum(part.count for part in parts)
    tail = UPPER_TAIL / releases
    step = lattice_step(parts, tail)
    bounds = [_by_groups([(part.on(step, tail), part.count) for part in parts])]
    # each release adds up to step²/8 to ε, which is little beside the deviation of a wide sum
    drift = max(DRIFT, SPREAD * math.sqrt(bounds[0].variance))
    while releases * step**2 > 8 * drift:
        step /= REFINED
        most = REFINED_POINTS * step
        finer = _by_groups([(part.on(step, tail, most), part.count) for part in parts])
        if finer.infinite > SPENT:
            break
        bounds.append(finer)
    return tuple(bounds)


def least_curve(bounds: Sequence[LossMasses]) -> Curve:
    """Return the least of several upper bounds of one curve, an upper bound as each is."""
    if len(bounds) == 1:
        return bounds[0].curve
    return partial(_least, tuple(bounds))


def _least(bounds: Sequence[LossMasses], epsilon: Array) -> Array:
    """The least of several upper bounds at each ε, an upper bound as each is."""
    return np.asarray(np.min([bound.curve(epsilon) for bound in bounds], axis=0))


def cap_by_moments(
    curve: Curve, parts: Sequence[ComposedPart], lattice: LossMasses | None = None
) -> Curve:
    """Return the smaller of a curve and Chernoff's bound of a composition, for ε >= 0, rounded up.

    δ(ε) <= p_∞ + min_λ exp(Σ n K(λ) − λε) λ^λ/(1 + λ)^{1 + λ}, the least over what part of the
    upper tail of one loss is counted in p_∞: a sum of rare large losses is the largest of them.

    Args:
        curve: an upper bound.
        parts: of which losses.
        lattice: what the curve is of: where it can hardly be off, no moment is computed.
    """
    return _Capped(curve, tuple(parts), lattice)


@dataclass(frozen=True, eq=False)
class _Capped:
    """The curve of ``cap_by_moments``, its moments computed when a point first needs them."""

    above: Curve
    parts: tuple[ComposedPart, ...]
    lattice: LossMasses | None

    def __call__(self, epsilon: Array) -> Array:
        """Return upper bounds at each ε, rounded up."""
        values = np.array(self.above(epsilon))
        some = (epsilon >= 0) & (epsilon < math.inf)
        some[some] = self._doubtful(epsilon[some], values[some])
        if some.any():
            values[some] = np.minimum(values[some], self._chernoff(epsilon[some]))
        return values

    def _doubtful(self, points: Array, values: Array) -> npt.NDArray[np.bool_]:
        """Whether the lattice may have added much to the curve, good for a choice only.

        n losses on a step h add up to n h²/8 to the mean and n h²/4 to the variance V of the sum,
        which moves a tail at ε by about ε n h²/(8 V).
        """
        lattice = self.lattice
        if lattice is None or lattice.variance <= 0.0:
            return np.ones(points.shape, dtype=np.bool_)
        moved = sum(part.count for part in self.parts) * lattice.step**2 / 8
        further = np.array(self.above(points + moved * (1.0 + points / lattice.variance)))
        seen = values > CUT_TAIL
        return np.asarray(seen & (further - CUT_TAIL < values * (1.0 - HARDLY)))

    def _chernoff(self, points: Array) -> Array:
        """Chernoff's bound at ε >= 0, rounded up."""
        bound = np.ones(points.shape)
        for orders, logs, infinite in self._bounds:
            # the least exponent ln c_λ + Σ n K(λ) − λε; λε is rounded down by what it rounds
            best = np.zeros(points.shape)
            for order, log in zip(orders, logs, strict=True):
                best = np.minimum(best, log - order * points * (1 - EXPONENT_ROUNDING))
            with np.errstate(under="ignore"):
                bound = np.minimum(bound, (np.exp(best) + infinite) * (1 + CHERNOFF_ROUNDING))
        return bound

    @cached_property
    def _bounds(self) -> tuple[tuple[Array, Array, float], ...]:
        """Of every cut: the useful orders λ, their exponents at ε = 0, and p_∞."""
        # each release may lose its share of a cut
        releases = sum(part.count for part in self.parts)
        tails = (*(cut / releases for cut in CUTS), UPPER_TAIL)
        moments = [log_moments(part.forward, part.backward, tails) for part in self.parts]
        # 1 − e^{−t} <= λ^λ (1 + λ)^{−1−λ} e^{λt} for every t > 0 and λ > 0: its logarithm
        start = np.log(ORDERS) * ORDERS - (1 + ORDERS) * np.log1p(ORDERS)
        start += CHERNOFF_ROUNDING + LOG_ROUNDING * ORDERS * np.log1p(ORDERS)
        bounds = []
        for of_cut in zip(*moments, strict=True):
            logs, infinite = start, 0.0
            # the moments of finite losses multiply; what was put at infinity adds up
            for part, (cumulants, lost) in zip(self.parts, of_cut, strict=True):
                logs = logs + part.count * cumulants
                infinite += part.count * lost
            useful = np.isfinite(logs)
            bounds.append((ORDERS[useful], logs[useful], infinite))
        return tuple(bounds)


def _by_groups(terms: Sequence[tuple[LossMasses, int]]) -> LossMasses:
    """Convolve, rounded up, in groups of 4^j first, each on a lattice 2^j times as coarse.

    n losses on a step h add n h²/4 to the variance at most, and n/4^j groups on a step 2^j h as
    much again: the lattice of a sum need not be as fine as one of its losses.
    """
    # the range of a normal sum of this variance, in lattice points
    longest = max(term.masses.size for term, _ in terms)
    points = NORMAL_WIDTH * math.sqrt(math.fsum(n * term.variance for term, n in terms))
    points /= terms[0][0].step
    # each fold leaves half of the points
    fold = min(math.ceil(math.log2(max(points / MOST_WHOLE, 1.0))), MOST_FOLDS)
    if fold < 1 or points < MANY_LENGTHS * longest:
        return convolve(terms)
    # n = q 4^j + r: q equal groups, which are convolved once, and r single losses
    groups: list[tuple[LossMasses, int]] = []
    for term, count in terms:
        whole, rest = divmod(count, 4**fold)
        for size, times in ((4**fold, whole), (rest, 1)):
            if size and times:
                # every group may be cut by its share of the tail
                group = convolve([(term, size)], 1.0 / times) if size > 1 else term
                groups.append((group.coarsen(2**fold), times))
    # the sum of the groups is as wide in nats on a lattice 2^j as coarse: fold again where needed
    return _by_groups(groups)


def lattice_step(parts: Sequence[ComposedPart], tail: float) -> float:
    """Return a step that suits the range of the sum and the size of one loss: a choice only."""
    ends = [loss_ranges(part.forward, part.backward, (tail,))[0] for part in parts]
    ranges = [high - low for low, high in ends]
    width = _sketched_width(parts, ranges, tail)
    points = width / STEP
    if points <= 0:
        return STEP
    releases = sum(part.count for part in parts)
    # a mass in the middle of a cell goes to both its ends: step²/4 more variance, and half of that
    # more mean, as E e^{−L} is kept; so n releases add up to n step²/8 to ε
    coarser = min(points / ENOUGH_POINTS, math.sqrt(8 * SMALL_DRIFT / releases) / STEP)
    # too wide for memory: coarser, whatever it costs
    if points > MOST_POINTS:
        power = math.ceil(math.log2(points / MOST_POINTS))
    # the drift is small and the points are many: coarser for the sake of speed
    elif coarser >= 2:
        power = math.floor(math.log2(coarser))
    else:
        # few points or much drift: finer, as far as memory goes
        finer = max(FEWEST_POINTS / points, STEP * math.sqrt(releases / (8 * DRIFT)), 1.0)
        power = -math.ceil(math.log2(min(finer, MOST_POINTS / points)))
    # n step²/4 more variance should be less than SPREAD of it; for small losses the variance is
    # twice the mean, and the mean is an integral over the curve
    mean = sum(part.count * mean_loss(part.forward, part.backward, tail) for part in parts)
    if mean > 0:
        # where groups are coarsened only one loss must fit on the fine lattice, else the whole sum
        longest = max(ranges) if width >= MANY_LENGTHS * max(ranges) else width
        finest = math.ceil(math.log2(longest / STEP / MOST_FINE))
        wanted = math.floor(math.log2(math.sqrt(8 * SPREAD * mean / releases) / STEP))
        power = min(power, max(wanted, finest))
    return float(STEP * 2.0**power)


def _sketched_width(parts: Sequence[ComposedPart], ranges: Sequence[float], tail: float) -> float:
    """The range of the sum in nats, from a coarse lattice: good for a choice only."""
    some = [width for width in ranges if width > 0]
    if not some:
        return 0.0
    # one lattice for the sketch of all, as fine as the narrowest of them
    step = max(min(some) / SKETCH_POINTS, max(some) / MOST_SKETCHED)
    releases = sum(part.count for part in parts)
    while True:
        sketch = LossSum([(discretise(p.forward, p.backward, step, tail), p.count) for p in parts])
        # wide where a tilt is poor: a coarse lattice of the whole sum, and finer ones of its middle
        low, high = _window(sketch, nearest=False)
        width = max((high - low) * step, *some)
        # a sketch too coarse for so many releases widens their sum
        # the lattice adds releases · step²/4 to the variance of the sum
        settled = releases * step**2 <= min(width, width**2 / SKETCH_WIDTHS) / 8
        if settled or max(some) / step > FEWEST_POINTS:
            return width
        step /= SKETCH_FINER


def convolve(terms: Sequence[tuple[LossMasses, int]], share: float = 1.0) -> LossMasses:
    """Return the distribution of the sum of independent losses, each mass rounded up.

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
    total = LossSum(terms)
    step = terms[0][0].step
    # no finite loss to speak of
    if any(float(term.masses.sum()) < NOTHING for term, _ in terms):
        return LossMasses(step, total.ends()[0], np.zeros(1), 1.0)
    upper, lower = UPPER_TAIL * share, LOWER_TAIL * share
    low, high = _window(total, share)
    # any length that holds the window: what is beyond wraps round into it, which only adds
    size = next_fast_len(high - low + 1, real=True)
    losses = (low + np.arange(high - low + 1)) * step
    # P(S = ℓ) = M(θ) e^{−θℓ} · (tilted mass): the error of a tilted mass is untilted with it, and
    # is small where the tilt expects the loss. Every tilt bounds every mass from above; the least
    # is kept
    masses = np.full(losses.shape, math.inf)
    for tilt in _tilts(total, share):
        cumulants, cumulant = total.cumulants(tilt)
        entries, error = convolve_tilted(terms, tilt, cumulants, low, size, losses.size)
        with np.errstate(under="ignore", over="ignore"):
            # entries below zero are rounding
            bound = (np.maximum(entries, 0.0) + error) * np.exp(cumulant - tilt * losses)
        # rounding of the exponent of the untilting
        exponent = abs(cumulant) + tilt * float(np.abs(losses).max())
        masses = np.minimum(masses, bound * (1 + UNITS * EPS * (1 + exponent)))
    # what Chernoff leaves outside the window: above, at infinite loss; below, at the lowest
    lowest, highest = total.ends()
    masses[0] += lower if low > lowest else 0.0
    cut = upper if high < highest else 0.0
    return LossMasses(step, low, masses, _infinite(terms) + cut)


def _tilts(total: LossSum, share: float) -> list[float]:
    """Return tilts from 0 to that of the rarest loss that matters, good for a choice only.

    The tilts of Chernoff's bound for the masses of `TILTED_TAILS`. Of a normal sum they lie apart;
    of one whose tail a single release makes they nearly coincide, and the losses between the
    middle and that tail are covered by halves of the least of them.
    """
    # what is rare in one of many such sums is not rare in all of them
    rare = np.arange(-TILT_DECADES, math.log10(share), -TILT_DECADES)
    tails = [*TILTED_TAILS, *(TILTED_TAILS[-1] * 10.0**rare)]
    apart: list[float] = []
    for tilt in sorted(total.best_tilt(mass, 1) for mass in tails):
        if not apart or tilt > CLOSE_TILTS * apart[-1]:
            apart.append(tilt)
    # one release makes the tail: its tilts coincide, and what lies between is covered by halves
    halves = apart[0] * 0.5 ** np.arange(1, len(TILTED_TAILS) - len(apart) + 1)
    return [0.0, *halves.tolist(), *apart]


def convolve_tilted(
    terms: Sequence[tuple[LossMasses, int]],
    tilt: float,
    cumulants: Sequence[float],
    low: int,
    size: int,
    kept: int,
) -> tuple[Array, float]:
    """Return the convolution of the tilted laws, and what each entry is off by at most.

    With a the largest mass of a law and F = a(1 + z) its transform about the place of a, the
    transform of the sum of n less its largest mass is aⁿ((1 + z)ⁿ − 1): where a law is nearly one
    point, all rounding is relative to the rest of it. Wrapping round the window only adds mass.
    """
    # of log₂ N stages, and one for the division by the atom
    depth = FOURIER_ROUNDING * (math.log2(size) + 1)
    # ln|1 + z|, its angle, and how far both are off, Σ over the releases
    logs, turns, relative = np.zeros((3, size // 2 + 1))
    origin, whole, rounding = 0, 0.0, 0.0
    for (term, count), moment in zip(terms, cumulants, strict=True):
        # a tiny mass may need a factor beyond the largest float, so half of it at a time;
        # a mass > 0 allows no factor above e^745
        half = np.exp(np.minimum((tilt * term.losses - moment) / 2, LARGEST_ROOT))
        rest = half * term.masses * half
        # the largest mass a is taken out, and its place is the origin: F = a e^{iωplace}(1 + z)
        place = int(rest.argmax())
        atom, rest[place] = float(rest[place]), 0.0
        # of the transform, |F̂ − F| <= depth · Σ|input|, over a
        # folded onto ``size`` points, as their transform would
        folded = np.bincount(np.arange(rest.size) % size, rest, size)
        z = rfft(np.roll(folded, -place)) / atom
        error = (depth + QUOTIENT_UNITS * EPS) * float(rest.sum()) / atom
        # Π F^n: logarithms, angles and relative errors add up
        grown, turned, rounded = _logarithm(z, error)
        logs += count * grown
        turns += count * turned
        relative += count * rounded
        origin += count * (term.first + place)
        whole += count * math.log(atom)
        # each tilted mass is rounded relative to itself and its exponent, and so is their sum
        exponent = abs(tilt) * float(np.abs(term.losses[[0, -1]]).max())
        rounding += count * UNITS * EPS * (2 + exponent + abs(moment) + abs(math.log(atom)))
    logs = np.minimum(logs, -whole)  # no transform of a law is above one
    # products below e^−100 are left out: they are added to the error of every entry
    heard = np.flatnonzero(logs + whole > SILENCE)
    # aⁿ((1 + z)ⁿ − 1): what is left out is −aⁿ, the product being nothing
    spectrum = np.full(size // 2 + 1, complex(-math.exp(whole)))
    spectrum[heard] = _less_one(logs[heard], turns[heard], whole)
    upper = np.exp(logs[heard] + whole)
    # the product moves by at most upper · relative, in modulus and through the angle
    moved = 2 * float((upper * np.minimum(relative[heard], 1.0)).sum())
    # the inverse transform
    moved += depth * float(np.abs(spectrum).sum())
    # half of the spectrum stands for all of it: an entry is off by the mean over all of it
    error = (2 * moved + size * math.exp(SILENCE)) / size
    # the atom's own mass aⁿ at the origin, exactly
    entries = irfft(spectrum, size)
    entries[0] += math.exp(whole)
    # from the window's lowest loss on; raised by the rounding of the inputs
    start = (low - origin) % size
    scale = math.exp(2 * rounding)
    return np.roll(entries, -start)[:kept] * scale, error * scale * (1 + SLACK)


def _logarithm(z: npt.NDArray[np.complex128], error: float) -> tuple[Array, Array, Array]:
    """Return ln(|1 + z| + error), rounded up, the angle of 1 + z, and what both are off by at most.

    From ½ ln(1 + 2x + x² + y²) where z = x + iy is small, which keeps its relative precision.
    """
    modulus = np.abs(1 + z)
    # |1 + z|² − 1 without the cancellation of the 1
    squares = z.real * (2 + z.real) + z.imag * z.imag
    near = np.abs(squares) < 0.5
    with np.errstate(divide="ignore"):
        grown = np.log(modulus + error)
    grown[near] = np.log1p(squares[near]) / 2 + np.log1p(error / modulus[near])
    turned = np.angle(1 + z)
    # near 1 logarithm and angle are of the size of z and keep its relative precision
    size = np.where(near, np.abs(z), 1 + np.abs(turned))
    return grown, turned, error / np.maximum(modulus + error, NOTHING) + LOG_UNITS * EPS * size


def _less_one(logs: Array, turns: Array, whole: float) -> npt.NDArray[np.complex128]:
    """e^whole (exp(logs + i·turns) − 1), to rounding, without cancellation where both are small."""
    small = logs < 1.0
    real = np.exp(logs + whole) * np.cos(turns) - math.exp(whole)
    # e^x cos t − 1 = (e^x − 1) cos t − 2 sin²(t/2)
    x, t = logs[small], turns[small]
    real[small] = math.exp(whole) * (np.expm1(x) * np.cos(t) - 2 * np.sin(t / 2) ** 2)
    result: npt.NDArray[np.complex128] = real + 1j * np.exp(logs + whole) * np.sin(turns)
    return result


def _window(total: LossSum, share: float = 1.0, *, nearest: bool = True) -> tuple[int, int]:
    """Return the lowest and the highest index, rounded outwards, of the sum but for its tails."""
    lowest, highest = total.ends()
    step = total.terms[0][0].step
    if any(float(term.masses.sum()) < NOTHING for term, _ in total.terms):
        return lowest, lowest
    # one step more on either side for the rounding of the bound
    upper = total.reach(UPPER_TAIL * share, 1, nearest=nearest)
    lower = total.reach(LOWER_TAIL * share, -1, nearest=nearest)
    high = min(math.ceil(upper / step) + 1, highest)
    low = max(math.floor(lower / step) - 1, lowest)
    return min(low, high), high


def _log_moment(term: LossMasses, tilt: float) -> float:
    """ln Σ p_j exp(tilt ℓ_j), rounded up."""
    exponents = tilt * term.losses
    positive = term.masses > 0
    if not positive.any():
        return -math.inf
    # about the largest exponent, so that nothing overflows; a few units for each exponential
    shift = float(exponents[positive].max())
    with np.errstate(under="ignore"):
        moment = float((np.exp(np.minimum(exponents - shift, 0.0)) * term.masses).sum())
    return (shift + math.log(moment)) + UNITS * EPS * (4 + float(np.abs(exponents).max()))


def _infinite(terms: Sequence[tuple[LossMasses, int]]) -> float:
    """(F + I)^n − F^n over all terms, finite mass F and infinite mass I, rounded up."""
    # F^n ((1 + I/F)^n − 1) in logarithms: the difference of two powers near 1 would cancel
    finite = math.fsum(n * math.log(max(float(t.masses.sum()), TINY)) for t, n in terms)
    grown = math.fsum(
        n * math.log1p(t.infinite / max(float(t.masses.sum()), TINY)) for t, n in terms
    )
    if finite + grown > 1:
        return 1.0
    if grown > LARGEST_LOG:
        return math.exp(finite + grown)
    return math.exp(finite) * math.expm1(grown) * (1 + SLACK)
