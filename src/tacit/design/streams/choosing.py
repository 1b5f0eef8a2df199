"""Choose the factor whose noise does least to what is trained, at a given sensitivity."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Annotated, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np

from tacit._ground.checks import Array, integer
from tacit._ground.values import Count, Within, value
from tacit.design.base import Design
from tacit.design.listed.solver import worst_case
from tacit.design.streams.factor import StepFactor, repeated
from tacit.design.streams.workload import PrefixSums

# Steps over which a factor is chosen where rates stay, and where they fall, in T² products; a
# longer run takes the factor of so many: sound, and a little worse.
CHOSEN_OVER, CHOSEN_FALLING = 8192, 1024
# What the logarithm of an energy that is no number counts as.
WORST = 1e6
# Decays stay so far below 1, where a buffer would never forget.
FORGETS = 1e-6


# Takes C off a series.
Division: TypeAlias = Callable[[Array], Array]


class Participation(NamedTuple):
    """In which steps a record may be.

    Attributes:
        steps: T.
        apart: steps between two of them.
        times: how many at most.
    """

    steps: int
    apart: int
    times: int = 1


@value
class StepNoise(ABC):
    """How the noise of steps is tied together.

    Args:
        momentum: β of the optimizer, 0 without.
        decay: how the learning rate falls to 0 over all steps: none, linear or cosine.
    """

    word: ClassVar[str]

    momentum: Annotated[float, Within(0, 1, "[)")] = 0.0
    decay: Literal["none", "linear", "cosine"] = "none"

    @property
    def workload(self) -> PrefixSums:
        """What the optimizer makes of noise."""
        return PrefixSums(momentum=self.momentum, decay=self.decay)

    def factor(self, among: Participation) -> StepFactor:
        """Return the factor of least mean variance over all iterates, its columns of norm 1.

        ``min ‖A C⁻¹‖_F · sens(C)``, a choice on public numbers alone: what is certified is the
        sensitivity of what was chosen, whatever its error.

        Args:
            among: in which steps a record may be.
        """
        over = min(among.steps, CHOSEN_OVER if self.decay == "none" else CHOSEN_FALLING)
        short = among._replace(steps=over, times=min(among.times, -(-over // among.apart)))
        found = self._chosen(short)
        # columns of norm 1: one participation moves C G by what its gradient is long
        norm = found.sensitivity(among.steps)
        return StepFactor(
            bands=tuple(one / norm for one in found.bands),
            shares=tuple(one / norm for one in found.shares),
            decays=found.decays,
        )

    @abstractmethod
    def _chosen(self, among: Participation) -> StepFactor:
        """Return the best factor of this shape."""

    def _log_energy(
        self, column: Array, division: Division, among: Participation
    ) -> tuple[float, Array]:
        """Return ``ln(‖A C⁻¹‖²_F sens²(C))``, and its gradient in the column c of C."""
        from scipy.signal import fftconvolve

        steps = among.steps
        # of bands that explode the energy is no number: a choice among others is made
        with np.errstate(over="ignore", invalid="ignore"):
            # r = m/c, the series that A's momentum part is with C taken off
            response = division(self.workload.impulse(steps))
            energy, pulled = self.workload.energy(response)
            # dr = −(r ∗ dc)/c: h solves Cᵀ h = gradient, and dE/dc_i = −Σ_t h_t r_{t−i}
            held = division(pulled[::-1])[::-1]
            slope = -fftconvolve(held, response[::-1])[steps - 1 :]
        if not (np.isfinite(energy) and np.isfinite(slope).all()):
            return WORST, np.zeros(steps)
        # sens² = ‖Σ_e c shifted by e·apart‖²
        total = repeated(column, among.apart, among.times)
        rise = 2.0 * repeated(total[::-1], among.apart, among.times)[::-1]
        squared = float(total @ total)
        return float(np.log(energy) + np.log(squared)), slope / energy + rise / squared


@value
class Banded(StepNoise):
    """Noise that takes back that of the b − 1 steps before: a banded Toeplitz C.

    Columns b steps apart do not meet, so that participations so far apart cost as independent ones
    do. b − 1 copies of what is trained are kept, in float64.

    Args:
        bands: b, steps that a gradient is seen in.
        momentum: β of the optimizer, 0 without.
        decay: how the learning rate falls to 0 over all steps: none, linear or cosine.

    Example:
        >>> factor = Banded(bands=4).factor(Participation(steps=100, apart=100))
        >>> one = StepFactor(bands=(1.0,))
        >>> saved = factor.variance(PrefixSums(), 100) / one.variance(PrefixSums(), 100)
        >>> len(factor.bands), factor.sensitivity(100) <= 1.0 + 1e-8, round(saved**0.5, 2)
        (4, True, 0.55)

    Source: Choquette-Choo et al. (2023); McKenna (2024), "Scaling up the Banded Matrix
        Factorization Mechanism for Differentially Private ML", for Toeplitz bands.
    """

    word: ClassVar[str] = "banded"

    bands: Count = 16

    def _chosen(self, among: Participation) -> StepFactor:
        from scipy.optimize import minimize
        from scipy.signal import lfilter

        count = min(self.bands, among.steps)
        # the root of A where it has no end: (1 − x)^−½ (1 − βx)^−½, cut off
        start = root_of(self.momentum, count)

        def objective(free: Array) -> tuple[float, Array]:
            column = np.zeros(among.steps)
            column[:count] = bands = [1.0, *free]
            found, slope = self._log_energy(column, partial(lfilter, [1.0], bands), among)
            return found, slope[1:count]

        if count == 1:
            return StepFactor(bands=(1.0,))
        best = minimize(
            objective, start[1:], jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * (count - 1)
        )
        return StepFactor(bands=(1.0, *best.x.tolist()))


@value
class Buffered(StepNoise):
    """Noise that takes back all that was before, out of d buffers: a buffered linear Toeplitz C.

    Each buffer keeps a geometric sum of the noise that was told. For one pass over the records, or
    few: columns never end, and participations add up.

    Args:
        buffers: d, copies of what is trained that are kept, in float64.
        momentum: β of the optimizer, 0 without.
        decay: how the learning rate falls to 0 over all steps: none, linear or cosine.

    Example:
        >>> factor = Buffered(buffers=3).factor(Participation(steps=100, apart=100))
        >>> one = StepFactor(bands=(1.0,))
        >>> saved = factor.variance(PrefixSums(), 100) / one.variance(PrefixSums(), 100)
        >>> round(saved**0.5, 2)
        0.33

    Source: Dvijotham et al. (2024); McMahan et al. (2024), "A Hassle-free Algorithm for Strong
        Differential Privacy in Federated Learning Systems", for several participations.
    """

    word: ClassVar[str] = "buffered"

    buffers: Annotated[int, Within(1, 16, "[]")] = 4

    def _chosen(self, among: Participation) -> StepFactor:
        from scipy.optimize import minimize

        steps, places = among.steps, np.arange(among.steps - 1)

        def objective(free: Array) -> tuple[float, Array]:
            weights, left = np.exp(free.reshape(2, -1))
            powers = (1.0 - left)[:, None] ** places
            column = np.concatenate([[1.0], weights @ powers])
            division = partial(_divided, weights, 1.0 - left)
            found, slope = self._log_energy(column, division, among)
            # dc_i = w a^{i−1} d ln w + w (i − 1) a^{i−2} da, a = 1 − e^u, da = −(1 − a) du
            lowered = np.zeros_like(powers)
            lowered[:, 1:] = powers[:, :-1] * places[1:]
            by_decay = -weights * left * (lowered @ slope[1:])
            return found, np.concatenate([weights * (powers @ slope[1:]), by_decay])

        def improved(start: Array) -> tuple[float, Array]:
            count = start.size // 2
            limits = [(-30.0, 0.0)] * count + [(np.log(FORGETS), -1e-9)] * count
            best = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", bounds=limits)
            return float(best.fun), best.x

        # one buffer more at a time, beside those there are: from a step's length to that of all
        spans = np.geomspace(2.0, max(steps, 4.0), 4)
        held = np.zeros((2, 0))
        for _ in range(self.buffers):
            starts = [np.column_stack([held, [np.log(0.05), -np.log(span)]]) for span in spans]
            held = min(map(improved, starts), key=lambda one: one[0])[1].reshape(2, -1)
        weights, left = np.exp(held)
        return StepFactor(
            bands=(1.0,), shares=tuple(weights.tolist()), decays=tuple((1.0 - left).tolist())
        )


AnyStepNoise: TypeAlias = Banded | Buffered


def _divided(weights: Array, decays: Array, series: Array) -> Array:
    """Return x/c, c = 1 + Σ w_j x/(1 − a_j x) as a quotient of polynomials; for a choice only."""
    from scipy.signal import lfilter

    # D = Π (1 − a_j x), N = D + Σ w_j x Π_{k ≠ j} (1 − a_k x)
    below = np.poly(decays)
    above = below.copy()
    for place, weight in enumerate(weights):
        above[1:] += weight * np.poly(np.delete(decays, place))
    found: Array = lfilter(below, above, series)
    return found


def root_of(momentum: float, count: int) -> Array:
    """Return the first coefficients of ``(1 − x)^−½ (1 − βx)^−½``, to rounding."""
    places = np.arange(1, count)
    # (−1)^i binom(−½, i)
    ones = np.concatenate([[1.0], np.cumprod((2 * places - 1) / (2 * places))])
    powers = ones * momentum ** np.arange(count)
    product: Array = np.convolve(ones, powers)[:count]
    return product


def least_error(workload: PrefixSums, steps: int) -> Design:
    """Return the best factorisation there is for one participation, by `worst_case`.

    ``min ‖A C⁻¹‖²_F : ‖C e_s‖ <= 1`` over all C is the least noise ``Σ = A (CᵀC)⁻¹ Aᵀ`` under which
    no column of A is at a distance above 1: the design of differences ``A e_s``. Its ``cost`` is
    the energy of the noise in all iterates, its ``gap`` how far below the optimum may lie.

    Args:
        workload: A.
        steps: T; memory is O(T²), time some seconds at 2,000.

    Example:
        >>> best = least_error(PrefixSums(), 100)
        >>> round((best.cost / 100) ** 0.5, 4), best.gap < 1e-6
        (2.2355, True)

    Source: Li et al. (2015), the matrix mechanism; dsi, Theorem 3.3.
    """
    count = integer("steps", steps, minimum=1)
    return worst_case(workload.matrix(count).T, 1.0)
