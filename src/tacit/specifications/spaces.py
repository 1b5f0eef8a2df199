"""Which space a specification is made in: the public subspace, or all numbers of the factors."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from tacit._ground.reprs import shown
from tacit.models.loading import SMALL
from tacit.specifications.backbones.backbone import Backbone, chosen_layers
from tacit.specifications.backbones.loading import VISION
from tacit.specifications.coordinates import GradientFrame
from tacit.specifications.methods import SharedFactors
from tacit.specifications.projections import factor_name
from tacit.specifications.specification import SpecificationSpace
from tacit.specifications.subspace import PublicSubspace, load_subspace

# What a subspace that comes with a built-in backbone is asked for by.
PUBLIC = "public"
STORED = Path(__file__).parent / "backbones" / "stored"
FILES = {VISION: "vision", SMALL: "small"}


def subspace_of(backbone: Backbone, space: Any, objective: str) -> PublicSubspace | None:
    """Return the subspace asked for, None for all numbers of shared factors.

    Raises:
        ValueError: none comes with this backbone, it is of another backbone or objective, or the
            objective needs one.
    """
    if isinstance(space, SharedFactors):
        if objective != "labels":
            raise ValueError(
                f"space: expected a subspace beside objective {objective!r}, whose features are "
                "whitened by public ones, got SharedFactors"
            )
        return None
    if isinstance(space, PublicSubspace):
        found = space
    elif isinstance(space, str) and space == PUBLIC:
        found = _stored(backbone, objective)
    else:
        raise ValueError(
            f"space: expected {PUBLIC!r}, SharedFactors or a PublicSubspace, got {shown(space)}"
        )
    told = {
        "backbone": (found.backbone, backbone.digest),
        "objective": (found.objective, objective),
    }
    for name, (has, wanted) in told.items():
        if has != wanted:
            raise ValueError(
                f"space: expected a subspace of {name} {shown(wanted)}, got one of {shown(has)} "
                "(make another by public_subspace, or take SharedFactors)"
            )
    return found


def space_of(
    backbone: Backbone, space: PublicSubspace | SharedFactors, objective: str
) -> tuple[SpecificationSpace, GradientFrame]:
    """Return the space, and the frame that maps records into it."""
    if isinstance(space, PublicSubspace):
        # k numbers of all layers together
        shared = SpecificationSpace(
            backbone=backbone.digest,
            layers=("+".join(space.layers),),
            shapes=((space.size, 1),),
            factor=f"{space.factor}:rank={space.rank}",
            subspace=space.digest,
            output=objective,
        )
        return shared, space.frame
    # (m, r) numbers of every layer
    name = factor_name(space.seed)
    frame = GradientFrame(chosen_layers(backbone, space.layers), space.rank, name)
    every = SpecificationSpace(
        backbone=backbone.digest,
        layers=frame.layers,
        shapes=frame.shapes(backbone),
        factor=name,
        subspace="none",
        output=objective,
    )
    return every, frame


def stored_path(backbone: str, objective: str) -> Path:
    """Return where the subspace of a built-in backbone is kept."""
    return STORED / f"{FILES[backbone]}-{objective}.safetensors"


@lru_cache(maxsize=4)
def _read(path: Path) -> PublicSubspace:
    return load_subspace(path)


def _stored(backbone: Backbone, objective: str) -> PublicSubspace:
    if backbone.name not in FILES:
        raise ValueError(
            f"space: expected SharedFactors or a PublicSubspace for {backbone.name}, since none "
            "comes with it (make one of public records by public_subspace)"
        )
    return _read(stored_path(backbone.name, objective))
