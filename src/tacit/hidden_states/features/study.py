"""What was measured of a layer's features, as the evidence that page and gate read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit._ground.checks import as_float, choice, in_interval, integer, non_negative
from tacit._ground.reprs import short_repr, shown
from tacit.attacks.intervals import proportion_interval
from tacit.documents import Envelope, check_known
from tacit.hidden_states.features.scored import FeatureScores
from tacit.hidden_states.origin import HOLDERS
from tacit.measured import Interval
from tacit.releases.form import Attack, Form, Release, Use

ENVELOPE = Envelope("tacit.features", 1)
KIND = "hidden-features"
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
# coverage of each interval alone
CONFIDENCE = 0.95


@short_repr
@dataclass(frozen=True, eq=False, kw_only=True)
class FeatureStudy(Release):
    """What ``measure_features`` found.

    Attributes:
        model: its name.
        layer: 1 … L.
        reads: as ``Transcoder.reads``.
        scores: of every feature, on the public prompts.
        bank: prompts of the bank, on which all else is measured.
        share: mean share of a prompt's active features that are backbone.
        margins: ``nearest``, to the nearest other prompt of the bank, and ``step``, to the nearest
            with another last token: of support codes, states and amplitudes.
        replaced: error, KL and agreement by what stands for the MLP's output.
        edits: what flips, by kind of edit, with its base rate.
        kruskal: H and p of equal shares over kinds of edit, or None.
        fibres: overlap of prompts with nearly one prediction, and of prompts at random.
        named: how often each code names its prompt, with an interval.
        state: the same for states without scaffold features, by the attacker who knows the map and
            by one who holds the clean states alone.
        trained: of the transcoder.
        digests: (what, SHA-256) of model, features and prompts.
        created: ISO 8601, UTC.
    """

    model: str
    layer: int
    reads: str
    scores: FeatureScores
    bank: int
    share: float
    margins: Mapping[str, Any]
    replaced: Mapping[str, Any]
    edits: Mapping[str, Any]
    kruskal: list[float] | None
    fibres: Mapping[str, Any]
    named: Mapping[str, Any]
    state: Mapping[str, Any]
    trained: Mapping[str, Any]
    digests: tuple[tuple[str, str], ...]
    created: str

    FORMAT = ENVELOPE.format

    @property
    def form(self) -> Form:
        """The evidence as page and gate read it: attacks and use, and no guarantee."""
        blind = 1.0 / self.bank
        found = {f"retrieval by {CODES[name]}": held["top1"] for name, held in self.named.items()}
        found["retrieval by the state without scaffold features"] = self.state["told"]
        return Form(
            kind=KIND,
            title=f"features of layer {self.layer} of {self.model}",
            secret="the prompt behind the features",
            method=f"removal of features, by score at τ = {self.scores.threshold:g} nats",
            guarantees=(),
            attacks=tuple(
                Attack(name=name, task=TASK, success=_interval(held), prior=blind,
                       trials=self.bank)
                for name, held in found.items()
            ),
            use=self._use(),
            digests=self.digests,
            notes=(NOTHING, HOLDERS, self.describe()),
            reproducible=False,
            created=self.created,
        )  # fmt: skip

    def _use(self) -> tuple[Use, ...]:
        held = self.replaced[STATE]
        low, high = proportion_interval(held["agreed"], self.bank, CONFIDENCE)
        share = Interval(held["agreed"] / self.bank, low, high, confidence=CONFIDENCE)
        half = 1.96 * held["kl_error"]
        kl = Interval(
            held["kl"], max(0.0, held["kl"] - half), held["kl"] + half, confidence=CONFIDENCE
        )
        return (
            Use(name="agreement without scaffold", unit="share", better="higher", measured=share),
            Use(name="KL without scaffold", unit="nats", better="lower", measured=kl),
        )

    def describe(self) -> str:
        """Say in two sentences what removing the scaffold features does."""
        told, held = self.scores.summary(), self.replaced[STATE]
        return (
            f"{told['backbone']} of {told['backbone'] + told['scaffold']} features scored are "
            f"backbone at τ = {self.scores.threshold:g} nats, and {told['exactly_zero']} score "
            f"exactly zero. Without the scaffold features the prediction moves by {held['kl']:.3g} "
            f"nats, and whoever knows the features names {self.state['told'][0]:.3f} of "
            f"{self.bank:,} prompts by the state."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a description for strict JSON that ``from_dict`` reads back."""
        return ENVELOPE.closed(
            {
                **vars(self),
                "scores": self.scores.to_dict(),
                "digests": [list(pair) for pair in self.digests],
                "form": self.form.to_dict(),
            }
        )

    @staticmethod
    def from_dict(description: Any) -> FeatureStudy:
        """Return the study that ``to_dict`` described.

        Raises:
            ValueError: not such a description, or a field is missing or malformed.
        """
        return ENVELOPE.opened("description", description, _read)


