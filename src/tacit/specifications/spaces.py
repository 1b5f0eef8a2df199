"""Which space a specification is made in: the public subspace, or all numbers of the factors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tacit._ground.checks import integer
from tacit._ground.reprs import shown
from tacit.models.loading import SMALL
from tacit.specifications.backbones.backbone import Backbone
from tacit.specifications.backbones.loading import VISION
from tacit.specifications.coordinates import Frame
from tacit.specifications.projections import factor_name
from tacit.specifications.specification import Space
from tacit.specifications.subspace import PublicSubspace, load_subspace

PUBLIC = "public"
STORED = Path(__file__).parent / "backbones" / "stored"
FILES = {VISION: "vision", SMALL: "small"}
# Columns of compact factors where there is no subspace.
RANK = 8


def subspace_of(
    backbone: Backbone,
    subspace: Any,
    objective: str,
    rank: int | None,
    layers: Sequence[str] | None,
    factor: int,
) -> PublicSubspace | None:
    """Return the subspace asked for, None for all numbers.

    Raises:
        ValueError: none comes with this backbone, or it is of another backbone, objective, rank,
            A or layers.
    """
    if subspace is None:
        if objective != "labels":
            raise ValueError(
                f"subspace: expected one beside objective {objective!r}, whose features are "
                "whitened by public ones, got None"
            )
        return None
    if isinstance(subspace, PublicSubspace):
        found = subspace
    elif subspace == PUBLIC:
        found = _stored(backbone, objective)
    else:
        raise ValueError(
            f"subspace: expected {PUBLIC!r}, None or a PublicSubspace, got {shown(subspace)}"
        )
    told = {
        "backbone": (found.backbone, backbone.digest),
        "objective": (found.objective, objective),
        "rank": (found.rank, found.rank if rank is None else rank),
        "layers": (found.layers, found.layers if layers is None else tuple(layers)),
        "factor": (found.factor, factor_name(integer("factor", factor, minimum=0, maximum=None))),
    }
    for name, (has, wanted) in told.items():
        if has != wanted:
            raise ValueError(
                f"subspace: expected one of {name} {shown(wanted)}, got one of {shown(has)} (make "
                "another by public_subspace, or take subspace=None)"
            )
    return found


def space_of(
    backbone: Backbone,
    subspace: PublicSubspace | None,
    objective: str,
    rank: int | None,
    layers: tuple[str, ...],
    factor: int,
) -> tuple[Space, Frame]:
    """Return the space, and the frame that maps records into it."""
    if subspace is not None:
        space = Space(
            backbone=backbone.digest,
            layers=("+".join(layers),),
            shapes=((subspace.size, 1),),
            factor=f"{subspace.factor}:rank={subspace.rank}",
            subspace=subspace.digest,
            output=objective,
        )
        return space, subspace.frame
    columns = RANK if rank is None else integer("rank", rank, minimum=1)
    name = factor_name(integer("factor", factor, minimum=0, maximum=None))
    frame = Frame(layers, columns, name)
    space = Space(
        backbone=backbone.digest,
        layers=layers,
        shapes=frame.shapes(backbone),
        factor=name,
        subspace="none",
        output=objective,
    )
    return space, frame


def stored_path(backbone: str, objective: str) -> Path:
    """Return where the subspace of a built-in backbone is kept."""
    return STORED / f"{FILES[backbone]}-{objective}.safetensors"


@lru_cache(maxsize=4)
def _read(path: Path) -> PublicSubspace:
    return load_subspace(path)


def _stored(backbone: Backbone, objective: str) -> PublicSubspace:
    if backbone.name not in FILES:
        raise ValueError(
            f"subspace: expected None or a PublicSubspace for {backbone.name}, since none comes "
            "with it (make one of public records by public_subspace)"
        )
    return _read(stored_path(backbone.name, objective))
