"""The public part of a space: where factors of public tasks lie, and how far one record reaches."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from tacit._ground.checks import choice, integer
from tacit._ground.files import read_bytes, write_bytes_atomic
from tacit._ground.frozen import array_value
from tacit._ground.reprs import shown
from tacit.documents import Envelope, dumps, loads
from tacit.specifications.backbones.backbone import Backbone, chosen_layers
from tacit.specifications.backbones.loading import load_backbone
from tacit.specifications.coordinates import GradientFrame, coordinates
from tacit.specifications.methods import (
    OBJECTIVES,
    SUBSPACE_RANK,
    PublicTasks,
    SharedFactors,
    class_names,
)
from tacit.specifications.objectives import (
    class_means,
    label_directions,
    scatter_directions,
    weights_of,
)
from tacit.specifications.projections import factor_name

# Of public records: a clip that cuts three of four says more under noise than one that cuts none.
CLIP_QUANTILE = 0.25
# Added to the spectrum of the features before it is turned into ones, as a share of its mean.
RIDGE = 0.1
MOST_CLASSES_OF_A_TASK = 5
# Directions that are kept where nothing else is said: a mean of features has fewer that tell tasks
# apart, and every further one brings as much noise.
SIZES = {"labels": 48, "scatter": 48, "mean": 24}
# By how much a row is cut shorter than its clip, as a share: more than a product may round up.
SHORTER = 1e-12
# Deviations below this share of the largest are rounding.
FLAT = 1e-9
# In the place of a length of 0, which nothing may be divided by.
TINY = 1e-300
OF_TWO, TASKS = SharedFactors(rank=SUBSPACE_RANK), PublicTasks()
# What a mean of features is described by, in the place of layers.
OUTPUT = ("output",)
ENVELOPE, HEAD = Envelope("tacit.subspace", 1), "tacit.subspace"
ARRAYS = ("centre", "directions", "feature_centre", "feature_map")
PLAIN = ("backbone", "objective", "rank", "factor", "clip", "feature_clip")


@array_value(kw_only=True)
class PublicSubspace:
    """Where factors of public tasks lie: y = Dᵀ (b − c), and what a record is clipped to there.

    With ``objective="mean"`` b is the record's whitened feature W(z − z̄), and p is d.

    Attributes:
        backbone: its digest.
        objective: ``"labels"``, ``"scatter"`` or ``"mean"``.
        layers: names; ``("output",)`` of a mean.
        rank: r.
        factor: identifier of A.
        centre: (p,) c, the mean factor of public tasks.
        directions: (p, k) D, their principal directions over the root of their deviations.
        clip: C, a record's largest length.
        feature_centre: (d,) z̄.
        feature_map: (d, d) W, the inverse root of the public covariance of the features.
        feature_clip: the largest length of W(z − z̄).
    """

    backbone: str
    objective: str
    layers: tuple[str, ...]
    rank: int
    factor: str
    centre: NDArray[np.float32]
    directions: NDArray[np.float32]
    clip: float
    feature_centre: NDArray[np.float32]
    feature_map: NDArray[np.float32]
    feature_clip: float

    @property
    def size(self) -> int:
        """k, how many numbers a specification holds."""
        return int(self.directions.shape[1])

    @property
    def digest(self) -> str:
        """SHA-256 of all fields."""
        found = hashlib.sha256()
        for field in fields(self):
            value = getattr(self, field.name)
            found.update(f"{field.name}:".encode())
            array = isinstance(value, np.ndarray)
            found.update(value.astype("<f4").tobytes() if array else repr(value).encode())
        return f"sha256:{found.hexdigest()}"

    @property
    def frame(self) -> GradientFrame:
        """Everything that maps a record to its coordinates."""
        return GradientFrame(self.layers, self.rank, self.factor, self.centre, self.directions)

    def whitened(self, features: torch.Tensor) -> NDArray[np.float64]:
        """Return W (z − z̄) of features (n, d), clipped to the public length."""
        moved = (features.double().numpy() - self.feature_centre) @ self.feature_map.astype(float)
        return clip_rows(moved, self.feature_clip)

    def placed(self, features: torch.Tensor) -> NDArray[np.float64]:
        """Return Dᵀ (W(z − z̄) − c) of features (n, d), before they are clipped to C."""
        return np.asarray((self.whitened(features) - self.centre) @ self.directions.astype(float))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the subspace as safetensors, arrays in half precision where that loses nothing.

        Raises:
            ValueError: it cannot be written.
        """
        from safetensors.numpy import save

        arrays = {name: np.ascontiguousarray(_halved(getattr(self, name))) for name in ARRAYS}
        plain = {name: getattr(self, name) for name in PLAIN}
        text = dumps(ENVELOPE.closed({**plain, "layers": list(self.layers)}), sort_keys=True)
        write_bytes_atomic("path", path, save(arrays, metadata={HEAD: text}))


