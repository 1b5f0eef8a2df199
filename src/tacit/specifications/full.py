"""The full-space vector that compact factors stand for: F of every layer, without A."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import choice
from tacit.gradients.watched import width
from tacit.specifications.backbones.backbone import chosen_layers
from tacit.specifications.backbones.loading import VISION, load_backbone
from tacit.specifications.coordinates import full_factor
from tacit.specifications.methods import class_names
from tacit.specifications.objectives import label_directions, weights_of
from tacit.specifications.release import BARE
from tacit.specifications.specification import KINDS, Specification, SpecificationSpace


def full_specification(
    labels: ArrayLike,
    data: Any,
    backbone: Any = VISION,
    *,
    classes: Any,
    kind: str = "model",
    layers: Sequence[str] | None = None,
) -> Specification:
    """Return the mean gradient of every layer in the full space, ``τ = (F_1, …, F_L)``.

    It is what compact factors approximate (Eq. 4), to be held against them, and has no guarantee.

    Args:
        labels: (n,) labels, or (n, K) numbers >= 0 by class.
        data: n records as the backbone reads them.
        backbone: as ``load_backbone`` takes it.
        classes: K, or their names.
        kind: ``"model"`` or ``"task"``.
        layers: names; those of the backbone when None.

    Raises:
        ValueError: a bad argument.

    Source: pave, Eq. 1 and 4.
    """
    choice("kind", kind, KINDS)
    shared = load_backbone(backbone)
    names = class_names(classes)
    named = chosen_layers(shared, layers)
    count = len(shared.prepare(data)[0])
    # as where compact factors are made, without A and without noise
    shares = weights_of(labels, names, count, given="labels")
    table = label_directions(names, shared.embedded(data).shape[1])
    # F_ℓ = (1/n) Σ_i G_i
    factors = full_factor(shared, data, shares @ table, named)
    modules = dict(shared.module.named_modules())
    return Specification(
        kind=kind,  # type: ignore[arg-type]
        space=SpecificationSpace(
            backbone=shared.digest,
            layers=named,
            shapes=tuple(width(modules[name]) for name in named),
            factor="none",
            subspace="none",
            output="labels",
        ),
        factors={name: np.asarray(held) for name, held in factors.items()},
        method="full",
        guarantees=(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        notes=(BARE,),
    )
