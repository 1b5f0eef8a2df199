"""Which records a step has: how they are drawn, and what noisy steps on them certify."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias

import numpy as np
from scipy import stats

from tacit._ground.checks import Array
from tacit._ground.reprs import shown
from tacit._ground.values import Count, value
from tacit.accounting import PrivacyProfile, gaussian, profile_from_curves, random_allocation
from tacit.accounting import subsampled_gaussian as subsampled
from tacit.design import Participation, StepFactor
from tacit.gradients.randomness import StepRandomness
from tacit.gradients.steps import Schedule
from tacit.guarantees.adjacency import Adjacency

if TYPE_CHECKING:
    from torch import Tensor

# A tail of a binomial law and a sum with it are brought above the exact ones by this share.
UP = 1.0 + 1e-9
# Where the least of a curve's bounds is looked for.
GRID = np.linspace(0.0, 60.0, 241)


class SampledSteps(NamedTuple):
    """The steps that units, records or persons, are drawn for.

    Attributes:
        schedule: q, all steps and what neighbours are.
        epochs: how many passes they make.
        units: n, where it is public; None where q was declared.
        factor: what ties the noise of steps together; None where each has its own.
    """

    schedule: Schedule
    epochs: int
    units: int | None
    factor: StepFactor | None = None

    @property
    def each(self) -> int:
        """Steps of one epoch."""
        return -(-self.schedule.steps // self.epochs)


class Places(NamedTuple):
    """What one process draws from.

    Attributes:
        total: its units.
        batch: units of a step where that is fixed.
    """

    total: int
    batch: int


class StepSampling(ABC):
    """How the units of a step are drawn; its account is of that law and of no other."""

    # whether the number of units has to be public
    counted: ClassVar[bool] = True
    # whether every process may draw of its own part alone
    apart: ClassVar[bool] = True

    @abstractmethod
    def profile(self, noise_multiplier: float, steps: SampledSteps) -> PrivacyProfile:
        """Return what sums of units clipped to 1, with this noise each, certify; rounded up."""

    @abstractmethod
    def drawn(
        self, steps: range, places: Places, work: SampledSteps, coins: StepRandomness
    ) -> list[Tensor]:
        """Return the places of the units of every step.

        Args:
            steps: of one epoch.
            places: of the units of this process.
            work: all steps.
            coins: what draws.
        """

    def participation(self, steps: SampledSteps) -> Participation:
        """Return in which steps a unit may be, where the noise of steps is tied together.

        Raises:
            ValueError: there is no account of such noise for this law here.
        """
        del steps
        raise ValueError(
            "sampling: expected FixedOrder(shuffled=False) or CyclicPoisson(classes=…) beside "
            "noise that is tied together across steps, whose account is proven for these, got "
            f"{shown(self)}"
        )

    def check(self, adjacency: Adjacency, *, counted: bool, processes: int) -> None:
        """Refuse what this law is not defined for.

        Raises:
            ValueError: no public number of units, or processes that would have to draw together.
        """
        name = type(self).__name__
        if self.counted and not counted:
            raise ValueError(f"sampling_rate: expected none beside {name}, whose steps n sets")
        if processes > 1 and not self.apart:
            raise ValueError(f"sampling: expected one process for {name}, got {processes}")


@value
class Poisson(StepSampling):
    """Every unit is in every step by a coin of its own, of probability q."""

    counted: ClassVar[bool] = False

    def profile(self, noise_multiplier: float, steps: SampledSteps) -> PrivacyProfile:
        """Return the profile of the Gaussian mechanism on Poisson samples."""
        return _poisson(noise_multiplier, steps.schedule)

    def drawn(
        self, steps: range, places: Places, work: SampledSteps, coins: StepRandomness
    ) -> list[Tensor]:
        """Return the places whose coins say so, of every step."""
        rate = work.schedule.sampling_rate
        return [coins.sample(step, places.total, rate) for step in steps]


@value
class TruncatedPoisson(StepSampling):
    """Coins as of `Poisson`; of a step that drew more than so many, that many stay at random.

    The law of all T steps is within ``τ = T P[Bin(n, q) > L]`` of that without the limit in total
    variation, n of the larger neighbour: ``δ(ε) <= δ_Poisson(ε) + τ (1 + e^ε)``.

    Args:
        largest: L, units of a step at most.

    Example:
        >>> steps = SampledSteps(Schedule(sampling_rate=0.01, steps=100, dims=(1,)), 1, 10_000)
        >>> limited = TruncatedPoisson(largest=180).profile(1.0, steps)
        >>> free = Poisson().profile(1.0, steps)
        >>> round(limited.epsilon(1e-5) / free.epsilon(1e-5), 4)
        1.0

    Source: Chua et al. (2024), Theorem 3.3, "Scalable DP-SGD".
    """

    apart: ClassVar[bool] = False

    largest: Count

    def profile(self, noise_multiplier: float, steps: SampledSteps) -> PrivacyProfile:
        """Return the profile of `Poisson`, raised by how often the limit is reached."""
        base = _poisson(noise_multiplier, steps.schedule)
        assert steps.units is not None
        # of two neighbours the larger has one unit more than the loader may have
        more = 1 if steps.schedule.adjacency is Adjacency.ADD_REMOVE else 0
        tail = stats.binom.sf(self.largest, steps.units + more, steps.schedule.sampling_rate)
        # the union over all steps
        beyond = min(float(tail) * UP * steps.schedule.steps * UP, 1.0)
        if beyond == 0.0 and self.largest < steps.units + more:
            beyond = float(np.finfo(np.float64).tiny)
        return _raised(base, beyond)

    def drawn(
        self, steps: range, places: Places, work: SampledSteps, coins: StepRandomness
    ) -> list[Tensor]:
        """Return the places whose coins say so, L of them at most."""
        every = BY_COINS.drawn(steps, places, work, coins)
        return [coins.some(step, one, self.largest) for step, one in zip(steps, every, strict=True)]


@value
class RandomAllocation(StepSampling):
    """Every unit draws one of the steps of an epoch, anew in each: balls in bins.

    Example:
        >>> steps = SampledSteps(Schedule(sampling_rate=0.02, steps=500, dims=(1,)), 10, 1000)
        >>> round(RandomAllocation().profile(1.0, steps).epsilon(1e-5), 2)
        2.53

    Source: Chua et al. (2025), "Balls-and-Bins Sampling for DP-SGD"; Feldman and Shenfeld (2025).
    """

    def profile(self, noise_multiplier: float, steps: SampledSteps) -> PrivacyProfile:
        """Return the profile of one participation in each epoch, at a step that stays secret."""
        return random_allocation(
            noise_multiplier,
            steps=steps.each,
            epochs=steps.epochs,
            neighbours=steps.schedule.adjacency,
        )

    def drawn(
        self, steps: range, places: Places, work: SampledSteps, coins: StepRandomness
    ) -> list[Tensor]:
        """Return the units that drew each step."""
        import torch

        # of an epoch that is taken up the last steps are asked for: its draw is the same
        chosen = coins.epoch(steps[0] // work.each).integers(work.each, size=places.total)
        return [torch.from_numpy(np.flatnonzero(chosen == step % work.each)) for step in steps]


@value
class FixedOrder(StepSampling):
    """Batches of a fixed size, one after the other: every unit is in one step of an epoch.

    Nothing is counted on which unit is in which step: ``μ = 2 √E/s`` where one is replaced. Where
    one is added every later batch is another, so that neighbours have to be of one size.

    Args:
        shuffled: whether the order is drawn anew in each epoch.

    Example:
        >>> from tacit.guarantees.adjacency import Adjacency
        >>> one = Schedule(
        ...     sampling_rate=0.02, steps=500, dims=(1,), adjacency=Adjacency.REPLACE
        ... )
        >>> round(FixedOrder().profile(10.0, SampledSteps(one, 10, 1000)).epsilon(1e-5), 2)
        2.59
    """

    shuffled: bool = True

    def check(self, adjacency: Adjacency, *, counted: bool, processes: int) -> None:
        """Refuse neighbours of different sizes, too."""
        super().check(adjacency, counted=counted, processes=processes)
        if adjacency is not Adjacency.REPLACE:
            raise ValueError(
                'promise: expected adjacency="replace" beside FixedOrder, for one record more '
                "would move every later batch, got add-remove"
            )

    def profile(self, noise_multiplier: float, steps: SampledSteps) -> PrivacyProfile:
        """Return the profile of one participation in each epoch, at a step that is known."""
        if steps.factor is not None:
            among = self.participation(steps)
            # C G moves by sens(C) at most where one record's gradients are no longer than 1
            moved = steps.factor.sensitivity(among.steps, apart=among.apart, times=among.times)
            whole = gaussian(steps.schedule.reach * moved, noise_multiplier)
        else:
            whole = gaussian(steps.schedule.reach, noise_multiplier) * steps.epochs
        return replace(whole, adjacency=steps.schedule.adjacency.sentence())

    def participation(self, steps: SampledSteps) -> Participation:
        """Return the step of each epoch that a unit is in: the same one in all of them."""
        if self.shuffled and steps.epochs > 1:
            return super().participation(steps)
        return Participation(steps.schedule.steps, steps.each, steps.epochs)

    def drawn(
        self, steps: range, places: Places, work: SampledSteps, coins: StepRandomness
    ) -> list[Tensor]:
        """Return the units at the places of each step."""
        import torch

        order = np.arange(places.total)
        if self.shuffled:
            order = coins.epoch(steps[0] // work.each).permutation(places.total)
        starts = [(step % work.each) * places.batch for step in steps]
        return [torch.from_numpy(order[start : start + places.batch]) for start in starts]


@value
class CyclicPoisson(StepSampling):
    """Every unit draws one of k classes, once; class t mod k is drawn from in step t, by coins.

    In its own steps a unit is drawn with probability k q, so that as many are expected in a step as
    by `Poisson`. Under a factor C of at most k bands, with columns of norm 1, a unit's steps are
    seen in noise that is independent: what is told of it is ⌈T/k⌉ Poisson samples of rate k q. The
    class is a coin of the unit alone, so that one unit more moves no other.

    Args:
        classes: k, no less than the bands of the noise, and no more than 1/q.

    Example:
        >>> one = Schedule(sampling_rate=0.01, steps=400, dims=(1,))
        >>> steps = SampledSteps(one, 4, 1000)
        >>> round(CyclicPoisson(classes=4).profile(1.0, steps).epsilon(1e-5), 2)
        2.81

    Source: Choquette-Choo et al. (2023), "(Amplified) Banded Matrix Factorization", Theorem 4.
    """

    counted: ClassVar[bool] = False

    classes: Count

    def profile(self, noise_multiplier: float, steps: SampledSteps) -> PrivacyProfile:
        """Return the profile of a unit in the class that has most steps."""
        among, schedule = self.participation(steps), steps.schedule
        # of columns that do not meet each is seen alone, in noise of s over its norm
        norm = 1.0 if steps.factor is None else steps.factor.sensitivity(among.steps)
        rate = self._rate(schedule)
        return subsampled(rate, noise_multiplier / norm, among.times, schedule.adjacency)

    def participation(self, steps: SampledSteps) -> Participation:
        """Return every step of one class, k steps apart.

        Raises:
            ValueError: the noise has buffers, or more bands than there are classes.
        """
        total, factor = steps.schedule.steps, steps.factor
        if factor is not None and (factor.reach is None or factor.reach > self.classes):
            raise ValueError(
                f"sampling: expected Banded noise of at most {self.classes} bands beside "
                f"{shown(self)}, got a factor of {factor.reach or 'endless'} bands"
            )
        return Participation(total, self.classes, -(-total // self.classes))

    def drawn(
        self, steps: range, places: Places, work: SampledSteps, coins: StepRandomness
    ) -> list[Tensor]:
        """Return the units of each step's class whose coins say so."""
        import torch

        # the same classes in every epoch: drawn by the key of the run
        own = torch.from_numpy(coins.classes(places.total, self.classes))
        rate, found = self._rate(work.schedule), []
        for step in steps:
            members = torch.nonzero(own == step % self.classes)[:, 0]
            found.append(members[coins.sample(step, len(members), rate)])
        return found

    def _rate(self, schedule: Schedule) -> float:
        """Return k q, the probability of a unit in a step of its class, rounded up.

        Raises:
            ValueError: it is above 1.
        """
        rate = self.classes * schedule.sampling_rate
        if rate > 1.0 + 1e-12:
            raise ValueError(
                f"classes: expected at most {int(1.0 / schedule.sampling_rate)}, the records over "
                f"those of a step, got {self.classes}"
            )
        return min(rate, 1.0)


