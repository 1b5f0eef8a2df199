"""Specifications as ``tacit.specifications`` makes them, in the spaces that the study compares."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tacit.gradients.watched import width
from tacit.specifications import (
    Backbone,
    ClassScatter,
    Description,
    LabelCodes,
    PublicSubspace,
    PublicTasks,
    ReplacedRecord,
    SharedFactors,
    load_backbone,
    prepare_specification,
    public_subspace,
)
from tacit.specifications.coordinates import GradientFrame, coordinates, full_factor
from tacit.specifications.methods import class_names
from tacit.specifications.objectives import label_directions, weights_of
from tacit.specifications.projections import factor_name
from tacit.specifications.schedule import multiplier_for
from tacit_lab.studies.specifications import corpora, pictures
from tacit_lab.studies.specifications.baselines import DELTA
from tacit_lab.studies.specifications.measures import Floats
from tacit_lab.studies.specifications.pictures import LabelledPictures
from tacit_lab.studies.specifications.tasks import text_tasks

NAMES = {"images": "tacit/vision", "texts": "tacit/small"}
# Of the subspace that comes with tacit/vision.
RANK, SIZE = 2, 48
# Tokens of a text, public records, and the tasks drawn of them where a subspace is made here.
TOKENS, SHARED = 32, 1500
TASKS = {"images": 120, "texts": 60}
OBJECTIVES = {"aligned": LabelCodes, "label-free": ClassScatter}


@dataclass(frozen=True)
class Way:
    """How learnwares and users are described: a route of PAVE, or ``"baselines"``."""

    route: str
    records: int = 1000
    rank: int = RANK
    subspace: int = SIZE
    order: str = "aligned"
    epsilons: tuple[float, ...] = (0.0,)


def described(
    kind: Any, part: LabelledPictures, modality: str, way: Way, *, private: bool = True
) -> dict[float, Floats]:
    """Return the vector of a specification for every ε of a way, 0 for none.

    The gradients of one that needs no noise before them are computed once; every ε then has the
    noise that its own release would have.
    """
    epsilons = way.epsilons if private else (0.0,)
    objective = OBJECTIVES[way.route](clip=_clip(modality, way))
    options: dict[str, Any] = {
        "about": Description(kind=kind, classes=int(part.labels.max()) + 1),
        "backbone": backbone(modality),
        "space": _space(modality, way),
    }
    if way.route == "aligned":
        made = prepare_specification(part.labels, part.inputs, None, objective, **options)
        assert made.known is not None
        return {
            value: made.asked.add_noise(
                made.known, len(part.labels), multiplier_for(value, DELTA) if value else 0.0, None
            )
            for value in epsilons
        }
    found = {}
    for value in epsilons:
        promise = ReplacedRecord(epsilon=value, delta=DELTA) if value else None
        made = prepare_specification(part.labels, part.inputs, promise, objective, **options)
        found[value] = np.asarray(made.draw().details.specification.vector, dtype=float)
    return found


def full(part: LabelledPictures, modality: str) -> Floats:
    """Return the mean gradient of every described layer, in the full space, joined."""
    shared = backbone(modality)
    held = full_factor(shared, part.inputs, _directions(part, modality), shared.layers)
    return np.concatenate([held[name].ravel() for name in shared.layers]).astype(float)


def measured_gamma(part: LabelledPictures, modality: str, size: int) -> float:
    """Return the largest γ of the last layer over replaced records: measured, no bound.

    H(D) = UᵀF(D) with U the first k principal directions of public records' gradients, and
    (1 − γ)Σ' ⪯ Σ ⪯ (1 + γ)Σ' (Eq. 21), for 20 records, each replaced by another.
    """
    held = _rows(part, modality)
    axes = _axes(modality)[:, :size]
    rows = np.einsum("mk,nmr->nkr", axes, held)
    mean = rows.mean(axis=0)
    found = 0.0
    for row in range(20):
        other = mean + (rows[-1 - row] - rows[row]) / len(rows)
        ratios = np.linalg.eigvals(np.linalg.solve(other @ other.T, mean @ mean.T)).real
        found = max(found, float(np.abs(ratios - 1).max()))
    return found


def features(modality: str, inputs: Any) -> tuple[Floats, Floats]:
    """Return the backbone's features (n, d), and mean inputs of the described layers (n, d')."""
    shared = backbone(modality)
    modules = dict(shared.module.named_modules())
    seen: list[torch.Tensor] = []

    def hook(_: Any, given: tuple[torch.Tensor, ...], __: Any) -> None:
        held = given[0]
        axes = {4: (2, 3), 3: (1,)}.get(held.ndim)
        seen.append(held.mean(dim=axes) if axes else held)

    handles = [modules[name].register_forward_hook(hook) for name in shared.layers]
    last, inner, places = [], [], []
    try:
        for rows, batch in shared.batches(inputs):
            places.append(rows)
            seen.clear()
            with torch.no_grad():
                last.append(shared.features(*batch))
            inner.append(torch.cat(seen, dim=1))
    finally:
        for handle in handles:
            handle.remove()
    order = torch.argsort(torch.cat(places))
    both = [torch.cat(parts)[order].double().numpy() for parts in (last, inner)]
    return both[0], both[1]


@functools.cache
def public_features(modality: str) -> tuple[Floats, Floats]:
    """Return features of the public records."""
    return features(modality, public_records(modality).inputs)


@functools.cache
def backbone(modality: str) -> Backbone:
    """Return the shared backbone of a modality."""
    return load_backbone(NAMES[modality], length=TOKENS)


@functools.cache
def public_records(modality: str) -> LabelledPictures:
    """Return records that are public: the first training images, or paragraphs of every corpus."""
    rng = np.random.default_rng(0)
    if modality == "texts":
        held = [corpora.records(task, 150, "private", rng) for task in text_tasks()[-8:]]
        texts = [text for part in held for text in part.inputs]
        return LabelledPictures(
            texts, np.concatenate([10 * i + p.labels for i, p in enumerate(held)])
        )
    inputs, labels = [], []
    for number, source in enumerate(("mnist", "cifar10")):
        found, classes = pictures.images(source, "public")
        shown = np.broadcast_to(found[:SHARED], (SHARED, 3, 32, 32))
        inputs.append(shown.astype(np.float32) / np.float32(255.0))
        labels.append(classes[:SHARED] + 10 * number)
    return LabelledPictures(np.concatenate(inputs), np.concatenate(labels))


def _space(modality: str, way: Way) -> str | PublicSubspace | SharedFactors:
    """Return the space: k = 0 stands for all Σ m r numbers, without a subspace."""
    if way.subspace == 0:
        return SharedFactors(rank=way.rank)
    if modality == "images" and (way.rank, way.subspace) == (RANK, SIZE):
        return "public"
    return _made(modality, way.rank, way.subspace)


def _clip(modality: str, way: Way) -> float | None:
    """Return the clip where there is no subspace that has one."""
    return _reach(modality, way.rank) if way.subspace == 0 else None


@functools.cache
def _made(modality: str, rank: int, size: int) -> PublicSubspace:
    held = public_records(modality)
    return public_subspace(
        backbone(modality),
        held.inputs,
        held.labels,
        factors=SharedFactors(rank=rank),
        tasks=PublicTasks(count=TASKS[modality], vary=_varied if modality == "images" else None),
        size=size,
    )


def _varied(images: npt.NDArray[Any], rng: np.random.Generator) -> npt.NDArray[Any]:
    """Invert, turn or mirror all pictures of a public task, as its developers' tasks may be."""
    inverted, turned, mirrored = rng.random(3)
    seen = 1 - images if inverted < 0.3 else images
    seen = np.rot90(seen, int(rng.integers(4)), (2, 3)) if turned < 0.3 else seen
    return np.ascontiguousarray(seen[:, :, ::-1] if mirrored < 0.3 else seen)


