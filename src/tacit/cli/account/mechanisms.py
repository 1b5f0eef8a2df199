"""The mechanisms of ``tacit account`` as values of their flags, one of which sets the privacy.

The one that sets the privacy may be left out: then it is searched for.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tacit._ground.values import Count, Flag, NonNegative, Positive, Within, value
from tacit.guarantees.adjacency import Adjacency
from tacit.text import number_down, number_up, significant

if TYPE_CHECKING:
    from tacit.accounting import PrivacyProfile, ProjectedSteps
    from tacit.accounting.published import Claim

# Significant digits of a parameter, an ε or a δ, rounded against us.
DIGITS = 5
# Relative, more than a root and a product round.
ROOT_ROUNDING = 1e-15
# Ranges of flags: both ends may be reached; a dimension of 1 has no neighbours to be apart from.
Probability = Annotated[float, Within(0, 1, ends="[]")]
Dimension = Annotated[int, Within(2, ends="[)")]


@dataclass(frozen=True)
class Rival:
    """The same parameter under another analysis or for another mechanism."""

    key: str
    label: str
    value: float
    text: str


class MechanismFlags(ABC):
    """A mechanism as it was asked for, with the one parameter given or to be found."""

    panel: ClassVar[str] = "Mechanism"
    # its command, and the field that sets the privacy
    word: ClassVar[str]
    parameter: ClassVar[str]
    # whether a larger parameter is more private, so that it is rounded up when shown
    grows: ClassVar[bool] = True

    @abstractmethod
    def profile(self, parameter: float) -> PrivacyProfile:
        """Return the profile at this parameter."""

    def of_search(self, search: float) -> float:
        """Return the parameter of a search variable s > 0, more private as s grows."""
        return search

    def guess(self, epsilon: float, delta: float) -> float:
        """Return a first guess of the search variable."""
        return 1.0

    def claim(self, parameter: float, delta: float) -> Claim | None:
        """Return the published bound, where there is one."""
        return None

    def rivals(self, parameter: float, epsilon: float, delta: float) -> list[Rival]:
        """Return what others would have needed."""
        return []

    def statement(self, found: Accounted) -> str | None:
        """Return what a paper may say of it, where it is the account of a whole training."""
        return None

    def settings(self) -> dict[str, Any]:
        """Return every number but the parameter, for the record."""
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return {name: getattr(self, name) for name in names if name != self.parameter}


@value
class GaussianFlags(MechanismFlags):
    """Gaussian noise on a vector (exact at every ε, unlike the classical calibration).

    Args:
        noise_std: Noise standard deviation.
        sensitivity: Largest distance of two neighbours' outputs.
        steps: How many releases are composed.
    """

    word: ClassVar[str] = "gaussian"
    parameter: ClassVar[str] = "noise_std"

    noise_std: Positive | None = None
    sensitivity: NonNegative = 1.0
    steps: Count = 1

    def profile(self, parameter: float) -> PrivacyProfile:
        from tacit.accounting import gaussian

        # T shifts of a Gaussian compose to one shift, √T times as long, rounded up
        length = math.sqrt(self.steps) * (1 + ROOT_ROUNDING)
        return gaussian(self.sensitivity * length, parameter)

    def guess(self, epsilon: float, delta: float) -> float:
        """Return the noise of the distance that has this ε and δ."""
        from tacit.divergences import shift_distance

        distance = float(shift_distance(("hockey-stick", epsilon), delta))
        length = self.sensitivity * math.sqrt(self.steps)
        return length / distance if length > 0 and 0 < distance < math.inf else 1.0


@value
class LaplaceFlags(MechanismFlags):
    """Laplace noise on a number.

    Args:
        scale: Scale of the Laplace noise.
        sensitivity: Largest distance of two neighbours' outputs.
        steps: How many releases are composed.
    """

    word: ClassVar[str] = "laplace"
    parameter: ClassVar[str] = "scale"

    scale: Positive | None = None
    sensitivity: NonNegative = 1.0
    steps: Count = 1

    def profile(self, parameter: float) -> PrivacyProfile:
        from tacit.accounting import laplace

        return laplace(self.sensitivity, parameter) * self.steps


@value
class ResponseFlags(MechanismFlags):
    """Report the truth with some probability, any other answer otherwise.

    Args:
        truth_probability: Probability of reporting the truth.
        categories: Number of answers.
        steps: How many releases are composed.
    """

    word: ClassVar[str] = "randomized-response"
    parameter: ClassVar[str] = "truth_probability"
    grows: ClassVar[bool] = False

    truth_probability: float | None = None
    categories: Dimension = 2
    steps: Count = 1

    def profile(self, parameter: float) -> PrivacyProfile:
        from tacit.accounting import randomized_response

        # a report of one person, whose answers are the neighbours
        once = randomized_response(None, self.categories, truth_probability=parameter)
        return once * self.steps

    def of_search(self, search: float) -> float:
        """Return e^{1/s}/(e^{1/s} + C − 1): s is 1/ε of one answer."""
        from scipy.special import expit

        # by expit: e^{1/s} overflows where s is small
        return float(expit(1 / search - math.log(self.categories - 1)))


@value
class SampledFlags(MechanismFlags):
    """DP-SGD: Gaussian noise on clipped gradients of Poisson samples.

    Args:
        sampling_rate: Probability that a record is in a step's sample.
        steps: How many releases are composed.
        noise_multiplier: Noise standard deviation over the clipping norm.
        neighbours: Which data sets are neighbours, by one record.
    """

    word: ClassVar[str] = "subsampled-gaussian"
    parameter: ClassVar[str] = "noise_multiplier"

    sampling_rate: Probability
    steps: Count
    noise_multiplier: Positive | None = None
    neighbours: Annotated[Adjacency, Flag("--adjacency")] = Adjacency.ADD_REMOVE

    def profile(self, parameter: float) -> PrivacyProfile:
        from tacit.accounting.mechanisms.subsampled import subsampled_gaussian

        # composed over the steps: what is searched for is the noise of all of them together
        return subsampled_gaussian(self.sampling_rate, parameter, self.steps, self.neighbours)

    def guess(self, epsilon: float, delta: float) -> float:
        """Return the noise of the central limit."""
        return _central_noise(self.sampling_rate, self.steps, epsilon, delta)


@value
class EpochsFlags(MechanismFlags):
    """DP-SGD as it was run: examples, batch and epochs in place of a rate and steps.

    Args:
        examples: Examples in the training set.
        batch: Examples in a step's batch; on average where coins draw them.
        epochs: Passes over the training set.
        noise_multiplier: Noise standard deviation over the clipping norm.
        target_epsilon: ε of the run, from which the noise multiplier is found.
        sampling: A coin for every example and batch, or examples shuffled and cut into batches.
        examples_per_user: Examples of one user at most; the guarantee is about the user.
    """

    word: ClassVar[str] = "dp-sgd"
    parameter: ClassVar[str] = "noise_multiplier"

    examples: Count
    batch: Count
    epochs: Positive = 1.0
    noise_multiplier: Positive | None = None
    target_epsilon: Positive | None = None
    sampling: Literal["poisson", "shuffled"] = "poisson"
    examples_per_user: Annotated[int, Within(1, 1000, ends="[]")] = 1

    def _together(self) -> None:
        if self.batch > self.examples:
            raise ValueError(
                f"batch: expected at most the {self.examples} examples, got {self.batch}"
            )
        if self.examples_per_user > self.examples:
            raise ValueError(
                f"examples_per_user: expected at most the {self.examples} examples, got "
                f"{self.examples_per_user}"
            )
        if self.noise_multiplier is not None and self.target_epsilon is not None:
            raise ValueError("target_epsilon: expected it or noise_multiplier, got both")

    @property
    def rate(self) -> float:
        """The share of the examples in a batch."""
        return self.batch / self.examples

    @property
    def steps(self) -> int:
        """Batches in all epochs, the last of them whole."""
        return math.ceil(self.epochs * self.examples / self.batch)

    def profile(self, parameter: float) -> PrivacyProfile:
        from tacit.accounting import gaussian, subsampled_group

        if self.sampling == "poisson":
            return subsampled_group(self.rate, parameter, self.steps, self.examples_per_user)
        # shuffled, an example is in one batch of each epoch, and nothing is proven of where: at
        # worst all examples of a user share a batch, and its sum moves by that many clipping norms
        length = math.sqrt(math.ceil(self.epochs)) * (1 + ROOT_ROUNDING)
        return replace(
            gaussian(self.examples_per_user * length, parameter),
            adjacency="one example, or zeros in its place"
            if self.examples_per_user == 1
            else "the examples of one user, or zeros in their place",
        )

    def guess(self, epsilon: float, delta: float) -> float:
        """Return the noise of the central limit."""
        if self.sampling == "poisson":
            plain = _central_noise(self.rate, self.steps, epsilon, delta)
        else:
            plain = _central_noise(1.0, math.ceil(self.epochs), epsilon, delta)
        return plain * self.examples_per_user

    def settings(self) -> dict[str, Any]:
        """Return what was run, with the rate and the steps that follow from it."""
        told = super().settings()
        told.pop("target_epsilon")
        return {**told, "sampling_rate": self.rate, "steps": self.steps}

    def statement(self, found: Accounted) -> str:
        """Return what a paper may say of this training."""
        drawn = (
            f"each example was in a batch with probability {significant(self.rate)} by a coin of "
            f"its own (Poisson sampling, {self.steps:,} steps)"
            if self.sampling == "poisson"
            else f"the examples were shuffled and cut into batches of {self.batch:,} (no "
            "amplification by sampling is claimed)"
        )
        who = (
            "one example"
            if self.examples_per_user == 1
            else f"one user with up to {self.examples_per_user:,} examples"
        )
        # the neighbours that the account is of, and how it was found
        change, how = (
            ("adding or removing {}", "by numerical composition of privacy loss distributions")
            if self.sampling == "poisson"
            else ("replacing {} by zeros", "by the exact profile of the Gaussian mechanism")
        )
        return (
            f"We trained with DP-SGD for {self.epochs:g} epochs over {self.examples:,} examples; "
            f"{drawn}; gradients were clipped example by example, with noise multiplier "
            f"{number_up(found.parameter, DIGITS)}. The training is "
            f"({number_up(found.epsilon, DIGITS)}, {number_up(found.delta, DIGITS)})-"
            f"differentially private under {change.format(who)}, {how}, rounded up."
        )


@value
class AllocationFlags(MechanismFlags):
    """DP-SGD in epochs: every record draws its own k of the t steps, anew each epoch.

    Args:
        steps: Steps of one epoch.
        noise_multiplier: Noise standard deviation over the clipping norm.
        participations: Steps of an epoch in which a record takes part.
        epochs: Number of epochs.
        neighbours: Which data sets are neighbours, by one record.
    """

    word: ClassVar[str] = "random-allocation"
    parameter: ClassVar[str] = "noise_multiplier"

    steps: Count
    noise_multiplier: Positive | None = None
    participations: Count = 1
    epochs: Count = 1
    neighbours: Annotated[Adjacency, Flag("--adjacency")] = Adjacency.ADD_REMOVE

    def profile(self, parameter: float) -> PrivacyProfile:
        from tacit.accounting import random_allocation

        return random_allocation(
            parameter,
            steps=self.steps,
            participations=self.participations,
            epochs=self.epochs,
            neighbours=self.neighbours,
        )

    def guess(self, epsilon: float, delta: float) -> float:
        """Return the noise of Poisson samples at the same rate."""
        # k of t steps is about a coin of k/t in each
        rate = min(self.participations / self.steps, 1.0)
        return _central_noise(rate, self.steps * self.epochs, epsilon, delta)


@value
class VectorProjectionFlags(MechanismFlags):
    """Multiply a unit vector by a secret random projection, without noise.

    Args:
        dim: Dimension d.
        rank: Rank r of the projection.
        alignment: Least cosine of two neighbours' unit vectors.
        steps: How many releases are composed.
    """

    word: ClassVar[str] = "vector-projection"
    parameter: ClassVar[str] = "alignment"

    dim: Annotated[Count, Flag("--dimension")]
    rank: Count
    alignment: float | None = None
    steps: Count = 1

    def profile(self, parameter: float) -> PrivacyProfile:
        from tacit.accounting.mechanisms.projection import vector_projection

        return vector_projection(dim=self.dim, rank=self.rank, alignment=parameter) * self.steps

    def of_search(self, search: float) -> float:
        """Return the cosine 1 − 1/(1 + s)."""
        # from 0 to 1 as s grows: the cosine of neighbours that are nearer and nearer
        return 1 - 1 / (1 + search)

    def claim(self, parameter: float, delta: float) -> Claim | None:
        """Return Theorem 1, which is of one release."""
        from tacit.accounting.published import lora_theorem_1

        if self.steps > 1:
            return None
        return lora_theorem_1(dim=self.dim, rank=self.rank, alignment=parameter, delta=delta)


@value
class NoisyProjectionFlags(MechanismFlags):
    """M2: project gradients with their noise, M(V + Ξ), a fresh public M each step.

    Args:
        dim: Dimension d.
        rank: Rank r of the projection.
        noise_multiplier: Noise standard deviation over the clipping norm.
        steps: How many releases are composed.
        sampling_rate: Probability that a record is in a step's sample.
        difference_rank: 1 where a record's gradient has rank one; any when left out.
        neighbours: Which data sets are neighbours, by one record.
    """

    word: ClassVar[str] = "noisy-projection"
    parameter: ClassVar[str] = "noise_multiplier"

    dim: Annotated[Count, Flag("--dimension")]
    rank: Count
    noise_multiplier: Positive | None = None
    steps: Count = 1
    sampling_rate: Probability = 1.0
    difference_rank: Count | None = None
    neighbours: Annotated[Adjacency, Flag("--adjacency")] = Adjacency.ADD_REMOVE

    def work(self) -> ProjectedSteps:
        """Return what is done, whatever its noise."""
        from tacit.accounting import ProjectedSteps

        # the parameter is left out of the settings: the rest is the value of the accounting
        return ProjectedSteps(**self.settings())

    def profile(self, parameter: float) -> PrivacyProfile:
        from tacit.accounting import noisy_projection_steps

        return noisy_projection_steps(self.work(), parameter)

    def guess(self, epsilon: float, delta: float) -> float:
        """Return the noise of the central limit for the r/d of the energy that is captured."""
        plain = _central_noise(self.sampling_rate, self.steps, epsilon, delta)
        return plain * math.sqrt(min(self.rank / self.dim, 1.0))

    def claim(self, parameter: float, delta: float) -> Claim | None:
        """Return Theorem 5 of these steps."""
        from tacit.accounting.published import lora_theorem_5_steps

        return lora_theorem_5_steps(self.work(), parameter, delta=delta)

    def rivals(self, parameter: float, epsilon: float, delta: float) -> list[Rival]:
        """Return what the published accounting and DP-SGD without a projection need for as much."""
        from tacit.accounting import least_noise, subsampled_gaussian
        from tacit.accounting.published import lora_theorem_5_multiplier

        # the noise that the same promise needs where all of the gradient is released
        plain = least_noise(
            lambda s: subsampled_gaussian(self.sampling_rate, s, self.steps, self.neighbours),
            epsilon=epsilon,
            delta=delta,
            start=_central_noise(self.sampling_rate, self.steps, epsilon, delta),
        )
        # s² n d ((d + 1)/r + 1) beside σ² n d: E M² = ((d + 1)/r + 1) I
        energy = (parameter / plain) ** 2 * ((self.dim + 1) / self.rank + 1)
        words = (
            f"{number_up(plain, DIGITS)} without a projection. The projected noise has "
            f"{energy:.2f} times the energy of that noise, and the projection adds a variance "
            "of its own"
        )
        found = [Rival("plain_noise_multiplier", "DP-SGD", plain, words)]
        # of a projection that keeps everything the paper claims nothing
        if self.rank < self.dim and delta > 0:
            claimed = lora_theorem_5_multiplier(self.work(), epsilon=epsilon, delta=delta)
            much = f"{claimed / parameter:.2f} times as much"
            words = f"noise multiplier {number_up(claimed, DIGITS)}, {much}"
            found.insert(0, Rival("published_noise_multiplier", "published", claimed, words))
        return found


@value
class ProjectedNoiseFlags(MechanismFlags):
    """M1: noise after the projection, MV + Ξ.

    Args:
        dim: Dimension d.
        rank: Rank r of the projection.
        noise_std: Noise standard deviation, added after the projection.
        sensitivity: Largest distance of two neighbours' outputs.
        alignment: Least cosine of two neighbours' columns, where V is one column of fixed norm.
        difference_rank: 1 where one column changes; any when left out.
        steps: How many releases are composed.
    """

    word: ClassVar[str] = "projected-plus-noise"
    parameter: ClassVar[str] = "noise_std"

    dim: Annotated[Dimension, Flag("--dimension")]
    rank: Count
    noise_std: Positive | None = None
    sensitivity: Positive = 1.0
    alignment: float | None = None
    difference_rank: Count | None = None
    steps: Count = 1

    def profile(self, parameter: float) -> PrivacyProfile:
        from tacit.accounting.mechanisms.projected_noise import projected_plus_noise

        # one release; the steps compose
        once = projected_plus_noise(
            dim=self.dim,
            rank=self.rank,
            sensitivity=self.sensitivity,
            noise_std=parameter,
            alignment=self.alignment,
            difference_rank=self.difference_rank,
        )
        return once * self.steps

    def guess(self, epsilon: float, delta: float) -> float:
        """Return the noise of the central limit for E M² = ((d + 1)/r + 1) I."""
        # by how much a projection stretches a difference, in the mean square
        length = self.sensitivity * math.sqrt((self.dim + 1) / self.rank + 1)
        return length * _central_noise(1.0, self.steps, epsilon, delta)


@value
class SketchFlags(MechanismFlags):
    """PAVE: a compact specification, columns of a Gaussian sketch whose matrix stays secret.

    Args:
        dim: Dimension d.
        rank: Rank r of the sketch.
        gamma: Covariance stability: ratio in [1-γ, 1+γ].
        one_order: Stability is known in one order only.
        steps: How many releases are composed.
    """

    word: ClassVar[str] = "sketch"
    parameter: ClassVar[str] = "gamma"
    grows: ClassVar[bool] = False

    dim: Annotated[Count, Flag("--dimension")]
    rank: Count
    gamma: float | None = None
    one_order: Annotated[bool, Flag("--one-order")] = False
    steps: Count = 1

    def profile(self, parameter: float) -> PrivacyProfile:
        from tacit.accounting.mechanisms.sketch import sketch

        both = not self.one_order
        once = sketch(rank=self.rank, dim=self.dim, gamma=parameter, both_orders=both)
        return once * self.steps

    def of_search(self, search: float) -> float:
        """Return the stability 1/(1 + s)."""
        # from 1 to 0 as s grows: the stability of covariances that are nearer and nearer
        return 1 / (1 + search)

    def claim(self, parameter: float, delta: float) -> Claim | None:
        """Return Theorem 3.5, which is of one release."""
        from tacit.accounting.published import pave_theorem_3_5

        if self.steps > 1:
            return None
        both = not self.one_order
        return pave_theorem_3_5(
            rank=self.rank, dim=self.dim, gamma=parameter, delta=delta, both_orders=both
        )

    def settings(self) -> dict[str, Any]:
        """Return dimension, rank, both_orders and steps."""
        both = not self.one_order
        return {"dim": self.dim, "rank": self.rank, "both_orders": both, "steps": self.steps}


# In the order of the help.
MECHANISMS: dict[str, type[MechanismFlags]] = {
    kind.word: kind
    for kind in (
        GaussianFlags,
        LaplaceFlags,
        ResponseFlags,
        EpochsFlags,
        SampledFlags,
        AllocationFlags,
        VectorProjectionFlags,
        NoisyProjectionFlags,
        ProjectedNoiseFlags,
        SketchFlags,
    )
}


@dataclass(frozen=True)
class Accounted:
    """A mechanism with its parameter, its profile, and one point of it."""

    mechanism: MechanismFlags
    parameter: float
    profile: PrivacyProfile
    epsilon: float
    delta: float
    # whether δ is what was asked for, and ε what was found
    at_delta: bool = True

    @property
    def title(self) -> str:
        """The parameter in words, rounded against us."""
        # a noise is said a little larger, a cosine or a stability a little smaller, than was found
        rounded = number_up if self.mechanism.grows else number_down
        name = self.mechanism.parameter.replace("_", " ")
        return f"{name} {rounded(self.parameter, DIGITS)}"

    @property
    def calibrated(self) -> bool:
        """Whether the parameter was found, not given."""
        return getattr(self.mechanism, self.mechanism.parameter) is None

    def claim(self, delta: float) -> Claim | str | None:
        """Return the published bound, or the sentence that refuses it."""
        # the papers have no claim at the ends
        if not 0 < delta < 1:
            return None
        try:
            return self.mechanism.claim(self.parameter, delta)
        except ValueError as refusal:
            return str(refusal)


def _central_noise(rate: float, steps: int, epsilon: float, delta: float) -> float:
    """The central limit q √(T (e^{1/σ²} − 1)) of the composed distance, solved for σ."""
    from tacit.divergences import shift_distance

    # the shift d of a Gaussian pair that has this ε and δ: q √(T (e^{1/σ²} − 1)) = d is solved for
    # σ
    distance = float(shift_distance(("hockey-stick", epsilon), delta))
    effort = rate * math.sqrt(steps)
    if distance == 0 or effort <= 0:
        return 1.0
    return 1 / math.sqrt(math.log1p((distance / effort) ** 2))
