"""Describe a model or a task on a shared backbone, prepared before anything is drawn."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from tacit._ground.checks import RandomSource, generator, is_reproducible
from tacit._ground.frozen import read_only
from tacit.releases import Expected, Prepared, Release
from tacit.releases.prepared import Book, check_digest
from tacit.releases.promises import check_promise
from tacit.specifications.backbones.backbone import digest_of
from tacit.specifications.backbones.loading import VISION, load_backbone
from tacit.specifications.backbones.vision import size_of
from tacit.specifications.coordinates import check_apart
from tacit.specifications.mechanism import DescribedSubject, DescriptionRequest, describe_mean
from tacit.specifications.methods import (
    Description,
    LabelCodes,
    Objective,
    ReplacedRecord,
    class_names,
)
from tacit.specifications.objectives import weights_of
from tacit.specifications.release import (
    BARE_METHOD,
    KIND,
    NOISY,
    SECRET,
    CertifiedSpecification,
    bare_note,
    certified,
    notes_of,
)
from tacit.specifications.schedule import DELTA
from tacit.specifications.spaces import PUBLIC, space_of, subspace_of
from tacit.specifications.specification import Specification, SpecificationSpace
from tacit.specifications.stepping import refuse_made_weights, take_steps
from tacit.specifications.subspace import PublicSubspace

BY_LABELS, A_MODEL = LabelCodes(), Description()
OUTPUTS = (
    "targets: expected 'independent' or 'given-model' beside a model or its outputs: where it was "
    "trained on these records, one of them changes every target, and no noise for one record's "
    "share covers that (say 'given-model', or describe the labels)"
)


def prepare_specification(
    model_or_labels: Any,
    data: Any,
    promise: ReplacedRecord | None,
    objective: Objective = BY_LABELS,
    *,
    about: Description = A_MODEL,
    backbone: Any = VISION,
    space: Any = PUBLIC,
    rng: RandomSource = None,
) -> PreparedSpecification:
    """Certify a specification of a model or a task before anything of it is drawn.

    With G_i the gradient of record i's loss by a shared layer at θ₀ and A that layer's shared
    Gaussian factor, a record's coordinates are ``y_i = Dᵀ (vec(G_i Aᵀ) − c)``, all layers joined,
    clipped once to ``‖y_i‖ ≤ C``, and

        τ = (1/n) Σ_i y_i + N(0, σ² I),   neighbours differ by at most Δ = 2C/n,

    one Gaussian mechanism whose whole profile is that of N(0, 1) against N(Δ/σ, 1). What is public
    (D, c, C) comes from public tasks. With ``ClassScatter`` the class means that the losses are
    made of are drawn with noise first, and both mechanisms count. With ``FeatureMean`` there is no
    loss: y_i is the record's feature, whitened by public ones. With several steps the network moves
    after every noisy step, and τ is the mean of all.

    Args:
        model_or_labels: (n,) labels; (n, K) probabilities or other numbers >= 0 by class, which
            with noise need ``targets``; or a model, a callable from the data to such probabilities.
        data: n records as the backbone reads them.
        promise: ``ReplacedRecord(epsilon=…)``; None for no noise and no guarantee, to be kept.
        objective: ``LabelCodes``, ``ClassScatter`` or ``FeatureMean``: what is described of the
            records, with the clip and the steps.
        about: a model or a task, its classes and what the labels are.
        backbone: as ``load_backbone`` takes it.
        space: ``"public"``, the subspace that comes with a built-in backbone; a ``PublicSubspace``;
            or ``SharedFactors``, for all Σ m_ℓ r numbers of the layers.
        rng: None draws from the operating system. A seed makes the noise reproducible, which voids
            the guarantee and is recorded.

    Returns:
        The ``PreparedSpecification``: the guarantees, the error of every number, and ``draw``.

    Raises:
        ValueError: a bad argument; a model's outputs without saying what it was trained on; or
            noise without classes or a clip.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> images, labels = rng.uniform(size=(40, 28, 28)), np.arange(40) % 2
        >>> prepared = prepare_specification(
        ...     labels, images, ReplacedRecord(epsilon=1.0), about=Description(classes=2)
        ... )
        >>> print(f"{prepared.guarantees[2].epsilon:.3f} at {prepared.guarantees[2].delta}")
        1.000 at 1e-05

    Source: pave, Eq. 1 to 6, Algorithm 1 and Theorem 3.9, with one clip.
    """
    if promise is not None:
        check_promise(promise, ReplacedRecord)
    if not isinstance(objective, get_args(Objective)):
        named = ", ".join(kind.__name__ for kind in get_args(Objective))
        raise ValueError(f"objective: expected one of {named}, got {type(objective).__name__}")
    if not isinstance(about, Description):
        raise ValueError(f"about: expected a Description, got {type(about).__name__}")
    word, schedule = objective.word, objective.schedule
    shared = load_backbone(backbone)
    subspace = subspace_of(shared, space, word)
    parts = shared.prepare(data)
    count = len(parts[0])
    # what is pulled to what: every record's shares of the classes
    held = _targets_of(model_or_labels, data, about.targets)
    names = _classes(about.classes, held, promise)
    shares = weights_of(held, names, count, given="model_or_labels")
    if promise is not None and about.targets == "labels":
        _check_labels(held)
    place, frame = space_of(shared, space if subspace is None else subspace, word)
    # the clip bounds one record only where its row is its own
    check_apart(shared, parts, None if word == "mean" else frame)
    if not schedule.single:
        refuse_made_weights(shared, frame)
    asked = DescriptionRequest(
        objective=word,
        names=names,
        frame=frame,
        clip=_clip(objective.clip, subspace, promise),
        subspace=subspace,
        schedule=schedule,
    )
    # the least σ/Δ that keeps (ε, δ), rounded up; 0 for no noise
    delta = DELTA if promise is None else promise.delta
    multiplier = 0.0 if promise is None else schedule.multiplier(promise.epsilon, delta)
    mu = 1.0 / multiplier if multiplier else math.inf
    guarantees = certified(mu, delta, about.targets, schedule)
    # what the draw reads is its own, whatever becomes of the caller's
    subject = DescribedSubject(
        shared.of_tensors(), tuple(part.clone() for part in parts), shares.detach().clone()
    )
    # of a scatter nothing is known before its class means have their noise
    known = describe_mean(subject, asked, multiplier, None) if word != "scatter" else None
    error = asked.error(count, multiplier)
    return PreparedSpecification(
        guarantees=guarantees,
        spends=guarantees[1:2],
        expected=tuple(
            Expected(name=f"number[{number}]", error=error) for number in range(place.size)
        ),
        description=f"specification of {count} records on {shared.name}",
        reproducible=is_reproducible(rng),
        title=about.title or f"{about.kind} on {shared.name}",
        about=about,
        inputs=size_of(data) if shared.modality == "image" else "",
        space=place,
        asked=copy.deepcopy(asked),
        subject=subject,
        network=digest_of(shared.module, None),
        known=known,
        multiplier=multiplier,
        delta=delta,
        seed=int(rng) if isinstance(rng, int | np.integer) else None,
        source=None if rng is None else generator(rng),
    )


def specify(
    model_or_labels: Any,
    data: Any,
    promise: ReplacedRecord | None,
    objective: Objective = BY_LABELS,
    *,
    ledger: Book | None = None,
    secret: str | None = None,
    no_budget: bool = False,
    **options: Any,
) -> Release[CertifiedSpecification]:
    """Describe a model or a task: ``prepare_specification`` and ``draw`` in one call.

    Args:
        model_or_labels: as in ``prepare_specification``.
        data: as there.
        promise: as there.
        objective: as there.
        ledger: a ``tacit.Ledger`` that counts the cost before anything is drawn.
        secret: name of the records in the ledger.
        no_budget: release though the secret has no budget and others have one.
        **options: the other arguments of ``prepare_specification``.

    Returns:
        The release; ``details.specification`` is what is published and compared.

    Raises:
        ValueError: as ``prepare_specification``, or the ledger refuses.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> images, labels = rng.uniform(size=(40, 28, 28)), np.arange(40) % 2
        >>> about = Description(classes=["cat", "dog"])
        >>> release = specify(labels, images, ReplacedRecord(epsilon=1.0), about=about)
        >>> release.details.specification.vector.shape, release.kind
        ((48,), 'specification')

    Source: pave, Eq. 1 to 6, Algorithm 1.
    """
    prepared = prepare_specification(model_or_labels, data, promise, objective, **options)
    return prepared.draw(ledger=ledger, secret=secret, no_budget=no_budget)


@read_only
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PreparedSpecification(Prepared[CertifiedSpecification]):
    """A specification that is certified and not yet drawn; for the holder of the records.

    Attributes:
        title: what is described, for the page.
        about: a model or a task, its classes and what the labels are.
        inputs: height and width of pictures.
        space: what the specification may be compared in.
        asked: how the records are described.
        subject: the records, their own.
        network: digest of the backbone.
        known: (k,) the mean before its noise, where that does not depend on any.
        multiplier: σ/Δ of a step; 0 for no noise.
        delta: δ at which ε is told.
        seed: the integer seed, where one was given.
        source: the generator that the draw uses; None for the operating system's.
    """

    title: str
    about: Description
    inputs: str
    space: SpecificationSpace
    asked: DescriptionRequest = field(repr=False)
    subject: DescribedSubject = field(repr=False)
    network: str = field(repr=False)
    known: NDArray[np.float64] | None = field(repr=False)
    multiplier: float
    delta: float
    seed: int | None
    source: np.random.Generator | None = field(repr=False)

    def _check_unchanged(self) -> None:
        check_digest("backbone", digest_of(self.subject.backbone.module, None), self.network)

    def _drawn(self) -> Release[CertifiedSpecification]:
        created = datetime.now(UTC).isoformat(timespec="seconds")
        mu = 1.0 / self.multiplier if self.multiplier else math.inf
        word, schedule = self.asked.objective, self.asked.schedule
        notes = notes_of(mu, word, schedule)
        method = NOISY if self.multiplier else BARE_METHOD
        specification = Specification(
            kind=self.about.kind,
            space=self.space,
            factors=_split(self._draw_numbers(), self.space),
            method=method,
            # a draw that can be repeated is certified in no file
            guarantees=() if self.reproducible else self.guarantees,
            created=created,
            notes=notes,
            classes=self.asked.names,
            inputs=self.inputs,
        )
        details = CertifiedSpecification(
            specification=specification,
            backbone=self.subject.backbone.name,
            records=self.subject.count,
            classes=len(self.asked.names),
            mu=mu,
            delta=self.delta,
            targets=self.about.targets,
            schedule=schedule,
        )
        return Release(
            kind=KIND,
            title=self.title,
            secret=SECRET,
            method=method,
            guarantees=self.guarantees,
            details=details,
            created=created,
            reproducible=self.reproducible,
            seed=self.seed,
            withheld="" if self.multiplier else bare_note(word),
            digests=details.digests,
            notes=notes,
        )

    def _draw_numbers(self) -> NDArray[np.float64]:
        count, asked = self.subject.count, self.asked
        if not asked.schedule.single:
            error = asked.error_of_a_step(count, self.multiplier)
            return take_steps(self.subject, asked, asked.schedule, error, self.source)
        clean = self.known
        if clean is None:
            clean = describe_mean(self.subject, asked, self.multiplier, self.source)
        return asked.add_noise(clean, count, self.multiplier, self.source)


def _split(
    values: NDArray[np.float64], space: SpecificationSpace
) -> dict[str, NDArray[np.float32]]:
    """Return the numbers as the float32 factor of every layer."""
    found, start = {}, 0
    for name, (rows, columns) in zip(space.layers, space.shapes, strict=True):
        end = start + rows * columns
        found[name] = values[start:end].reshape(rows, columns).astype(np.float32)
        start = end
    return found


def _targets_of(model_or_labels: Any, data: Any, targets: str) -> Any:
    if not callable(model_or_labels):
        return model_or_labels
    if targets == "labels":
        raise ValueError(OUTPUTS)
    # a model is asked once, before anything is counted
    found = model_or_labels(data)
    return found.detach().cpu().numpy() if hasattr(found, "detach") else np.asarray(found)


def _check_labels(held: Any) -> None:
    """Refuse what looks like a model's outputs where nothing is said of the model."""
    if np.ndim(held) != 2:
        return
    # one-hot rows are labels; probabilities are what a model says
    rows = np.asarray(held)
    if not (((rows == 0) | (rows == 1)).all() and (rows.sum(axis=1) == 1).all()):
        raise ValueError(OUTPUTS)


def _classes(
    classes: tuple[str, ...] | None, held: Any, promise: ReplacedRecord | None
) -> tuple[str, ...]:
    if classes is not None:
        return classes
    given = np.asarray(held)
    if given.ndim == 2:
        return class_names(int(given.shape[1]))
    if promise is not None:
        raise ValueError(
            "classes: expected their number or names, which are public and which the labels must "
            "not decide, got None"
        )
    return class_names(sorted({str(value) for value in given.ravel().tolist()}))


def _clip(
    clip: float | None, subspace: PublicSubspace | None, promise: ReplacedRecord | None
) -> float:
    if clip is not None:
        return clip
    if subspace is not None:
        return float(subspace.clip)
    if promise is not None:
        raise ValueError(
            "clip: expected a length chosen without looking at the records where there is no "
            "public subspace, got None"
        )
    return math.inf
