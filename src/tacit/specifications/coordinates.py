"""Every record's coordinates in a space: G_i Aᵀ of all layers, joined, moved, projected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.gradients.watched import WatchedLayers, width
from tacit.models.loading import SMALL
from tacit.specifications.backbones.backbone import BATCH, Backbone, digest_of
from tacit.specifications.backbones.loading import VISION
from tacit.specifications.projections import shared_factor

# Records that are described together and alone, and how far float32 may take the two apart.
COMPANY, APART, TOKENS = 5, 1e-3, 5
# Others beside a record, as they are and so many times larger, and how far they may take it.
SCALES, MOVED = (1.0, -3.0, 300.0), 1e-5
# Of built-in backbones, what was found to be apart: shapes are few.
_CHECKED: set[tuple[object, ...]] = set()


@dataclass(frozen=True, eq=False)
class GradientFrame:
    """What maps a record's gradients to its coordinates, y = Dᵀ (b − c), b = vec(G Aᵀ).

    Attributes:
        layers: names, in the order in which factors are joined.
        rank: r.
        factor: identifier of A.
        centre: (p,) c; None for 0.
        directions: (p, k) D; None for the identity.
    """

    layers: tuple[str, ...]
    rank: int
    factor: str
    centre: NDArray[np.float32] | None = None
    directions: NDArray[np.float32] | None = None

    def matrices(self, backbone: Backbone) -> dict[str, Tensor]:
        """Return A of every layer."""
        modules = dict(backbone.module.named_modules())
        return {
            name: shared_factor(self.factor, name, self.rank, width(modules[name])[1])
            for name in self.layers
        }

    def shapes(self, backbone: Backbone) -> tuple[tuple[int, int], ...]:
        """Return (m, r) of every layer."""
        modules = dict(backbone.module.named_modules())
        return tuple((width(modules[name])[0], self.rank) for name in self.layers)


def coordinates(
    backbone: Backbone, data: Any, directions: Tensor, frame: GradientFrame
) -> NDArray[np.float64]:
    """Return the coordinates of every record, (n, k), in one pass over the data.

    Args:
        backbone: shared.
        data: n records.
        directions: (n, d) u, of the features of each record.
        frame: of the space.

    Raises:
        ValueError: the data are no records of the backbone, or a gradient is not finite.
    """
    matrices = frame.matrices(backbone)
    found, places = [], []
    for records, watched in _passes(backbone, data, directions, frame.layers):
        # G_i Aᵀ of every layer for every record of the batch, without the gradients themselves
        factors = watched.factors(matrices, len(records))
        # b_i: layers one after the other, so that one clip bounds them all
        joined = torch.cat([factors[name].flatten(1) for name in frame.layers], dim=1)
        rows = joined.double().numpy()
        if not np.isfinite(rows).all():
            held = ", ".join(str(int(one)) for one in records[:3])
            raise ValueError(f"data: expected finite gradients, got others among records {held}, …")
        if frame.centre is not None:
            # y_i = Dᵀ (b_i − c)
            rows = rows - frame.centre
        found.append(rows if frame.directions is None else rows @ frame.directions.astype(float))
        places.append(records)
    # batches may come in another order than the records
    return np.asarray(np.concatenate(found)[torch.argsort(torch.cat(places)).numpy()])


def check_apart(backbone: Backbone, like: tuple[Tensor, ...], frame: GradientFrame | None) -> None:
    """Refuse a backbone in which what one record adds depends on who is beside it.

    Clipping bounds what one record does only where its row is its own. Records of random numbers
    are described together and alone, by their features and by their gradients.

    Args:
        backbone: shared.
        like: prepared records, of which only the shapes are used.
        frame: of the space; None where features alone are described.

    Raises:
        ValueError: the two differ by more than float32 rounds.
    """
    known = _built_in(backbone, like, frame)
    if known is not None and known in _CHECKED:
        return
    source = torch.Generator().manual_seed(0)
    # random records of the same shapes: of those that are private nothing is tried
    parts = tuple(_drawn(part, place, source) for place, part in enumerate(like))
    drawn = backbone.of_tensors()
    directions = torch.randn(COMPANY, drawn.embedded(parts).shape[1], generator=source)

    def rows(taken: tuple[Tensor, ...], towards: Tensor) -> tuple[NDArray[np.float64], ...]:
        features = drawn.embedded(taken).double().numpy()
        if frame is None:
            return (features,)
        plain = GradientFrame(frame.layers, frame.rank, frame.factor)
        return features, coordinates(drawn, taken, towards, plain)

    # all five at once, and each by itself
    together = rows(parts, directions)
    alone = [
        rows(tuple(part[[row]] for part in parts), directions[[row]]) for row in range(COMPANY)
    ]
    # the first record beside the others made larger, which a switch on the largest number shows
    scales = SCALES if backbone.modality == "vector" else ()
    beside = [rows(_beside(parts, scale), directions) for scale in scales]
    for place, held in enumerate(together):
        # float32 rounds sums over a batch otherwise than over one: so much is no mixing
        single = np.concatenate([one[place] for one in alone])
        largest = max(float(np.abs(single).max()), 1e-30)
        apart = held.shape == single.shape and bool(
            np.allclose(held, single, rtol=0.0, atol=APART * largest)
        )
        # the first record has the same place: nothing but the others may have moved it
        moved = (float(np.abs(one[place][0] - held[0]).max()) for one in beside if apart)
        if not apart or max(moved, default=0.0) > MOVED * largest:
            raise ValueError(
                "backbone: expected one whose features of a record depend on that record alone, "
                f"not so in {backbone.name}: one record would change what others add, past every "
                "clip"
            )
    if known is not None:
        _CHECKED.add(known)


def _built_in(
    backbone: Backbone, like: tuple[Tensor, ...], frame: GradientFrame | None
) -> tuple[object, ...] | None:
    """Return what the check of a built-in backbone depends on; None for any other network.

    Its code is ours, and what is drawn is always the same. One that something was hooked into, or
    whose weights are others by now, is checked each time, as every network from elsewhere is.
    """
    modules = tuple(backbone.module.modules())
    touched = any(
        held.training
        or "forward" in vars(held)
        or any(hooks for name, hooks in vars(held).items() if name.endswith("_hooks"))
        for held in modules
    )
    if backbone.name not in (VISION, SMALL) or touched:
        return None
    weights = digest_of(backbone.module, {"form": backbone.name})
    shapes = tuple((tuple(part.shape[1:]), part.dtype) for part in like)
    told = None if frame is None else (frame.layers, frame.rank, frame.factor)
    return backbone.digest, weights, shapes, told


def _beside(parts: tuple[Tensor, ...], scale: float) -> tuple[Tensor, ...]:
    """Return the first record as it is, beside others."""
    found = []
    for part in parts:
        held = part.clone()
        held[1:] = scale * held[1:].roll(1, 0) if part.is_floating_point() else held[1:]
        found.append(held)
    return tuple(found)


def _drawn(part: Tensor, place: int, source: torch.Generator) -> Tensor:
    shape = (COMPANY, *part.shape[1:])
    if part.is_floating_point():
        return torch.rand(shape, generator=source, dtype=part.dtype)
    # tokens first, the first few of any vocabulary; then a mask that hides none
    held = torch.randint(0, TOKENS, shape, generator=source) if not place else torch.ones(shape)
    return held.to(part.dtype)


def full_factor(
    backbone: Backbone, data: Any, directions: Tensor, layers: tuple[str, ...]
) -> dict[str, NDArray[np.float32]]:
    """Return the mean gradient F of every layer in the full space, (m, n).

    Args:
        backbone: shared.
        data: n records.
        directions: (n, d) u.
        layers: names.
    """
    totals: dict[str, NDArray[np.float64]] = {}
    count = 0
    for records, watched in _passes(backbone, data, directions, layers):
        # Σ_i G_i of every layer, the sum over the batch in one product
        for name, held in watched.sums().items():
            totals[name] = totals.get(name, np.zeros(held.shape)) + held.double().numpy()
        count += len(records)
    return {name: (totals[name] / count).astype(np.float32) for name in layers}


def _passes(backbone: Backbone, data: Any, directions: Tensor, layers: tuple[str, ...]) -> Any:
    modules = dict(backbone.module.named_modules())
    for records, batch in backbone.batches(data, BATCH):
        held = {name: modules[name] for name in layers}
        with torch.enable_grad(), WatchedLayers(held) as watched:
            watched.differentiate((backbone.features(*batch).float() * directions[records]).sum())
        yield records, watched
