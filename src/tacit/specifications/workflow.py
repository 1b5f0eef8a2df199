"""Describe a model or a task on a shared backbone, prepared before anything is drawn."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from tacit._ground.checks import (
    RandomSource,
    choice,
    generator,
    in_interval,
    is_reproducible,
)
from tacit._ground.frozen import read_only
from tacit._ground.reprs import shown
from tacit.releases.prepared import Book, Expected, Prepared, check_digest
from tacit.specifications.backbones.backbone import chosen_layers, digest_of
from tacit.specifications.backbones.loading import VISION, load_backbone
from tacit.specifications.backbones.vision import size_of
from tacit.specifications.coordinates import check_apart
from tacit.specifications.measured import Asked, Subject, described
from tacit.specifications.objectives import OBJECTIVES, class_names, weights_of
from tacit.specifications.release import (
    TARGETS,
    SpecificationRelease,
    certified,
    notes_of,
)
from tacit.specifications.schedule import Schedule
from tacit.specifications.spaces import PUBLIC, space_of, subspace_of
from tacit.specifications.specification import KINDS, Space, Specification
from tacit.specifications.stepping import stepped

METHODS = ("dp", "compact")
DELTA = 1e-5
# so that float32 holds what is published
MOST_CLIP = 1e30
OUTPUTS = (
    "targets: expected 'independent' or 'given-model' beside a model or its outputs: where it was "
    "trained on these records, one of them changes every target, and no noise for one record's "
    "share covers that (say 'given-model', or describe the labels)"
)


class Options(TypedDict, total=False):
    """The options of ``prepare_specification``."""

    kind: str
    objective: str
    classes: Any
    targets: str
    rank: int | None
    layers: Sequence[str] | None
    subspace: Any
    factor: int
    method: str
    epsilon: float | None
    delta: float
    clip: float | None
    steps: int
    sampling_rate: float
    step_size: float
    title: str | None
    rng: RandomSource


def prepare_specification(
    model_or_labels: Any,
    data: Any,
    backbone: Any = VISION,
    *,
    kind: str = "model",
    objective: str = "labels",
    classes: Any = None,
    targets: str = "labels",
    rank: int | None = None,
    layers: Sequence[str] | None = None,
    subspace: Any = PUBLIC,
    factor: int = 0,
    method: str = "dp",
    epsilon: float | None = None,
    delta: float = DELTA,
    clip: float | None = None,
    steps: int = 1,
    sampling_rate: float = 1.0,
    step_size: float = 0.05,
    title: str | None = None,
    rng: RandomSource = None,
) -> PreparedSpecification:
    """Certify a specification of a model or a task before anything of it is drawn.

    With G_i the gradient of record i's loss by a shared layer at θ₀ and A that layer's shared
    Gaussian factor, a record's coordinates are ``y_i = Dᵀ (vec(G_i Aᵀ) − c)``, all layers joined,
    clipped once to ``‖y_i‖ ≤ C``, and

        τ = (1/n) Σ_i y_i + N(0, σ² I),   neighbours differ by at most Δ = 2C/n,

    one Gaussian mechanism whose whole profile is that of N(0, 1) against N(Δ/σ, 1). What is public
    (D, c, C) comes from public tasks. With ``objective="scatter"`` the class means that the losses
    are made of are drawn with noise first, and both mechanisms count. With ``objective="mean"``
    there is no loss: y_i is the record's feature, whitened by public ones. With ``steps=T`` the
    network moves after every noisy step, and τ is the mean of all T.

    Args:
        model_or_labels: (n,) labels; (n, K) probabilities or other numbers >= 0 by class, which
            with noise need ``targets``; or a model, a callable from the data to such probabilities.
        data: n records as the backbone reads them.
        backbone: as ``load_backbone`` takes it.
        kind: ``"model"``, what a model can do, or ``"task"``, what a user asks for.
        objective: ``"labels"``: every class is pulled to the code of its name, so that models and
            tasks must call classes alike. ``"scatter"``: classes are pulled apart, whatever they
            are called. ``"mean"``: what the inputs are, whatever their labels.
        classes: K, or their names, which are public: the labels do not decide them. With
            ``method="compact"`` they may be left to the labels.
        targets: ``"labels"``; for a model's outputs ``"independent"``, where it was not trained on
            these records, or ``"given-model"``, where it was: one record may then change every
            target, and the guarantee is for an attacker to whom the model is known already.
        rank: r of the compact factors; the subspace's, or 8 without one.
        layers: names; the subspace's, or the backbone's without one.
        subspace: ``"public"``, that which comes with a built-in backbone; None for all Σ m_ℓ r
            numbers; or a ``PublicSubspace``.
        factor: seed of A, a public number that all share, where there is no subspace.
        method: ``"dp"``, or ``"compact"``: no noise and no guarantee, to be kept.
        epsilon: ε > 0 of ``"dp"``, for replacing one record.
        delta: δ in (0, 1).
        clip: C > 0, chosen without looking at the records; the subspace's when None.
        steps: T >= 1; 1 beside ``"scatter"`` and ``"mean"``.
        sampling_rate: q in (0, 1], the chance of every record to be in a step.
        step_size: how far a step moves the layers, as a share of the norm of their weights.
        title: what is described, for the page; made of kind and backbone when None.
        rng: None draws from the operating system. A seed makes the noise reproducible, which voids
            the guarantee and is recorded.

    Returns:
        The ``PreparedSpecification``: the guarantees, the error of every number, and ``draw``.

    Raises:
        ValueError: a bad argument; a model's outputs without saying what it was trained on; or
            ``"dp"`` without ε, classes or a clip.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> images, labels = rng.uniform(size=(40, 28, 28)), np.arange(40) % 2
        >>> prepared = prepare_specification(labels, images, classes=2, epsilon=1.0)
        >>> print(f"{prepared.guarantees[2].epsilon:.3f} at {prepared.guarantees[2].delta}")
        1.000 at 1e-05

    Source: pave, Eq. 1 to 6, Algorithm 1 and Theorem 3.9, with one clip.
    """
    choice("kind", kind, KINDS)
    choice("objective", objective, OBJECTIVES)
    choice("method", method, METHODS)
    _check_title(title)
    choice("targets", targets, TARGETS)
    schedule = _schedule(steps, sampling_rate, step_size, objective)
    shared = load_backbone(backbone)
    found = subspace_of(shared, subspace, objective, rank, layers, factor)
    named = found.layers if found is not None else chosen_layers(shared, layers)
    parts = shared.prepare(data)
    count = len(parts[0])
    held = _targets_of(model_or_labels, data, targets)
    names = _classes(classes, held, method)
    shares = weights_of(held, names, count, given="model_or_labels")
    _check_labels(held, targets, method)
    space, frame = space_of(shared, found, objective, rank, named, factor)
    check_apart(shared, parts, None if objective == "mean" else frame)
    length = _clip(clip, found, method, objective)
    asked = Asked(
        objective=objective, names=names, frame=frame, clip=length, subspace=found,
        schedule=schedule,
    )  # fmt: skip
    multiplier = _multiplier(method, epsilon, delta, schedule)
    # what the draw reads is its own, whatever becomes of the caller's
    subject = Subject(
        shared.of_tensors(), tuple(part.clone() for part in parts), shares.detach().clone()
    )
    mu = 1.0 / multiplier if multiplier else math.inf
    guarantees = certified(
        mu, in_interval("delta", delta, 0.0, 1.0, open_low=True, open_high=True), targets,
        schedule,
    )  # fmt: skip
    known = described(subject, asked, multiplier, None) if objective != "scatter" else None
    error = 0.0 if known is None and not multiplier else asked.error(count, multiplier)
    return PreparedSpecification(
        guarantees=guarantees,
        spends=guarantees[1:2],
        expected=tuple(
            Expected(name=f"number[{place}]", error=error) for place in range(space.size)
        ),
        description=f"specification of {count} records on {shared.name}",
        reproducible=is_reproducible(rng),
        title=title or f"{kind} on {shared.name}",
        kind=kind,
        inputs=size_of(data) if shared.modality == "image" else "",
        space=space,
        asked=copy.deepcopy(asked),
        subject=subject,
        network=digest_of(shared.module, None),
        known=known,
        multiplier=multiplier,
        delta=delta,
        targets=targets,
        seed=int(rng) if isinstance(rng, (int, np.integer)) else None,
        source=None if rng is None else generator(rng),
    )


def specify(
    model_or_labels: Any,
    data: Any,
    backbone: Any = VISION,
    *,
    ledger: Book | None = None,
    secret: str | None = None,
    no_budget: bool = False,
    **options: Unpack[Options],
) -> SpecificationRelease:
    """Describe a model or a task: ``prepare_specification`` and ``draw`` in one call.

    Args:
        model_or_labels: as in ``prepare_specification``.
        data: as there.
        backbone: as there.
        ledger: a ``tacit.Ledger`` that counts the cost before anything is drawn.
        secret: name of the records in the ledger.
        no_budget: release though the secret has no budget and others have one.
        **options: as of ``prepare_specification``.

    Returns:
        The ``SpecificationRelease``; its ``specification`` is what is published and compared.

    Raises:
        ValueError: as ``prepare_specification``, or the ledger refuses.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> images, labels = rng.uniform(size=(40, 28, 28)), np.arange(40) % 2
        >>> release = specify(labels, images, classes=["cat", "dog"], epsilon=1.0)
        >>> release.specification.vector.shape, release.form.kind
        ((48,), 'specification')

    Source: pave, Eq. 1 to 6, Algorithm 1.
    """
    prepared = prepare_specification(model_or_labels, data, backbone, **options)
    return prepared.draw(ledger=ledger, secret=secret, no_budget=no_budget)


@read_only
@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedSpecification(Prepared[SpecificationRelease]):
    """A specification that is certified and not yet drawn; for the holder of the records."""

    title: str
    kind: str
    inputs: str
    space: Space
    asked: Asked = field(repr=False)
    subject: Subject = field(repr=False)
    network: str = field(repr=False)
    known: NDArray[np.float64] | None = field(repr=False)
    multiplier: float
    delta: float
    targets: str
    seed: int | None
    source: np.random.Generator | None = field(repr=False)

    def _check_unchanged(self) -> None:
        check_digest("backbone", digest_of(self.subject.backbone.module, None), self.network)

    def _drawn(self) -> SpecificationRelease:
        released = self._released()
        created = datetime.now(UTC).isoformat(timespec="seconds")
        mu = 1.0 / self.multiplier if self.multiplier else math.inf
        notes = notes_of(mu, self.asked.objective, self.asked.schedule)
        specification = Specification(
            kind=self.kind,  # type: ignore[arg-type]
            space=self.space,
            factors=_split(released, self.space),
            method="dp" if self.multiplier else "compact",
            guarantees=() if self.reproducible else self.guarantees,
            created=created,
            notes=notes,
            classes=self.asked.names,
            inputs=self.inputs,
        )
        return SpecificationRelease(
            title=self.title,
            specification=specification,
            backbone=self.subject.backbone.name,
            records=self.subject.count,
            classes=len(self.asked.names),
            mu=mu,
            delta=self.delta,
            targets=self.targets,
            schedule=self.asked.schedule,
            guarantees=self.guarantees,
            attacks=(),
            use=(),
            notes=notes,
            reproducible=self.reproducible,
            seed=self.seed,
            created=created,
        )

    def _released(self) -> NDArray[np.float64]:
        count, asked = self.subject.count, self.asked
        if not asked.schedule.single:
            error = asked.error_of_a_step(count, self.multiplier)
            return stepped(self.subject, asked, asked.schedule, error, self.source)
        clean = self.known
        if clean is None:
            clean = described(self.subject, asked, self.multiplier, self.source)
        return asked.noisy(clean, count, self.multiplier, self.source)


def _split(values: NDArray[np.float64], space: Space) -> dict[str, NDArray[np.float32]]:
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
    found = model_or_labels(data)
    return found.detach().cpu().numpy() if hasattr(found, "detach") else np.asarray(found)


def _check_labels(held: Any, targets: str, method: str) -> None:
    """Refuse what looks like a model's outputs where nothing is said of the model."""
    if method != "dp" or targets != "labels" or np.ndim(held) != 2:
        return
    rows = np.asarray(held)
    if not (((rows == 0) | (rows == 1)).all() and (rows.sum(axis=1) == 1).all()):
        raise ValueError(OUTPUTS)