def _interval(held: list[float]) -> Interval:
    value, low, high = held
    return Interval(value, low, high, confidence=CONFIDENCE)


SPREAD = dict.fromkeys(("quantiles", "tail", "ratio"))
MARGIN = {
    **dict.fromkeys(("support", "state", "amplitude"), SPREAD),
    **dict.fromkeys(("spearman", "raw", "scored", "ranked")),
}
EDIT = dict.fromkeys(
    (
        "pairs", "flips", "scaffold", "base", "excess", "excess_error", "backbone_flips",
        "scaffold_flips",
    )
)  # fmt: skip
OVERLAP = dict.fromkeys(("pairs", "full", "backbone", "scaffold"))
# what stands for the output, and the kinds of edit; the modules that make them need torch
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
REPLACED = dict.fromkeys(("words", "active", "error", "unexplained", "kl", "kl_error", "agreed"))
# what stands in each part whose fields are no arguments
PARTS: dict[str, dict[str, Any]] = {
    "margins": {"nearest": MARGIN, "step": MARGIN},
    "replaced": dict.fromkeys(CONDITIONS, REPLACED),
    "edits": dict.fromkeys(EDITED, EDIT),
    "fibres": {"kl": None, "close": OVERLAP, "random": OVERLAP},
    "named": dict.fromkeys(CODES, dict.fromkeys(("top1", "distinct"))),
    "state": dict.fromkeys(("told", "blind")),
    "trained": dict.fromkeys(("explained", "active", "dead", "steps", "rows")),
}


def _read(description: Mapping[str, Any]) -> FeatureStudy:
    fields = {k: v for k, v in description.items() if k not in ("form", "provenance")}
    for name in ("layer", "bank"):
        fields[name] = integer(name, fields[name], minimum=1)
    fields["share"] = in_interval("share", fields["share"], 0.0, 1.0)
    fields["scores"] = FeatureScores.from_dict(fields["scores"])
    fields["digests"] = tuple(_pair(entry) for entry in _listed("digests", fields["digests"]))
    for name in ("model", "reads", "created"):
        if not isinstance(fields[name], str):
            raise ValueError(f"{name}: expected text, got {shown(fields[name])}")
    for name in ("margins", "edits", "fibres", "trained"):
        _mapping(name, fields[name])
    if fields["kruskal"] is not None:
        fields["kruskal"] = [
            as_float("kruskal", one) for one in _listed("kruskal", fields["kruskal"], 2)
        ]
    named = _mapping("named", fields["named"])
    for name in {**CODES, **named}:
        held = _mapping(f"named.{choice('named', name, tuple(CODES))}", named[name])
        _share(f"named.{name}.top1", held["top1"])
        integer(f"named.{name}.distinct", held["distinct"], minimum=1, maximum=fields["bank"])
    for name in ("told", "blind"):
        _share(f"state.{name}", _mapping("state", fields["state"])[name])
    for name, held in _mapping("replaced", fields["replaced"]).items():
        _mapping(f"replaced.{name}", held)
        integer(f"replaced.{name}.agreed", held["agreed"], minimum=0, maximum=fields["bank"])
        for number in ("kl", "kl_error"):
            non_negative(f"replaced.{name}.{number}", held[number])
    found = FeatureStudy(**fields)
    for name, known in PARTS.items():
        check_known(name, fields[name], known)
    # what page and gate read is worked out here, so that they meet no field of another kind
    _ = found.form
    return found


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name}: expected a mapping, got {shown(value)}")
    return value


def _listed(name: str, value: Any, count: int | None = None) -> list[Any]:
    if not isinstance(value, list) or count not in (None, len(value)):
        words = "a list" if count is None else f"a list of {count}"
        raise ValueError(f"{name}: expected {words}, got {shown(value)}")
    return value


def _pair(entry: Any) -> tuple[str, str]:
    what, value = _listed("digests", entry, 2)
    if not isinstance(what, str) or not isinstance(value, str):
        raise ValueError(f"digests: expected pairs of texts, got {shown(entry)}")
    return what, value


def _share(name: str, held: Any) -> None:
    """Refuse what is no share with the ends of its interval."""
    value, low, high = (in_interval(name, one, 0.0, 1.0) for one in _listed(name, held, 3))
    if not low <= value <= high:
        raise ValueError(f"{name}: expected a share between its ends, got {value}, {low}, {high}")
