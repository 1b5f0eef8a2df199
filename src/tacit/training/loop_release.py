"""A training loop of one's own as a release: its guarantees, worked out again from its settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tacit._ground.checks import in_interval, integer
from tacit._ground.reprs import short_repr
from tacit.accounting import PrivacyProfile
from tacit.codec import HOLDER
from tacit.design import StepFactor
from tacit.gradients.adaptive import AdaptiveDPSGD
from tacit.gradients.certificates import HALF, certified_profile, weakness
from tacit.gradients.correlated import CorrelatedDPSGD
from tacit.gradients.methods import DPSGD
from tacit.gradients.steps import Schedule
from tacit.guarantees.adjacency import Adjacency
from tacit.guarantees.base import Guarantee
from tacit.releases import Kind, Release
from tacit.releases.recompute import check_trained
from tacit.training.people import PersonUnit
from tacit.training.sampling import BY_COINS, AnySampling, FixedOrder, SampledSteps

KIND = "private-training"
SECRET = "whether any one {unit} was trained on"
# What the digests of a release are of.
TRAINED, BEFORE = "trained parameters", "model before training"
ASSUMPTIONS = (
    "the model before training, the optimizer, its schedule and every setting were chosen without "
    "looking at the records",
    "a loss depends on its own record alone and on random numbers, such as those of dropout, that "
    "are of no known seed, and the records of a batch are those that the loader drew",
    "of what the loop sees, only the trained parameters and what follows from them are published",
)
COUNTED = (
    "the number of {unit}s is published beside the noise and taken as public: the sampling rate, "
    "and the noise with it, follow from it"
)
SAME_COUNT = "neighbouring data sets have the same number of {unit}s, which is published"
DECLARED = "the sampling rate and the records expected in a step were declared without the records"
TOGETHER = (
    "the losses of a batch are in the order of its records, for what a person's records give is "
    "added up before it is clipped"
)
TIED = (
    "what is told of the sums G of all steps is C G + Z, Z independent and C the factor that is "
    "told: gradients follow from the model as it was told and from their own record alone"
)
STREAMED = (
    "the stream gives each {unit} once a pass at most, in the same order whenever it is read, and "
    "none decides whether or where another comes: no filter, buffer or cut of it follows from the "
    "{unit}s"
)
STANDS = (
    "a person that is replaced stands where the one before stood: the order of the others' first "
    "records is not its doing"
)
EARLY = "when the loop ended was decided without looking at the records or at losses of them"
PUBLISHED = (
    "The trained parameters may be published, with the optimizer's state. Losses of the records "
    "are measured without noise, and may not be published."
)
TIED_STATE = (
    " A checkpoint holds noise that is tied to that of all steps, and is as secret as the records."
)


@short_repr
@dataclass(frozen=True, eq=False, kw_only=True)
class PrivateTraining:
    """How a loop trained: all that its certificate follows from.

    Attributes:
        method: with its settings.
        schedule: sampling rate, the steps that are paid for, widths and adjacency.
        noise_multiplier: of the noise, over the clip.
        delta: δ at which ε is told.
        parameters: names of what is trained.
        records: n, where it is taken as public, of persons where these are drawn; None where the
            sampling rate was declared.
        epochs: passes that the steps make.
        sampling: how the records of a step are drawn.
        person: how a person is protected; None where one record is.
        taken: steps that were taken; None before the end.
        seen_again: modules that were run once more for each example to find its gradients; the
            holder's, for in a model that routes tokens it follows from those of the first batch.
        last_clip: the clip after the last step, where noised counts move it; None elsewhere.
        factor: what ties the noise of steps together; None where each has its own.
        streamed: whether records came as a stream gave them, their number declared.
        half: whether passes ran in half precision, by autocast or as the model is.
    """

    method: DPSGD | AdaptiveDPSGD | CorrelatedDPSGD
    schedule: Schedule
    noise_multiplier: float
    delta: float
    parameters: tuple[str, ...]
    records: int | None
    epochs: int
    sampling: AnySampling = BY_COINS
    person: PersonUnit | None = None
    taken: int | None = None
    seen_again: Annotated[tuple[str, ...], HOLDER] = ()
    last_clip: float | None = None
    factor: StepFactor | None = None
    streamed: bool = False
    half: bool = False

    def __post_init__(self) -> None:
        in_interval("noise_multiplier", self.noise_multiplier, 0.0, float("inf"), open_low=True)
        in_interval("delta", self.delta, 0.0, 1.0, open_low=True, open_high=True)
        if self.records is not None:
            integer("records", self.records, minimum=1, maximum=None)
        integer("epochs", self.epochs, minimum=1, maximum=self.schedule.steps)
        self.sampling.check(self.schedule.adjacency, counted=self.records is not None, processes=1)
        if isinstance(self.method, CorrelatedDPSGD) != (self.factor is not None):
            raise ValueError(
                "factor: expected a factor with CorrelatedDPSGD, and None with any other method"
            )
        if self.factor is not None:
            self.sampling.participation(self.sampled)
        if self.person is not None:
            self.person.check(self.sampling, self.schedule.adjacency)
        if self.taken is not None:
            integer("taken", self.taken, minimum=0, maximum=self.schedule.steps)
        if self.last_clip is not None:
            in_interval("last_clip", self.last_clip, 0.0, float("inf"), open_low=True)
        if len(self.parameters) != len(self.schedule.dims):
            raise ValueError("parameters: expected one for each width")

    @property
    def unit(self) -> str:
        """What is added, removed or replaced."""
        return "record" if self.person is None else "person"

    @property
    def record(self) -> str:
        """What one record is, as the end of "One record is …"."""
        if self.person is None:
            return "one example that the loader draws: a person with several is as many records"
        return "one person, with every example of that person"

    @property
    def drawn(self) -> str:
        """What is drawn and counted: a person's records each by itself, or the person."""
        of_people = self.person is not None and self.person.drawn == "people"
        return "person" if of_people else "record"

    @property
    def sampled(self) -> SampledSteps:
        """What is drawn for."""
        return SampledSteps(self.schedule, self.epochs, self.records, self.factor)

    @property
    def profile(self) -> PrivacyProfile:
        """The account of all steps that are paid for, rounded up."""
        steps = self.sampled
        if self.person is None:
            return self.sampling.profile(self.noise_multiplier, steps)
        return self.person.profile(self.noise_multiplier, self.sampling, steps)


