"""Norms and sums of many parameters at a time: of small ones a call costs more than its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from tacit.gradients.pieces import ParameterGradients
from tacit.gradients.rows import weighted

# Entries of a record in a small parameter, and in those that are added up side by side.
SMALL, TOGETHER = 2**12, 2**15


def norms_together(found: Mapping[str, ParameterGradients]) -> dict[str, Tensor]:
    """Return (B,) ‖G_i‖² by name, as ``ParameterGradients.squared_norms`` has them.

    Args:
        found: gradients of one batch by name.
    """
    waiting = [one for one in found.values() if not one.known]
    found_norms = [one.norms() for one in waiting]
    # of a model on several devices each parameter is read by itself
    if len(waiting) > 1 and len({one.device for one in found_norms}) == 1:
        # inf where a norm is not finite, one and the same share above it elsewhere
        every = ParameterGradients.bounding(torch.stack(found_norms))
        wholes = every.isfinite().all(dim=1).tolist() if every.device.type == "cpu" else ()
        for place, one in enumerate(waiting):
            one.know(every[place], whole=bool(wholes and wholes[place]))
    return {name: one.squared_norms() for name, one in found.items()}


def sums_together(
    found: Mapping[str, ParameterGradients], coefficients: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return Σ_i c_i G_i by name, as ``ParameterGradients.sums`` has them.

    Args:
        found: as of ``norms_together``.
        coefficients: (B,) c by name.
    """
    made: dict[str, Tensor] = {}
    for group in _groups(found, coefficients):
        if len(group) == 1:
            made[group[0]] = found[group[0]].sums(coefficients[group[0]])
            continue
        rows = [found[name].small(SMALL) for name in group]
        # one product with c for all of them: Σ_i c_i [G_i1, G_i2, …]
        whole = weighted(
            torch.cat([one for one in rows if one is not None], dim=1),
            coefficients[group[0]].double(),
        )
        parts = torch.split(whole, [math.prod(found[name].shape) for name in group])
        made |= {name: found[name].shaped(one) for name, one in zip(group, parts, strict=True)}
    return {name: made[name] for name in found}


def _groups(
    found: Mapping[str, ParameterGradients], coefficients: Mapping[str, Tensor]
) -> Iterator[Sequence[str]]:
    """Yield names of parameters that are summed together: small ones of one c and one precision."""
    waiting: dict[tuple[int, torch.dtype], tuple[list[str], int]] = {}
    for name, one in found.items():
        rows = one.small(SMALL)
        if rows is None:
            yield [name]
            continue
        kind = id(coefficients[name]), rows.dtype
        names, size = waiting.get(kind, ([], 0))
        if names and size + rows.shape[1] > TOGETHER:
            yield names
            names, size = [], 0
        waiting[kind] = [*names, name], size + rows.shape[1]
    for names, _ in waiting.values():
        yield names
