"""A trained adapter's guarantees, what it is good for and what was measured against it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from tacit._ground.checks import integer, non_negative
from tacit._ground.reprs import short_repr, shown
from tacit.accounting import PrivacyProfile
from tacit.gradients.methods import (
    DPSGD,
    DPLoRAFA,
    LoRAFA,
    Method,
    NoisyProjection,
    WithoutClipping,
)
from tacit.gradients.methods import Schedule
from tacit.documents import Envelope, decoded, encoded
from tacit.guarantees import ApproximateDP, SuccessBound, guarantee_from_dict
from tacit.guarantees.agreement import agree
from tacit.guarantees.base import Guarantee
from tacit.releases.form import Attack, Form, Release, Use

ENVELOPE = Envelope("tacit.adapter", 1)
BESIDE = ("form", "provenance")
PUBLISHABLE = (
    "title", "method", "settings", "schedule", "noise_multiplier", "delta", "guarantees", "layers",
    "records", "adapter", "model", "created",
)  # fmt: skip
METHODS: dict[str, type[Method]] = {
    kind.name: kind for kind in (DPSGD, DPLoRAFA, NoisyProjection, WithoutClipping, LoRAFA)
}
ADJACENCY = "add or remove one record"
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
DECLARED = "the sampling rate and the records expected in a step were declared without the records"
# Of noise that is added once after several steps.
CONVEX = "a record's loss is convex in the layer, and its curvature is at most the smoothness given"
PUBLISHED = (
    "The adapter may be published with A. Losses and shares of clipped records are measured on the "
    "records without noise and may not."
)
UNPROTECTED = (
    "This adapter has no guarantee: neither A nor B nor BA may be published. A noiseless B beside "
    "a public or guessed A tells the gradients it was made of (lora-privacy, Proposition 2)."
)
PROPOSITION_2 = "lora-privacy, Proposition 2"


@short_repr
@dataclass(frozen=True, eq=False, kw_only=True)
class AdapterRelease(Release):
    """A trained adapter and everything that may be said about it.

    Attributes:
        title: what was trained.
        method: its name.
        settings: of the method.
        schedule: sampling rate, steps and widths.
        noise_multiplier: of the noise; 0 where there is none.
        delta: δ at which ε is told.
        layers: names of what is adapted.
        records: n, where it is taken as public; None where the sampling rate was declared.
        guarantees: what is certified, the headline first.
        adapter: digest of the tensors.
        model: digest of the model that it belongs to, before training.
        attacks: what was measured against it.
        use: what it is good for.
        notes: what a reader should know.
        reproducible: whether a seed fixed coins and noise, which voids the guarantees.
        seed: the seed, when one was given.
        created: ISO 8601, UTC.
    """

    title: str
    method: str
    settings: Mapping[str, Any]
    schedule: Schedule
    noise_multiplier: float
    delta: float
    layers: tuple[str, ...]
    records: int | None
    guarantees: tuple[Guarantee, ...]
    adapter: str
    model: str
    attacks: tuple[Attack, ...]
    use: tuple[Use, ...]
    notes: tuple[str, ...]
    reproducible: bool
    seed: int | None
    created: str

    FORMAT = ENVELOPE.format

    @property
    def form(self) -> Form:
        """The release as report, gate, ledger and commands read it."""
        protected = self.noise_multiplier > 0.0
        return Form(
            kind="adapter",
            title=self.title,
            secret="whether any one record was trained on",
            method=self.method,
            guarantees=self.guarantees,
            attacks=self.attacks,
            use=self.use,
            digests=(("adapter", self.adapter), ("model", self.model)),
            notes=self.notes,
            publishable=PUBLISHABLE if protected else (),
            reproducible=self.reproducible,
            seed=self.seed,
            created=self.created,
        )

    def publishable_part(self) -> AdapterRelease:
        """Return the release without what was measured on records: what goes with the adapter."""
        return replace(self, attacks=(), use=(), notes=self.notes[:1])

    def to_dict(self) -> dict[str, Any]:
        """Return a description for strict JSON that ``from_dict`` reads back."""
        form = self.form.to_dict()
        return ENVELOPE.closed(
            {
                **vars(self),
                "settings": {name: encoded(value) for name, value in self.settings.items()},
                "schedule": {**asdict(self.schedule), "dims": list(self.schedule.dims)},
                "layers": list(self.layers),
                **{name: form[name] for name in ("guarantees", "attacks", "use", "notes")},
                "form": form,
            }
        )

    @staticmethod
    def from_dict(description: Any) -> AdapterRelease:
        """Return the release that ``to_dict`` described.

        Raises:
            ValueError: not the description of an adapter, a field is missing, or the certificate is
                not what the settings give.
        """
        return ENVELOPE.opened("description", description, _read)


def check_method(method: Any) -> None:
    """Refuse what is no method of this package."""
    if type(method) not in METHODS.values():
        raise ValueError(
            f"method: expected one of tacit.adapters ({', '.join(METHODS)}), got {shown(method)}"
        )


def settings_of(method: Method) -> dict[str, Any]:
    """Return the fields of a method."""
    return asdict(method)


def certified(
    method: Method,
    schedule: Schedule,
    noise_multiplier: float,
    delta: float,
    records: int | None,
) -> tuple[Guarantee, ...]:
    """Return the success at even odds and (ε, δ) of a run; ε = ∞ without noise.

    Args:
        method: of the run.
        schedule: of the run.
        noise_multiplier: of its noise; 0 without.
        delta: δ.
        records: n, where it is taken as public; None where the sampling rate was declared.

    Source: lora-privacy, Algorithms 2 to 4; the Neyman-Pearson lemma.
    """
    common = (*ASSUMPTIONS, DECLARED if records is None else COUNTED)
    if noise_multiplier == 0.0:
        return (
            ApproximateDP(
                epsilon=math.inf,
                delta=delta,
                adjacency=ADJACENCY,
                evidence="theorem",
                assumptions=common,
                source=PROPOSITION_2,
            ),
        )
    profile = _profile(method, noise_multiplier, schedule)
    convex = [CONVEX] if isinstance(method, WithoutClipping) and schedule.steps > 1 else []
    assumptions = tuple(dict.fromkeys([*profile.assumptions, *common, *convex]))
    success = profile.success()
    return (
        SuccessBound(
            success=success.success,
            prior=success.prior,
            task=f"which of two neighbouring inputs ({ADJACENCY}) was used",
            law=success.law,
            evidence=success.evidence,
            assumptions=assumptions,
            source=f"{success.source}; the Neyman-Pearson lemma",
        ),
        ApproximateDP(
            epsilon=profile.epsilon(delta),
            delta=delta,
            adjacency=ADJACENCY,
            evidence="numerical",
            assumptions=assumptions,
            source=profile.source,
        ),
    )


@lru_cache(maxsize=8)
def _profile(method: Method, noise_multiplier: float, schedule: Schedule) -> PrivacyProfile:
    """Composing many steps takes a second, and a certificate is asked for more than once."""
    return method.profile(noise_multiplier, schedule)


def _read(description: Mapping[str, Any]) -> AdapterRelease:
    fields = {name: value for name, value in description.items() if name not in BESIDE}
    form = Form.from_dict(description["form"])
    schedule = fields["schedule"]
    release = AdapterRelease(
        **{
            **fields,
            "settings": {name: decoded(value) for name, value in fields["settings"].items()},
            "schedule": Schedule(**{**schedule, "dims": tuple(schedule["dims"])}),
            "layers": tuple(map(str, fields["layers"])),
            "guarantees": tuple(guarantee_from_dict(held) for held in fields["guarantees"]),
            "attacks": form.attacks,
            "use": form.use,
            "notes": tuple(fields["notes"]),
        }
    )
    _check(release)
    return release


def _check(release: AdapterRelease) -> None:
    """Refuse a description whose certificate is not that of its settings.

    Raises:
        ValueError: names what contradicts what.
    """
    kind = METHODS.get(release.method)
    if kind is None:
        raise ValueError(f"description.method: expected one of {', '.join(METHODS)}")
    method = kind(**release.settings)
    non_negative("description.noise_multiplier", release.noise_multiplier)
    if (kind is LoRAFA) != (release.noise_multiplier == 0.0):
        raise ValueError("description.noise_multiplier: expected one for every method with noise")
    if release.records is not None:
        integer("description.records", release.records, minimum=1, maximum=None)
    if release.seed is not None:
        integer("description.seed", release.seed, minimum=0, maximum=None)
        if not release.reproducible:
            raise ValueError("description.reproducible: expected true beside a seed, got false")
    if len(release.layers) != len(release.schedule.dims):
        raise ValueError("description.layers: expected one for each width")
    told = certified(
        method, release.schedule, release.noise_multiplier, release.delta, release.records
    )
    if not agree(release.guarantees, told):
        raise ValueError("description.guarantees: expected what the settings certify, got others")
    first = PUBLISHED if release.noise_multiplier > 0.0 else UNPROTECTED
    if release.notes[:1] != (first,):
        raise ValueError("description.notes: expected what may be published first, got another")