@functools.cache
def _reach(modality: str, rank: int) -> float:
    """Return the quarter of public records' lengths, the clip without a subspace."""
    held = public_records(modality)
    shared = backbone(modality)
    rows = np.random.default_rng(1).permutation(len(held.labels))[:300]
    taken: Any = [held.inputs[row] for row in rows] if modality == "texts" else held.inputs[rows]
    part = LabelledPictures(taken, held.labels[rows] % 5)
    frame = GradientFrame(shared.layers, rank, factor_name(0))
    found = coordinates(shared, part.inputs, _directions(part, modality), frame)
    return float(np.quantile(np.linalg.norm(found, axis=1), 0.25))


def _directions(part: LabelledPictures, modality: str) -> torch.Tensor:
    names = class_names(max(int(part.labels.max()) + 1, 2))
    table = label_directions(names, public_features(modality)[0].shape[1])
    return weights_of(part.labels, names, len(part.labels), given="labels") @ table


def _rows(part: LabelledPictures, modality: str) -> Floats:
    """Return every record's gradient of the last layer times 64 shared columns, (n, m, 64)."""
    shared = backbone(modality)
    layer = shared.layers[-1]
    shape = width(dict(shared.module.named_modules())[layer])
    frame = GradientFrame((layer,), 64, factor_name(0))
    found = coordinates(shared, part.inputs, _directions(part, modality), frame)
    return found.reshape(len(found), shape[0], 64)


@functools.cache
def _axes(modality: str) -> Floats:
    held = public_records(modality)
    part = LabelledPictures(held.inputs[:300], held.labels[:300] % 5)
    rows = _rows(part, modality)
    return np.asarray(np.linalg.eigh(np.einsum("nmr,nkr->mk", rows, rows))[1][:, ::-1])
