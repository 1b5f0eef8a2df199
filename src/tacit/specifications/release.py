"""A specification's release: the file, what is certified of it, and what it is about."""

from __future__ import annotations

import base64
import binascii
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit._ground.checks import in_interval, integer, non_negative
from tacit._ground.files import write_text_atomic
from tacit._ground.reprs import short_repr, shown
from tacit.documents import Envelope, dumps
from tacit.guarantees import ApproximateDP, GaussianDP, SuccessBound
from tacit.guarantees.agreement import agree
from tacit.guarantees.base import Guarantee
from tacit.releases.form import Attack, Form, Release, Use
from tacit.specifications.schedule import Schedule
from tacit.specifications.specification import Specification, specification_from_bytes

ENVELOPE = Envelope("tacit.specification-release", 1)
BESIDE = ("form", "provenance")
PUBLISHABLE = (
    "title", "specification", "backbone", "records", "classes", "mu", "delta", "targets",
    "schedule", "guarantees", "created",
)  # fmt: skip
ADJACENCY = "replace one record"
SOURCE = "pave, Algorithm 1 in one step, the joined factor clipped once; Balle and Wang (2018)"
SOURCE_OF_STEPS = "pave, Theorem 3.9, the joined factor clipped once; docs/explanation/sampling.md"
SAMPLED = "every record is in a step by a coin of its own, and nobody learns which records were"
ONE_STEP = Schedule()
TARGETS = ("labels", "independent", "given-model")
ASSUMPTIONS = (
    "the backbone, A, the subspace, the clip, the classes, the number of records and every "
    "setting were chosen without looking at the records",
    "the backbone's features of a record depend on that record alone",
    "whether every record could be read, and is of a declared class, is not hidden",
)
GIVEN_MODEL = (
    "the model whose outputs are described is known to the attacker already, and is held fixed: "
    "what it tells about the records it was trained on is not counted"
)
INDEPENDENT = "the model whose outputs are described was not trained on these records"
PROTECTED = (
    "The specification may be published, with A and with BA: everything made of it is "
    "post-processing."
)
BARE = (
    "This specification has no guarantee: neither it nor BA may be published. It is a mean of "
    "gradients, from which records have been read back."
)
BARE_MEAN = (
    "This specification has no guarantee and may not be published. It is a mean of features of its "
    "records, from which records have been read back."
)
SCATTER_NOTE = (
    "Class means are drawn with noise of their own first, and counted: the scatter of a release "
    "cannot be worked out record by record."
)


