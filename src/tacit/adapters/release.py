"""A trained adapter's guarantees, and how they are worked out again from its settings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, get_args

from tacit._ground.checks import in_interval, integer, non_negative
from tacit._ground.reprs import short_repr, shown
from tacit.gradients.certificates import HALF, certified_steps, weakness
from tacit.gradients.methods import AnyMethod, LoRAFA
from tacit.gradients.steps import Schedule
from tacit.gradients.unclipped import WithoutClipping
from tacit.guarantees import ApproximateDP
from tacit.guarantees.adjacency import Adjacency
from tacit.guarantees.base import Guarantee
from tacit.releases import Kind, Release
from tacit.releases.recompute import check_trained

KIND = "adapter"
SECRET = "whether any one record was trained on"
# What the digests of a release are of.
ADAPTER, MODEL = "adapter", "model"
ASSUMPTIONS = (
    "the model before training, A, the classes and every setting were chosen without looking at "
    "the records",
    "the outputs of the model for a record depend on that record alone",
    "whether the records could be read at all is not hidden",
)
# Of the number of records, beside the noise or not.
COUNTED = (
    "the number of records is published beside the noise and taken as public: the sampling rate, "
    "and the noise with it, follow from it"
)
SAME_COUNT = "neighbouring data sets have the same number of records, which is published"
DECLARED = "the sampling rate and the records expected in a step were declared without the records"
# Of noise that is added once after several steps.
CONVEX = "a record's loss is convex in the layer, and its curvature is at most the smoothness given"
PUBLISHED = (
    "The adapter may be published with A. Losses and shares of clipped records are measured on "
    "the records without noise, and may not be published."
)
UNPROTECTED = (
    "This adapter has no guarantee: neither A nor B nor BA may be published. A noiseless B beside "
    "a public or guessed A tells the gradients it was made of (lora-privacy, Proposition 2)."
)
AUDITED = "This adapter has learned canaries: it is for the audit and not for use."
PROPOSITION_2 = "lora-privacy, Proposition 2"


@short_repr
@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedAdapter:
    """How an adapter was trained: all that its certificate follows from.

    Attributes:
        method: with its settings.
        schedule: sampling rate, steps, widths and adjacency.
        noise_multiplier: of the noise; 0 where there is none.
        delta: δ at which ε is told.
        layers: names of what is adapted.
        records: n, where it is taken as public; None where the sampling rate was declared.
        half: whether passes ran in half precision, by ``--precision`` or as the model is.
    """

    method: AnyMethod
    schedule: Schedule
    noise_multiplier: float
    delta: float
    layers: tuple[str, ...]
    records: int | None
    half: bool = False

    def __post_init__(self) -> None:
        non_negative("noise_multiplier", self.noise_multiplier)
        in_interval("delta", self.delta, 0.0, 1.0, open_high=True)
        if isinstance(self.method, LoRAFA) != (self.noise_multiplier == 0.0):
            raise ValueError("noise_multiplier: expected one for every method with noise")
        if self.records is not None:
            integer("records", self.records, minimum=1, maximum=None)
        if len(self.layers) != len(self.schedule.dims):
            raise ValueError("layers: expected one for each width")


def recompute(release: Release[TrainedAdapter]) -> str:
    """Hold the release of an adapter against what its settings certify.

    Raises:
        ValueError: names what contradicts what.
    """
    details = release.details
    # noise, or a sentence why nothing may leave
    protected = details.noise_multiplier > 0.0
    held = certified(details)
    words = (SECRET, details.method.name, note_of(details, held))
    check_trained(release, held, words, (ADAPTER, MODEL))
    if release.withheld not in (("", AUDITED) if protected else (UNPROTECTED,)):
        raise ValueError(
            "withheld: expected the reason why an adapter without noise may not be published"
        )
    return ""


def note_of(details: TrainedAdapter, guarantees: tuple[Guarantee, ...]) -> str:
    """Return what may be published, and whether the promise is one in name only."""
    if details.noise_multiplier == 0.0:
        return UNPROTECTED
    return PUBLISHED + weakness(guarantees, details.records)


ADAPTERS = Kind(
    name=KIND,
    details=TrainedAdapter,
    recompute=recompute,
    proof="tacit.adapters.mechanism:proof",
    record="one example of the training data: a person with several is as many records",
)


def check_method(method: Any) -> None:
    """Refuse what is no method of this package."""
    known = get_args(AnyMethod)
    if type(method) not in known:
        names = ", ".join(one.name for one in known)
        raise ValueError(f"method: expected one of tacit.adapters ({names}), got {shown(method)}")


def certified(details: TrainedAdapter) -> tuple[Guarantee, ...]:
    """Return the success at even odds and (ε, δ) of a run; ε = ∞ without noise.

    Source: lora-privacy, Algorithms 2 to 4; the Neyman-Pearson lemma.
    """
    method, schedule, delta = details.method, details.schedule, details.delta
    # one more, or one replaced, in words
    adjacency = schedule.adjacency.sentence()
    counted = COUNTED if schedule.adjacency is Adjacency.ADD_REMOVE else SAME_COUNT
    half = (HALF,) if details.half else ()
    common = (*ASSUMPTIONS, DECLARED if details.records is None else counted, *half)
    # Proposition 2: a noiseless projection is private at no ε
    if details.noise_multiplier == 0.0:
        return (
            ApproximateDP(
                epsilon=math.inf,
                delta=delta,
                adjacency=adjacency,
                evidence="theorem",
                assumptions=common,
                source=PROPOSITION_2,
            ),
        )
    convex = (CONVEX,) if isinstance(method, WithoutClipping) and schedule.steps > 1 else ()
    return certified_steps(
        method, details.noise_multiplier, schedule, delta=delta, common=(*common, *convex)
    )
