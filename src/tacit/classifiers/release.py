"""Released logits with their guarantee, what they are worth and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit._ground.checks import Array
from tacit._ground.frozen import read_only
from tacit._ground.reprs import short_repr
from tacit.attacks import BayesAttack
from tacit.classifiers.lists import of_a_list
from tacit.design.base import Design
from tacit.documents import Envelope
from tacit.guarantees import InformationBound, SuccessBound
from tacit.guarantees.reading import guarantee_of
from tacit.measured import Interval
from tacit.releases.form import Attack, Form, Number, Release, Use

ENVELOPE = Envelope("tacit.classifier", 1)
# What stands beside the fields in a stored release.
BESIDE = ("form", "provenance")
# More released logits than this are in the JSON alone.
MOST_NUMBERS = 200
PUBLISHABLE = (
    "logits",
    "guarantee",
    "identification",
    "label_bound",
    "method",
    "reproducible",
    "created",
)


@dataclass(frozen=True, kw_only=True)
class ClassifierAttack:
    """The best possible attackers on simulated releases of inputs drawn from the pool.

    Attributes:
        identification: naming which input of the pool was queried.
        label: naming its label; None without labels.
    """

    identification: BayesAttack
    label: BayesAttack | None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description that ``from_dict`` reads back."""
        label = None if self.label is None else self.label.to_dict()
        return {"identification": self.identification.to_dict(), "label": label}

    @staticmethod
    def from_dict(description: Any) -> ClassifierAttack:
        """Return the attacks that ``to_dict`` described."""
        label = description["label"]
        return ClassifierAttack(
            identification=BayesAttack.from_dict(description["identification"]),
            label=None if label is None else BayesAttack.from_dict(label),
        )