def _check_title(title: Any) -> None:
    if title is not None and (not isinstance(title, str) or not title):
        raise ValueError(f"title: expected words, got {shown(title)}")


def _classes(classes: Any, held: Any, method: str) -> tuple[str, ...]:
    if classes is not None:
        return class_names(classes)
    given = np.asarray(held)
    if given.ndim == 2:
        return class_names(int(given.shape[1]))
    if method == "dp":
        raise ValueError(
            "classes: expected their number or names, which are public and which the labels must "
            "not decide, got None"
        )
    found = sorted({str(value) for value in given.ravel().tolist()})
    return class_names(found)


def _clip(clip: float | None, subspace: Any, method: str, objective: str) -> float:
    if clip is not None:
        return in_interval("clip", clip, 0.0, MOST_CLIP, open_low=True)
    if subspace is not None:
        return float(subspace.clip)
    if method == "dp" or objective == "scatter":
        raise ValueError(
            "clip: expected a length chosen without looking at the records where there is no "
            "public subspace, got None"
        )
    return math.inf


def _multiplier(method: str, epsilon: float | None, delta: float, schedule: Schedule) -> float:
    if method == "compact":
        if epsilon is not None:
            raise ValueError(
                f"epsilon: expected None beside method 'compact', got {shown(epsilon)}"
            )
        return 0.0
    if epsilon is None:
        raise ValueError("epsilon: expected a number > 0 beside method 'dp', got None")
    return schedule.multiplier(epsilon, delta)


def _schedule(steps: int, sampling_rate: float, step_size: float, objective: str) -> Schedule:
    found = Schedule.checked(steps, sampling_rate, step_size)
    if objective != "labels" and not found.single:
        raise ValueError(
            f"steps: expected 1, and sampling_rate 1, beside objective {objective!r}, which does "
            f"not move the network, got {found.steps} at {found.sampling_rate:g}"
        )
    return found