AnySampling: TypeAlias = Poisson | TruncatedPoisson | RandomAllocation | FixedOrder | CyclicPoisson
BY_COINS = Poisson()


@lru_cache(maxsize=4)
def _poisson(noise_multiplier: float, schedule: Schedule) -> PrivacyProfile:
    # T Gaussian mechanisms of deviation s on Poisson samples, composed and rounded up
    return subsampled(schedule.sampling_rate, noise_multiplier, schedule.steps, schedule.adjacency)


def _raised(base: PrivacyProfile, beyond: float) -> PrivacyProfile:
    """Return a profile of laws within ``beyond`` of those of another, in total variation."""

    # H_γ(P‖Q) <= H_γ(P'‖Q') + TV(P, P') + γ TV(Q, Q')
    def above(curve: Array, epsilon: Array) -> Array:
        # overflow beyond e^709 is one, which every δ is below
        with np.errstate(over="ignore"):
            return np.minimum((curve + beyond * (1.0 + np.exp(epsilon))) * UP, 1.0)

    # δ falls with ε and this sum does not: beyond its least it stays there
    last = float(GRID[np.argmin(above(base.delta(GRID), GRID))])

    def forward(epsilon: Array) -> Array:
        held = np.minimum(epsilon, last)
        return above(base.forward(held), held)

    def backward(epsilon: Array) -> Array:
        held = np.minimum(epsilon, last)
        return above(base.backward(held), held)

    end = np.array([last])
    return profile_from_curves(
        forward,
        backward,
        name=f"{base.name}, batches limited",
        infinite_mass=float(max(forward(end)[0], backward(end)[0])),
        source=f"{base.source}; Chua et al. (2024)",
        assumptions=(
            *base.assumptions,
            "the number of records is public, and a step that draws more keeps some at random",
        ),
        adjacency=base.adjacency,
    )