@short_repr
@dataclass(frozen=True, eq=False, kw_only=True)
class SpecificationRelease(Release):
    """A specification and everything that may be said about it.

    Attributes:
        title: what is described.
        specification: the file, with its manifest.
        backbone: name of the shared network.
        records: n, how many records were described.
        classes: K, how many classes they are of.
        mu: distance of two neighbours' sums in a step in units of the noise; inf without noise.
        delta: δ at which ε is told.
        targets: ``"labels"``, or how the model was come by whose outputs are described.
        schedule: of the steps.
        guarantees: what is certified, the headline first; none without noise.
        attacks: what was measured against it.
        use: what it is good for.
        notes: what a reader should know.
        reproducible: whether a seed fixed the noise, which voids the guarantees.
        seed: the seed, when one was given.
        created: ISO 8601, UTC.
    """

    title: str
    specification: Specification
    backbone: str
    records: int
    classes: int
    mu: float
    delta: float
    targets: str
    schedule: Schedule
    guarantees: tuple[Guarantee, ...]
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
        space = self.specification.space
        return Form(
            kind="specification",
            title=self.title,
            secret="any one record that is described",
            method=self.specification.method,
            guarantees=self.guarantees,
            attacks=self.attacks,
            use=self.use,
            digests=(
                ("specification", self.specification.revision),
                ("space", space.digest),
                ("backbone", space.backbone),
            ),
            notes=self.notes,
            publishable=PUBLISHABLE if math.isfinite(self.mu) else (),
            reproducible=self.reproducible,
            seed=self.seed,
            created=self.created,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a description for strict JSON that ``from_dict`` reads back."""
        form = self.form.to_dict()
        return ENVELOPE.closed(
            {
                **vars(self),
                "specification": base64.b64encode(self.specification.to_bytes()).decode(),
                "mu": "Infinity" if math.isinf(self.mu) else self.mu,
                "schedule": vars(self.schedule),
                **{name: form[name] for name in ("guarantees", "attacks", "use", "notes")},
                "form": form,
            }
        )

    @staticmethod
    def from_dict(description: Any) -> SpecificationRelease:
        """Return the release that ``to_dict`` described.

        Raises:
            ValueError: not the description of a specification, a field is missing, or the
                certificate is not what the noise gives.
        """
        return ENVELOPE.opened("description", description, _read)

    def publishable_part(self) -> SpecificationRelease:
        """Return the release without what was measured on records: what goes with the file."""
        return replace(self, attacks=(), use=())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the specification to ``path``, and this release beside it as ``….json``.

        Raises:
            ValueError: one of them cannot be written.
        """
        place = Path(os.fspath(path))
        self.specification.save(place)
        text = dumps(self.publishable_part().to_dict(), indent=2) + "\n"
        write_text_atomic("path", place.with_suffix(".json"), text)


def certified(
    mu: float, delta: float, targets: str, schedule: Schedule = ONE_STEP
) -> tuple[Guarantee, ...]:
    """Return the success at even odds, μ where there is one, and (ε, δ); none without noise.

    Args:
        mu: distance of two neighbours' sums in a step, in standard deviations of the noise.
        delta: δ.
        targets: as of a ``SpecificationRelease``.
        schedule: of the steps; on samples there is no μ.

    Source: pave, Theorem 3.9 for one step; Dong, Roth and Su (2022); Balle and Wang (2018).
    """
    if math.isinf(mu):
        return ()
    profile = schedule.profile(mu)
    beside = {"labels": (), "independent": (INDEPENDENT,), "given-model": (GIVEN_MODEL,)}[targets]
    success = profile.success()
    full = schedule.sampling_rate == 1.0
    rest: dict[str, Any] = {
        "evidence": "theorem" if full else "numerical",
        "assumptions": (*ASSUMPTIONS, *(() if full else (SAMPLED,)), *beside),
        "source": SOURCE if schedule.single else SOURCE_OF_STEPS,
    }
    shift = (GaussianDP(mu=schedule.distance(mu), adjacency=ADJACENCY, **rest),) if full else ()
    return (
        SuccessBound(
            success=success.success,
            prior=success.prior,
            task=f"which of two neighbouring inputs ({ADJACENCY}) was used",
            law=success.law,
            **rest,
        ),
        *shift,
        ApproximateDP(epsilon=profile.epsilon(delta), delta=delta, adjacency=ADJACENCY, **rest),
    )


def notes_of(mu: float, objective: str, schedule: Schedule) -> tuple[str, ...]:
    """Return what a reader should know of a specification: nothing else is said in its file.

    Args:
        mu: as of ``certified``.
        objective: of the specification; with noise and ``"scatter"`` class means were drawn first.
        schedule: of the steps.
    """
    if math.isinf(mu):
        first: tuple[str, ...] = (BARE_MEAN if objective == "mean" else BARE,)
    else:
        first = (PROTECTED, *((SCATTER_NOTE,) if objective == "scatter" else ()))
    return (*first, *(() if schedule.single else (schedule.sentence,)))


def _read(description: Mapping[str, Any]) -> SpecificationRelease:
    held = {name: value for name, value in description.items() if name not in BESIDE}
    form = Form.from_dict(description["form"])
    try:
        content = base64.b64decode(held["specification"], validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise ValueError("description.specification: expected base64 of a file") from None
    specification = specification_from_bytes(content, name="description.specification")
    release = SpecificationRelease(
        **{
            **held,
            "specification": specification,
            "schedule": _schedule(held["schedule"]),
            "mu": non_negative("description.mu", _number(held["mu"]), allow_inf=True),
            "guarantees": form.guarantees,
            "attacks": form.attacks,
            "use": form.use,
            "notes": tuple(held["notes"]),
        }
    )
    _check(release)
    if release.form.digests != form.digests:
        raise ValueError("description.specification: expected the one that its form is about")
    return release


def _schedule(held: Any) -> Schedule:
    names = {"steps", "sampling_rate", "step_size"}
    if not isinstance(held, Mapping) or set(held) != names:
        raise ValueError(f"description.schedule: expected {', '.join(sorted(names))}")
    return Schedule.checked(**held)


def _number(value: Any) -> Any:
    return math.inf if value == "Infinity" else value


def _check(release: SpecificationRelease) -> None:
    """Refuse a description whose certificate is not that of its noise."""
    integer("description.records", release.records, minimum=1)
    integer("description.classes", release.classes, minimum=2)
    in_interval("description.delta", release.delta, 0.0, 1.0, open_low=True, open_high=True)
    if release.targets not in TARGETS:
        raise ValueError(
            f"description.targets: expected one of {', '.join(TARGETS)}, got "
            f"{shown(release.targets)}"
        )
    if release.seed is not None and not release.reproducible:
        raise ValueError("description.reproducible: expected true beside a seed, got false")
    told = certified(release.mu, release.delta, release.targets, release.schedule)
    if not agree(release.guarantees, told):
        raise ValueError("description.guarantees: expected what the noise certifies, got others")
    if not agree(release.specification.guarantees, () if release.reproducible else told):
        raise ValueError(
            "description.specification: expected the guarantees of this release in its manifest"
        )
    method = "compact" if math.isinf(release.mu) else "dp"
    if release.specification.method != method:
        raise ValueError(f"description.specification: expected one of the method {method!r}")
    notes = notes_of(release.mu, release.specification.space.output, release.schedule)
    if not release.notes == release.specification.notes == notes:
        raise ValueError("description.notes: expected what follows from the noise, got others")