def certified(details: PrivateTraining) -> tuple[Guarantee, ...]:
    """Return the success at even odds and (ε, δ) of a loop, for all steps that are paid for."""
    schedule = details.schedule
    same = schedule.adjacency is not Adjacency.ADD_REMOVE
    counted = (SAME_COUNT if same else COUNTED).format(unit=details.drawn)
    common = [*ASSUMPTIONS, DECLARED if details.records is None else counted]
    if details.streamed:
        common.append(STREAMED.format(unit=details.drawn))
    if details.factor is not None:
        common.append(TIED)
    if details.half:
        common.append(HALF)
    if details.drawn == "person":
        common.append(TOGETHER)
        if isinstance(details.sampling, FixedOrder):
            common.append(STANDS)
    if details.taken is not None and details.taken < schedule.steps:
        common.append(EARLY)
    return certified_profile(
        details.profile,
        schedule.adjacency.sentence(details.unit),
        delta=details.delta,
        common=tuple(common),
    )


def note_of(details: PrivateTraining, guarantees: tuple[Guarantee, ...]) -> str:
    """Return what may be published of a loop, and whether its promise is one in name only."""
    first = PUBLISHED if details.factor is None else PUBLISHED + TIED_STATE
    return first + weakness(guarantees, details.records)


def recompute(release: Release[PrivateTraining]) -> str:
    """Hold the release of a loop against what its settings certify.

    Raises:
        ValueError: names what contradicts what.
    """
    details = release.details
    held = certified(details)
    words = (SECRET.format(unit=details.unit), details.method.name, note_of(details, held))
    check_trained(release, held, words, (TRAINED, BEFORE))
    return ""


LOOPS = Kind(
    name=KIND,
    details=PrivateTraining,
    recompute=recompute,
    proof="tacit.training.loop_proof:proof",
    kept="its trained parameters, which its publisher keeps in a file of their own",
)
