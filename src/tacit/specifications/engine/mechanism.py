"""DP-S-PAVE in one step: one clip of the concatenated scaled factor, one Gaussian mechanism."""

from __future__ import annotations

import datetime
import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.accounting import calibrate, gaussian
from tacit.guarantees import ApproximateDP
from tacit.specifications.engine.backbones import Backbone
from tacit.specifications.engine.factors import factors
from tacit.specifications.engine.outputs import Aligned, LabelFree
from tacit.specifications.specification import Kind, Space, Specification

DELTA, FACTOR_SEED = 1e-5, 11
RIDGE = 0.1
ASSUMPTIONS = (
    "the backbone, A, scales, clip and the number of labels are public and fixed before",
    "the labels are of the records alone, no output of a model trained on them",
)


@dataclass(frozen=True, eq=False)
class Public:
    """What everyone shares, from public records: scales, clip, directions, whitening.

    Attributes:
        backbone: the shared network.
        rank: r, 0 for the full space.
        scales: one a layer, 1 over the median length of a public record's factor.
        clip: C, the median length of a public record's concatenated scaled factor.
        directions: layer to (m, k) with orthonormal columns, or empty for all.
        centre: (d,) mean of public features.
        whitening: (d, d) of public features.
        scale: root mean variance of public features.
        feature_clip: median length of public whitened features.
        label_free: whether this is for the loss of labels in any order.
    """

    backbone: Backbone
    rank: int
    scales: Mapping[str, float]
    clip: float
    directions: Mapping[str, Tensor]
    centre: Tensor
    whitening: Tensor
    scale: float
    feature_clip: float
    label_free: bool

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of scales, clip, directions and whitening."""
        public = (sorted(self.scales.items()), self.clip, self.scale, self.feature_clip)
        found = hashlib.sha256(repr(public).encode())
        tensors = (*self.directions.values(), self.centre, self.whitening)
        for held in tensors:
            found.update(held.contiguous().numpy().tobytes())
        return f"sha256:{found.hexdigest()}"

    def space(self, shapes: Sequence[tuple[int, int]], output: str) -> Space:
        """Return what a specification may be compared within."""
        return Space(
            backbone=self.backbone.digest, layers=self.backbone.layers, shapes=tuple(shapes),
            factor=f"seed:{FACTOR_SEED}" if self.rank else "none", subspace=self.digest,
            output=output,
        )  # fmt: skip


def public(
    backbone: Backbone, inputs: Any, labels: NDArray[np.int64], *, rank: int = 1,
    subspace: int = 0, label_free: bool = False,
) -> Public:  # fmt: skip
    """Return scales, clip and directions from public records.

    Args:
        backbone: the shared network.
        inputs: public records.
        labels: (n,) of them.
        rank: r; 0 is the full space.
        subspace: k directions of every layer's outputs, 0 for all.
        label_free: for the loss of labels in any order.
    """
    features = backbone.features(inputs)
    centre = features.mean(dim=0)
    whitening = _inverse_root(torch.cov(features.T))
    scale = float(features.var(dim=0).mean().sqrt())
    lengths = ((features - centre) @ whitening).norm(dim=1)
    plain = Public(backbone, rank, dict.fromkeys(backbone.layers, 1.0), 1.0, {}, centre, whitening,
                   scale, float(lengths.median()), label_free)  # fmt: skip
    output = _output(plain, inputs, labels, int(labels.max()) + 1, 0.0)
    held = _records(plain, inputs, torch.from_numpy(labels), output)
    directions = (
        {name: _principal(part, subspace) for name, part in held.items()} if subspace else {}
    )
    held = _inside(held, directions)
    scales = {name: 1 / float(part.flatten(1).norm(dim=1).median()) for name, part in held.items()}
    joined = torch.cat([part.flatten(1) * scales[name] for name, part in held.items()], dim=1)
    return Public(backbone, rank, scales, float(joined.norm(dim=1).median()), directions, centre,
                  whitening, scale, plain.feature_clip, label_free)  # fmt: skip


def described(
    kind: Kind,
    shared: Public,
    inputs: Any,
    labels: NDArray[np.int64],
    classes: int,
    epsilons: Sequence[float | None],
) -> list[Specification]:
    """Return a specification for every ε, each the only release of its records.

    Args:
        kind: ``"model"`` or ``"task"``.
        shared: what is public.
        inputs: n records.
        labels: (n,) 0 … K − 1.
        classes: K, which is public.
        epsilons: for replacing one record at δ = 10⁻⁵, None for no noise and no guarantee.
    """
    targets = torch.from_numpy(labels)
    if not shared.label_free:
        output = _output(shared, inputs, labels, classes, 0.0)
        mean = _clipped_mean(shared, inputs, targets, output)
        return [_released(kind, shared, mean, len(labels), value, 1.0, output.name)
                for value in epsilons]  # fmt: skip
    made = []
    for value in epsilons:
        # the means and the factor are two Gaussian mechanisms, equally strong: μ² adds up
        strength = multiplier(value) * 2**0.5 if value else 0.0
        output = _output(shared, inputs, labels, classes, strength)
        mean = _clipped_mean(shared, inputs, targets, output)
        made.append(_released(kind, shared, mean, len(labels), value, 2**0.5, output.name))
    return made


@functools.cache
def multiplier(epsilon: float) -> float:
    """Return σ/Δ of the Gaussian mechanism that is (ε, 10⁻⁵)-private."""
    return calibrate(
        lambda std: gaussian(1.0, std), epsilon=epsilon, delta=DELTA, bracket=(1e-2, 1e3)
    )


def _released(
    kind: Kind, shared: Public, mean: dict[str, Tensor], count: int, epsilon: float | None,
    share: float, output: str,
) -> Specification:  # fmt: skip
    """Replacing one record moves the clipped mean by at most 2C/n."""
    rng = np.random.default_rng()
    std = 2 * shared.clip / count * multiplier(epsilon) * share if epsilon else 0.0
    noisy = {
        name: held.numpy() + std * rng.standard_normal(tuple(held.shape))
        for name, held in mean.items()
    }
    bound = ApproximateDP(
        epsilon=epsilon or 0.0, delta=DELTA, adjacency="replace one record", evidence="theorem",
        assumptions=ASSUMPTIONS, source="pave, Theorem 3.9, in one step; Balle and Wang (2018)",
    )  # fmt: skip
    return Specification(
        kind=kind, space=shared.space([tuple(held.shape) for held in noisy.values()], output),
        factors=noisy, method="dp" if epsilon else "plain",
        guarantees=(bound,) if epsilon else (),
        notes=() if epsilon else ("made without noise: nothing is certified",),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )  # fmt: skip


def _clipped_mean(
    shared: Public, inputs: Any, targets: Tensor, output: Aligned | LabelFree
) -> dict[str, Tensor]:
    total: dict[str, Tensor] = {}
    for part in _batches(shared, inputs, targets, output):
        scaled = {name: held * shared.scales[name] for name, held in part.items()}
        squares = torch.stack([held.flatten(1).square().sum(dim=1) for held in scaled.values()])
        shares = (shared.clip / squares.sum(dim=0).sqrt().clamp(min=1e-30)).clamp(max=1.0)
        for name, held in scaled.items():
            added = torch.einsum("nmr,n->mr", held.double(), shares.double())
            total[name] = total.get(name, 0.0) + added
    return {name: held / len(targets) for name, held in total.items()}


def _batches(shared: Public, inputs: Any, targets: Tensor, output: Aligned | LabelFree) -> Any:
    for part in factors(shared.backbone, inputs, targets, output.losses, rank=shared.rank,
                        seed=FACTOR_SEED):  # fmt: skip
        yield _inside(part, shared.directions)


def _records(
    shared: Public, inputs: Any, targets: Tensor, output: Aligned | LabelFree
) -> dict[str, Tensor]:
    parts = list(_batches(shared, inputs, targets, output))
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _inside(held: dict[str, Tensor], directions: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: torch.einsum("mk,nmr->nkr", directions[name], part) if name in directions else part
        for name, part in held.items()
    }


def _output(
    shared: Public, inputs: Any, labels: NDArray[np.int64], count: int, strength: float
) -> Aligned | LabelFree:
    """Return the loss; the labels' means with noise of ``strength`` times their sensitivity."""
    if not shared.label_free:
        return Aligned(count, shared.centre, shared.scale)
    white = (shared.backbone.features(inputs) - shared.centre) @ shared.whitening
    lengths = white.norm(dim=1, keepdim=True)
    clipped = white * (shared.feature_clip / lengths.clamp(min=1e-30)).clamp(max=1.0)
    rows = torch.zeros(count, white.shape[1]).index_add(0, torch.from_numpy(labels), clipped)
    std = 2 * shared.feature_clip / len(labels) * strength
    noise = np.random.default_rng().standard_normal(tuple(rows.shape)).astype(np.float32)
    means = count * (rows / len(labels) + std * torch.from_numpy(noise))
    return LabelFree(means, shared.centre, shared.whitening)


def _principal(part: Tensor, size: int) -> Tensor:
    """Return the leading left directions (m, k) of all records' factors."""
    rows = part.transpose(1, 2).reshape(-1, part.shape[1])
    return torch.linalg.eigh(rows.T @ rows)[1][:, -size:].contiguous()


def _inverse_root(covariance: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(covariance)
    return vectors @ torch.diag((values + RIDGE * values.mean()) ** -0.5) @ vectors.T