@short_repr
@read_only
@dataclass(frozen=True, eq=False, kw_only=True)
class ClassifierRelease(Release):
    """Noisy logits and everything that may be said about them.

    Attributes:
        logits: (m, c) the numbers to publish, one row per input released, in a random order.
        guarantee: bound on the information one row carries about which input it belongs to, nats.
        identification: what it means for naming that input.
        label_bound: what it means for naming its label; None without labels.
        design: the noise of one row.
        attack: the best possible attackers, measured; None when none was run, or no noise needed.
        accuracy_clean: share of the inputs whose largest clean logit is that of their label.
        accuracy_noisy: the same for the released logits.
        accuracy_interval: Clopper and Pearson's (low, high) for ``accuracy_noisy``, over the noise.
        fano: least information that the measured label accuracy implies, nats, at ``confidence``;
            None where no accuracy over the whole pool was measured.
        confidence: of the intervals, of ``fano`` and of a statistical guarantee, each alone.
        pool_size: n, number of inputs in the pool.
        mi_budget: the budget asked for, in nats.
        output_variance: (c,) variance of each clean logit over the pool.
        method: how the noise was chosen.
        reproducible: whether a seed fixed the randomness, which voids the guarantee.
        seed: the integer seed, when one was given.
        created: time of the draw, ISO 8601, UTC.

    ``accuracy_clean``, ``accuracy_noisy``, its interval and ``fano`` are of the inputs that were
    released, so they tell something of the secret; design, attack and ``output_variance`` follow
    from the pool. All of it is the holder's: what may be published is ``published()``.
    """

    logits: Array
    guarantee: InformationBound
    identification: SuccessBound
    label_bound: SuccessBound | None
    design: Design
    attack: ClassifierAttack | None
    accuracy_clean: float | None
    accuracy_noisy: float | None
    accuracy_interval: tuple[float, float] | None
    fano: float | None
    confidence: float
    pool_size: int
    mi_budget: float
    output_variance: Array
    method: str
    reproducible: bool
    seed: int | None
    created: str

    FORMAT = ENVELOPE.format

    @property
    def form(self) -> Form:
        """The release as report, gate, ledger and commands read it."""
        rows, columns = self.logits.shape
        bounds = [self.identification, *([] if self.label_bound is None else [self.label_bound])]
        found = self.attack
        attacks = [] if found is None else [(found.identification, self.identification.task)]
        if found is not None and found.label is not None and self.label_bound is not None:
            attacks.append((found.label, self.label_bound.task))
        return Form(
            kind="classifier",
            title=f"logits of {rows:,} inputs in {columns:,} classes",
            secret=self.guarantee.secret,
            method=self.method,
            guarantees=(*bounds, self.guarantee),
            attacks=tuple(_attack(measured, task) for measured, task in attacks),
            use=self._use(),
            assumptions=(
                f"the input was drawn uniformly from {self.pool_size:,} known ones",
                *of_a_list(self.guarantee, self.identification.prior, rows),
            ),
            publishable=PUBLISHABLE,
            reproducible=self.reproducible,
            seed=self.seed,
            created=self.created,
        )

    @property
    def numbers(self) -> tuple[Number, ...]:
        """Every released logit with the deviation of its noise; none where there are too many."""
        if self.logits.size > MOST_NUMBERS:
            return ()
        errors = np.sqrt(self.design.covariance.diagonal()).tolist() if self.design.rank else None
        return tuple(
            Number(
                name=f"row {row + 1}, logit[{column}]",
                value=value,
                error=0.0 if errors is None else errors[column],
            )
            for row, values in enumerate(self.logits.tolist())
            for column, value in enumerate(values)
        )

    def _use(self) -> tuple[Use, ...]:
        if self.accuracy_noisy is None or self.accuracy_interval is None:
            return ()
        low, high = self.accuracy_interval
        return (
            Use(
                name="accuracy",
                unit="share",
                better="higher",
                measured=Interval(
                    value=self.accuracy_noisy, low=low, high=high, confidence=self.confidence
                ),
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a description for strict JSON that ``from_dict`` reads back."""
        interval = self.accuracy_interval
        return ENVELOPE.closed(
            {
                **vars(self),
                "logits": self.logits.tolist(),
                "guarantee": self.guarantee.to_dict(),
                "identification": self.identification.to_dict(),
                "label_bound": None if self.label_bound is None else self.label_bound.to_dict(),
                "design": self.design.to_dict(),
                "attack": None if self.attack is None else self.attack.to_dict(),
                "accuracy_interval": None if interval is None else list(interval),
                "output_variance": self.output_variance.tolist(),
                "form": self.form.to_dict(),
            }
        )

    @staticmethod
    def from_dict(description: Any) -> ClassifierRelease:
        """Return the release that ``to_dict`` described.

        Raises:
            ValueError: not the description of a classifier release, or a field is missing.
        """
        return ENVELOPE.opened("description", description, _read)


def _attack(measured: BayesAttack, task: str) -> Attack:
    low, high = measured.interval
    return Attack(
        name="best attack on the exact posterior",
        task=task,
        success=Interval(
            value=measured.success, low=low, high=high, confidence=measured.confidence
        ),
        prior=measured.prior,
        trials=measured.trials,
    )


def _read(description: Mapping[str, Any]) -> ClassifierRelease:
    fields = {name: value for name, value in description.items() if name not in BESIDE}
    attack, interval = fields["attack"], fields["accuracy_interval"]
    labelled = fields["label_bound"] is not None
    return ClassifierRelease(
        **{
            **fields,
            "logits": np.asarray(fields["logits"], dtype=np.float64),
            "guarantee": guarantee_of(
                InformationBound, "description.guarantee", fields["guarantee"]
            ),
            "identification": _success_bound(fields, "identification"),
            "label_bound": _success_bound(fields, "label_bound") if labelled else None,
            "design": Design.from_dict(fields["design"]),
            "attack": None if attack is None else ClassifierAttack.from_dict(attack),
            "accuracy_interval": None if interval is None else (interval[0], interval[1]),
            "output_variance": np.asarray(fields["output_variance"], dtype=np.float64),
        }
    )


def _success_bound(fields: Mapping[str, Any], name: str) -> SuccessBound:
    return guarantee_of(SuccessBound, f"description.{name}", fields[name])