def load_subspace(path: str | os.PathLike[str]) -> PublicSubspace:
    """Read the file that ``PublicSubspace.save`` wrote.

    Raises:
        ValueError: it cannot be read, or is another file.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    content = read_bytes("path", path)
    try:
        arrays = {name: held.astype(np.float32) for name, held in load(content).items()}
        length = int.from_bytes(content[:8], "little")
        text = json.loads(content[8 : 8 + length])["__metadata__"][HEAD]
    except (SafetensorError, KeyError, TypeError, ValueError):
        raise ValueError("path: expected a file as PublicSubspace.save writes it") from None
    return ENVELOPE.opened(
        "path",
        loads(text, name="path"),
        lambda fields: PublicSubspace(**{**fields, **arrays, "layers": tuple(fields["layers"])}),
    )


def half_precision(subspace: PublicSubspace) -> PublicSubspace:
    """Return the subspace with arrays that half precision holds, so that its file is small."""
    arrays = {
        name: getattr(subspace, name).astype(np.float16).astype(np.float32) for name in ARRAYS
    }
    return replace(subspace, **arrays)


def _halved(values: NDArray[np.float32]) -> NDArray[Any]:
    half = values.astype(np.float16)
    return half if np.array_equal(half.astype(np.float32), values) else values


def clip_rows(rows: NDArray[np.float64], most: float) -> NDArray[np.float64]:
    """Return rows none of which is longer than ``most``, rounding included."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    # y min(1, C/‖y‖), a little below C: the length of what is scaled is rounded once more
    return np.asarray(rows * np.minimum(1.0, most * (1.0 - SHORTER) / np.maximum(lengths, TINY)))


def public_subspace(
    backbone: Any,
    data: Any,
    labels: ArrayLike,
    *,
    objective: str = "labels",
    factors: SharedFactors = OF_TWO,
    tasks: PublicTasks = TASKS,
    size: int | None = None,
    rng: int = 0,
) -> PublicSubspace:
    """Return the subspace of factors of tasks that are drawn from public data.

    A task is two to five public classes with a balanced draw of their records. Of the tasks' mean
    factors the principal directions are kept, each divided by the root of its deviation, so that a
    specification is k numbers instead of Σ m_ℓ r, with as much less noise.

    Args:
        backbone: as ``load_backbone`` takes it.
        data: public records, as the backbone reads them.
        labels: (n,) their classes.
        objective: ``"labels"``, ``"scatter"`` or ``"mean"``.
        factors: rank, layers and A, of rank 2 when left out; beside ``"mean"`` there are no layers.
        tasks: how many are drawn, of how many records, and what is done to these.
        size: k, directions that are kept; at most one fewer than tasks. 48 when None, of a mean 24.
        rng: seed of the draws; the result is public, and the same for the same seed.

    Returns:
        The ``PublicSubspace``.

    Raises:
        ValueError: a number out of range, labels that do not fit, or fewer than two classes.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh())
        >>> data, labels = rng.normal(size=(60, 4)), np.arange(60) % 3
        >>> tasks = PublicTasks(count=8, records=10)
        >>> found = public_subspace(network, data, labels, tasks=tasks, size=3)
        >>> found.directions.shape, found.layers
        ((12, 3), ('0',))

    Source: pave, Thm 3.5 (a public subspace); the rest is ours.
    """
    choice("objective", objective, tuple(OBJECTIVES))
    for name, given, kind in (("factors", factors, SharedFactors), ("tasks", tasks, PublicTasks)):
        if not isinstance(given, kind):
            raise ValueError(f"{name}: expected {kind.__name__}, got {type(given).__name__}")
    shared = load_backbone(backbone)
    if objective == "mean" and factors.layers is not None:
        raise ValueError(
            f"layers: expected none beside objective 'mean', got {shown(factors.layers)}"
        )
    names = OUTPUT if objective == "mean" else chosen_layers(shared, factors.layers)
    wanted = min(SIZES[objective], tasks.count - 1) if size is None else size
    kept = integer("size", wanted, minimum=1, maximum=tasks.count - 1)
    source = np.random.default_rng(integer("rng", rng, minimum=0, maximum=None))
    parts = shared.prepare(data)
    rows = _by_class(labels, len(parts[0]))
    features = shared.embedded(data)
    centre, whitener, reach = _whitening(features.double().numpy())
    # all but the directions, which are those of the tasks' factors
    whole = PublicSubspace(
        backbone=shared.digest,
        objective=objective,
        layers=names,
        rank=factors.rank,
        factor=factor_name(factors.seed),
        centre=np.zeros(1, np.float32),
        directions=np.zeros((1, 1), np.float32),
        clip=1.0,
        feature_centre=centre,
        feature_map=whitener,
        feature_clip=reach,
    )
    drawn = [
        _factors(shared, whole, _taken(data, chosen), classes, tasks, source)
        for chosen, classes in (_task(rows, tasks.records, source) for _ in range(tasks.count))
    ]
    return _spanned(whole, drawn, kept)


