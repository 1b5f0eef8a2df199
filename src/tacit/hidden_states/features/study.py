"""What was measured of a layer's features: evidence that certifies nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from tacit._ground.checks import choice, in_interval, integer, non_negative
from tacit._ground.frozen import array_value
from tacit.attacks.intervals import proportion_interval, student_errors
from tacit.hidden_states.features.scored import FeatureScores
from tacit.hidden_states.origin import HOLDERS, check_digests
from tacit.measured import Interval
from tacit.releases import Attack, Kind, Release, Use
from tacit.releases.recompute import check_rebuilt

KIND = "hidden-features"
SECRET = "the prompt behind the features"
NOTHING = (
    "Removing features is a linear map without noise: it certifies nothing, whatever the attacks "
    "here reach."
)
TASK = "which prompt of the bank"
CODES = {
    "support": "which features are active",
    "backbone": "which backbone features are active",
    "scaffold": "which scaffold features are active",
    "random": "as many features as backbone, at random",
}
STATE = "without scaffold"
OF_THE_STATE = "retrieval by the state without scaffold features"
# What stands for the output, and the kinds of edit; the modules that make them need torch.
CONDITIONS = (
    "full", "support", "amplitude", "backbone", "scaffold", "random", "largest", "none",
    "without scaffold", "without backbone",
)  # fmt: skip
EDITED = (
    "title case",
    "lower case",
    "upper case",
    "double space",
    "no commas",
    "another word",
    "another end",
)
# What a study keeps of the training of its features, where they were trained here.
TRAINED = ("explained", "active", "dead", "steps", "rows")
# Coverage of each interval alone, and half the width of it in standard errors.
CONFIDENCE = 0.95

# A share and the ends of its interval; a mean and its standard error; a statistic and its p.
Share: TypeAlias = tuple[float, float, float]
Pair: TypeAlias = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class MarginSpread:
    """How one margin is spread over prompts.

    Attributes:
        quantiles: at 10%, 50% and 90%.
        tail: (p90 − p50)/(p50 − p10), the same in every unit; None where it divides by nothing.
        ratio: p90/p50, likewise.
    """

    quantiles: Share
    tail: float | None
    ratio: float | None


@dataclass(frozen=True, kw_only=True)
class ComparedMargins:
    """Margins of support codes, states and amplitudes of the same prompts.

    Attributes:
        support: in features active in one prompt and not in the other.
        state: in the ℓ2 distance of states.
        amplitude: in that of activations.
        spearman: rank correlation of support and state with its p; None where there is no test.
        raw: share of prompts whose support margin exceeds the state's, as App. M counts.
        scored: the same of margins less their mean over their deviation.
        ranked: the same of ranks, ties by halves.
    """

    support: MarginSpread
    state: MarginSpread
    amplitude: MarginSpread
    spearman: Pair | None
    raw: float
    scored: float
    ranked: float


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """What is left with something in the place of the MLP's output.

    Attributes:
        words: what stands there.
        active: features behind it, mean over prompts.
        error: mean ``‖y − ŷ‖``.
        unexplained: ``Σ‖y − ŷ‖²/Σ‖y − ȳ‖²``; None where the outputs are one vector up to rounding.
        kl: mean KL of the prediction, nats.
        kl_error: its standard error.
        agreed: prompts whose likeliest token stays.
    """

    words: str
    active: float
    error: float
    unexplained: float | None
    kl: float
    kl_error: float
    agreed: int

    def __post_init__(self) -> None:
        for name in ("active", "error", "kl", "kl_error"):
            non_negative(name, getattr(self, name))
        integer("agreed", self.agreed, minimum=0)


@dataclass(frozen=True, kw_only=True)
class EditFlips:
    """Features that are active before an edit or after it and not both.

    Attributes:
        pairs: prompts in which some flip.
        flips: of a pair, mean.
        scaffold: share of the flips that are scaffold features, mean over pairs.
        base: share of scaffold features among all active in a pair, mean.
        excess: ``scaffold − base``.
        excess_error: its standard error.
        backbone_flips: share of active backbone features that flip; None where none is active.
        scaffold_flips: the same of scaffold features.
    """

    pairs: int
    flips: float
    scaffold: float
    base: float
    excess: float
    excess_error: float
    backbone_flips: float | None
    scaffold_flips: float | None


@dataclass(frozen=True, kw_only=True)
class CodeOverlap:
    """Mean share of active features that two prompts have in common, with its standard error.

    Attributes:
        pairs: of prompts.
        full: of all features; None below two pairs.
        backbone: of backbone features.
        scaffold: of scaffold features.
    """

    pairs: int
    full: Pair | None
    backbone: Pair | None
    scaffold: Pair | None


@dataclass(frozen=True, kw_only=True)
class FibreOverlaps:
    """Overlap of prompts with nearly one prediction, beside that of prompts at random.

    Attributes:
        kl: nats between predictions that count as one.
        close: of such prompts; None where there are none.
        random: of prompts at random.
    """

    kl: float
    close: CodeOverlap | None
    random: CodeOverlap | None


@dataclass(frozen=True, kw_only=True)
class CodeNaming:
    """How often a code names its prompt of the bank.

    Attributes:
        top1: the share, with the ends of its interval.
        distinct: codes there are.
    """

    top1: Share
    distinct: int

    def __post_init__(self) -> None:
        _check_share("top1", self.top1)
        integer("distinct", self.distinct, minimum=1)


@dataclass(frozen=True, kw_only=True)
class StateNaming:
    """How often a state without scaffold features names its prompt of the bank.

    Attributes:
        told: by the attacker who knows the map.
        blind: by one who holds the clean states alone.
    """

    told: Share
    blind: Share

    def __post_init__(self) -> None:
        _check_share("told", self.told)
        _check_share("blind", self.blind)


@array_value(kw_only=True)
class FeatureStudy:
    """What ``measure_features`` found.

    Attributes:
        model: its name.
        layer: 1 … L.
        reads: as ``Transcoder.reads``.
        scores: of every feature, on the public prompts.
        bank: prompts of the bank, on which all else is measured.
        share: mean share of a prompt's active features that are backbone.
        margins: ``nearest``, to the nearest other prompt of the bank, and ``step``, to the nearest
            with another last token.
        replaced: error, KL and agreement by what stands for the MLP's output.
        edits: what flips, by kind of edit, with its base rate.
        kruskal: H and p of equal shares over kinds of edit, or None.
        fibres: overlap of prompts with nearly one prediction, and of prompts at random.
        named: how often each code names its prompt.
        state: the same for states without scaffold features.
        trained: of the transcoder.
    """

    # the keys of every mapping, each of which a study must have but for the edits and the training
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "margins": ("nearest", "step"),
        "replaced": CONDITIONS,
        "edits": EDITED,
        "named": tuple(CODES),
        "trained": TRAINED,
    }

    model: str
    layer: int
    reads: str
    scores: FeatureScores
    bank: int
    share: float
    margins: Mapping[str, ComparedMargins]
    replaced: Mapping[str, Replacement]
    edits: Mapping[str, EditFlips]
    kruskal: Pair | None
    fibres: FibreOverlaps
    named: Mapping[str, CodeNaming]
    state: StateNaming
    trained: Mapping[str, float | int]

    def __post_init__(self) -> None:
        integer("layer", self.layer, minimum=1)
        integer("bank", self.bank, minimum=1)
        choice("reads", self.reads, ("mlp", "stream"))
        in_interval("share", self.share, 0.0, 1.0)
        for name, words in self.words.items():
            for word in getattr(self, name):
                choice(name, word, words)
            missing = set(words) - set(getattr(self, name))
            if missing and name not in ("edits", "trained"):
                raise ValueError(f"{name}: expected {', '.join(words)}, got none {min(missing)!r}")
        for name, replacement in self.replaced.items():
            integer(f"replaced.{name}.agreed", replacement.agreed, minimum=0, maximum=self.bank)
        for name, code in self.named.items():
            integer(f"named.{name}.distinct", code.distinct, minimum=1, maximum=self.bank)

    def describe(self) -> str:
        """Say in two sentences what removing the scaffold features does."""
        told, left = self.scores.summary(), self.replaced[STATE]
        return (
            f"{told['backbone']} of {told['backbone'] + told['scaffold']} features scored are "
            f"backbone at τ = {self.scores.threshold:g} nats, and {told['exactly_zero']} score "
            f"exactly zero. Without the scaffold features the prediction moves by {left.kl:.3g} "
            f"nats, and whoever knows the features names {self.state.told[0]:.3f} of "
            f"{self.bank:,} prompts by the state."
        )


def study_release(details: FeatureStudy, digests: tuple[tuple[str, str], ...]) -> Release[Any]:
    """Return a study as page and gate read it: attacks and use, and no guarantee."""
    return Release(
        kind=KIND,
        title=f"features of layer {details.layer} of {details.model}",
        secret=SECRET,
        method=f"removal of features, by score at τ = {details.scores.threshold:g} nats",
        guarantees=(),
        details=details,
        reproducible=False,
        withheld=HOLDERS,
        digests=digests,
        notes=(NOTHING, details.describe()),
        attacks=_attacks(details),
        use=_use(details),
    )


def recompute(release: Release[FeatureStudy]) -> str:
    """Hold a study's attacks, use and words against what was measured.

    Raises:
        ValueError: they are not those of its details, or something is certified.
    """
    check_rebuilt(release, study_release(release.details, release.digests))
    check_digests(release, ("model", "layer", "features", "public prompts"))
    return ""


STUDIES = Kind(
    name=KIND,
    details=FeatureStudy,
    recompute=recompute,
    record="one prompt",
)


def _attacks(details: FeatureStudy) -> tuple[Attack, ...]:
    found = {f"retrieval by {CODES[name]}": held.top1 for name, held in details.named.items()}
    found[OF_THE_STATE] = details.state.told
    return tuple(
        Attack(name=name, task=TASK, success=Interval(*share, confidence=CONFIDENCE),
               prior=1.0 / details.bank, trials=details.bank)
        for name, share in found.items()
    )  # fmt: skip


def _use(details: FeatureStudy) -> tuple[Use, ...]:
    left = details.replaced[STATE]
    low, high = proportion_interval(left.agreed, details.bank, CONFIDENCE)
    share = Interval(left.agreed / details.bank, low, high, confidence=CONFIDENCE)
    # mean ± Student's standard errors; a KL is not negative
    half = student_errors(details.bank, CONFIDENCE) * left.kl_error
    kl = Interval(left.kl, max(0.0, left.kl - half), left.kl + half, confidence=CONFIDENCE)
    return (
        Use(name="agreement without scaffold", unit="share", better="higher", measured=share),
        Use(name="KL without scaffold", unit="nats", better="lower", measured=kl),
    )


def _check_share(name: str, share: Share) -> None:
    """Refuse what is no share with the ends of its interval."""
    value, low, high = (in_interval(name, one, 0.0, 1.0) for one in share)
    if not low <= value <= high:
        raise ValueError(f"{name}: expected a share between its ends, got {value}, {low}, {high}")