def _spanned(whole: PublicSubspace, drawn: list[NDArray[np.float64]], size: int) -> PublicSubspace:
    # c = the mean of the tasks' mean factors, around which they lie
    means = np.stack([held.mean(axis=0) for held in drawn])
    centre = means.mean(axis=0)
    # their principal directions, by the singular vectors of what is left
    _, deviations, right = np.linalg.svd(means - centre, full_matrices=False)
    # what double precision leaves of nothing is no direction
    kept = deviations[:size] > FLAT * max(float(deviations[0]), TINY)
    if not kept.any():
        raise ValueError("labels: expected tasks whose factors differ, got factors all alike")
    # D = V S^(-1/2): a direction counts by the root of how much tasks differ in it, since numbers
    # that tell tasks apart best would else drown the rest, and noise is the same in all
    directions = (right[:size][kept].T / np.sqrt(deviations[:size][kept])).astype(np.float32)
    # C: a clip that cuts three of four public records
    rows = np.concatenate([(held - centre) @ directions for held in drawn])
    lengths = np.linalg.norm(rows, axis=1)
    return replace(
        whole,
        centre=centre.astype(np.float32),
        directions=directions,
        clip=float(np.float32(np.quantile(lengths[lengths > 0], CLIP_QUANTILE))),
    )


def _factors(
    backbone: Backbone,
    whole: PublicSubspace,
    data: Any,
    classes: NDArray[np.int64],
    tasks: PublicTasks,
    source: np.random.Generator,
) -> NDArray[np.float64]:
    """Return what every record of a public task adds, before directions are known."""
    records = data if tasks.vary is None else tasks.vary(data, source)
    if whole.objective == "mean":
        return whole.whitened(backbone.embedded(records))
    names = class_names(int(classes.max()) + 1)
    shares = weights_of(classes, names, len(classes), given="labels")
    if whole.objective == "labels":
        directions = shares @ label_directions(names, len(whole.feature_centre))
    else:
        white, counted = whole.whitened(backbone.embedded(records)), shares.double().numpy()
        means = class_means(counted, white)
        directions = scatter_directions(counted, means, whole.feature_map.astype(float), white)
    frame = GradientFrame(whole.layers, whole.rank, whole.factor)
    return coordinates(backbone, records, directions, frame)


def _whitening(features: NDArray[np.float64]) -> tuple[Any, Any, float]:
    centre = features.mean(axis=0)
    moved = features - centre
    # W = (cov + ridge)^(-1/2), symmetric
    values, vectors = np.linalg.eigh(moved.T @ moved / len(features))
    values = np.maximum(values, 0.0)
    ridge = RIDGE * float(values.mean())
    if ridge == 0.0:
        raise ValueError("data: expected records whose features differ, got features all alike")
    whitener = ((vectors / np.sqrt(values + ridge)) @ vectors.T).astype(np.float32)
    # C' = the middle length of what is whitened
    reach = float(np.median(np.linalg.norm(moved @ whitener, axis=1)))
    return centre.astype(np.float32), whitener, float(np.float32(reach))


def _by_class(labels: Any, count: int) -> list[NDArray[np.int64]]:
    held = np.asarray(labels)
    if held.shape != (count,):
        raise ValueError(f"labels: expected one for each of {count} records, got {held.shape}")
    rows = [np.flatnonzero(held == name) for name in np.unique(held)]
    if len(rows) < 2:
        raise ValueError(f"labels: expected at least two classes, got {len(rows)}")
    return rows


def _task(
    rows: list[NDArray[np.int64]], records: int, source: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    count = int(source.integers(2, min(MOST_CLASSES_OF_A_TASK, len(rows)) + 1))
    chosen = source.permutation(len(rows))[:count]
    each = max(1, records // count)
    parts = [source.choice(rows[one], min(each, len(rows[one])), replace=False) for one in chosen]
    classes = [np.full(len(part), place) for place, part in enumerate(parts)]
    return np.concatenate(parts), np.concatenate(classes)


def _taken(data: Any, rows: NDArray[np.int64]) -> Any:
    if isinstance(data, (list, tuple)):
        return [data[row] for row in rows]
    return data[rows]
