"""Every design of hidden-state releases at one KL budget, so that they compare at equal cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tacit._ground.checks import Array, as_float, integer, matrix, non_negative, positive
from tacit.design import (
    Design,
    average,
    ball,
    complement,
    generalized_eigen,
    isotropic,
    power,
    worst_case,
)
from tacit.hidden_states.geometry.estimation import Geometry


def designs_at_budget(
    geometry: Geometry,
    kl_budget: float,
    *,
    rank: int | None = None,
    exponent: float = 0.5,
    floor: float = 1e-2,
    differences: Any = None,
) -> dict[str, Design]:
    """Return each design that spends exactly K nats by the quadratic prediction ``½ tr(FΣ)``.

    Designs that invert F use the geometry's ridge and are rescaled to K under F itself. Those
    without full rank hide nothing from an attacker who knows Σ (hidden-state, Prop. 9): they are
    here to be compared.

    Args:
        geometry: F and S of the layer.
        kl_budget: K in nats, > 0.
        rank: k of the complement and generalised-eigen designs; the geometry's own by default.
        exponent: α of the diagonal family ``diag(F)^-α``.
        floor: variance added in every direction by the floored designs, relative to the mean.
        differences: (m, d), for the design that is least in the worst case over this list.

    Returns:
        Designs by name: ``isotropic``, ``complement``, ``fisher-complement``,
        ``generalized-eigen(1)``, ``generalized-eigen(k)``, ``mahalanobis-bare``,
        ``mahalanobis-optimal`` (floored), ``inverse-fisher``, ``inverse-fisher-diagonal``,
        ``power(α)``, and ``worst-case`` (floored) with differences. The complement designs are
        left out where F has no more than k directions, outside of which noise costs nothing.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> import torch
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> from tacit.hidden_states.geometry.estimation import measure_geometry
        >>> from tacit.models.language import load
        >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
        >>> model = load(GPT2LMHeadModel(GPT2Config(**sizes)))
        >>> found = measure_geometry(model, 1, torch.arange(48).reshape(8, 6), rank=4, rng=0)
        >>> designs = designs_at_budget(found, kl_budget=0.1)
        >>> len(designs), {round(design.cost, 9) for design in designs.values()}
        (10, {0.1})

    Source: hidden-state, Sec. 4–6, App. Q.10, Q.11, S.
    """
    if not isinstance(geometry, Geometry):
        raise ValueError(f"geometry: expected a Geometry, got {type(geometry).__name__}")
    budget = positive("kl_budget", kl_budget)
    width = geometry.width
    kept = geometry.rank if rank is None else integer("rank", rank, minimum=1, maximum=width - 1)
    fisher, ridged = geometry.dense_fisher, geometry.ridged_fisher
    alpha, eta = as_float("exponent", exponent), non_negative("floor", floor)
    level = geometry.ridge * float(np.trace(fisher)) / width
    diagonal = np.diagonal(ridged)

    def least_average(added: float) -> Design:
        return average(fisher, geometry.spread, budget, ridge=level, floor=added)

    makers: dict[str, Callable[[], Design]] = {
        "isotropic": lambda: isotropic(fisher, budget),
        "generalized-eigen(1)": lambda: generalized_eigen(ridged, geometry.spread, budget, 1),
        f"generalized-eigen({kept})": lambda: generalized_eigen(
            ridged, geometry.spread, budget, kept
        ),
        "mahalanobis-bare": lambda: least_average(0.0),
        "mahalanobis-optimal": lambda: least_average(eta),
        "inverse-fisher": lambda: ball(ridged, budget),
        "inverse-fisher-diagonal": lambda: ball(diagonal, budget),
        f"power({alpha:g})": lambda: power(diagonal, alpha, budget),
    }
    # F may be zero outside k directions, where noise costs nothing and no budget fixes it
    if geometry.fisher_rank > kept:
        makers["complement"] = lambda: complement(fisher, kept, budget)
        makers["fisher-complement"] = lambda: complement(fisher, kept, budget, whiten=True)
    if differences is not None:
        rows = matrix("differences", differences, columns=width)
        makers["worst-case"] = lambda: _worst_case(rows, ridged, eta)
    return {name: _spending(make(), fisher, budget) for name, make in makers.items()}


def _worst_case(rows: Array, cost: Array, floor: float) -> Design:
    if not rows.any():
        raise ValueError("differences: expected one that is not zero, got none")
    design = worst_case(rows, 1.0, cost=cost)
    covariance = design.covariance
    if floor > 0.0:
        covariance = covariance.with_floor(floor * covariance.trace() / covariance.dim)
        note = f"floor of {floor:g} of the mean variance in every direction"
    else:
        note = "outside the span of the listed differences there may be no noise at all"
    return replace(design, covariance=covariance, gap=math.nan, notes=(*design.notes, note))


def _spending(design: Design, fisher: Array, budget: float) -> Design:
    """Rescale Σ so that ½ tr(FΣ) is the budget under F without its ridge."""
    used = 0.5 * design.covariance.weighted_trace(fisher)
    if used <= 0.0:
        raise ValueError(f"geometry: the {design.method} design costs nothing under F, got 0 nats")
    if np.isclose(used, budget, rtol=1e-12, atol=0.0):
        return design
    if design.method != "worst-case":
        note = f"rescaled by {budget / used:.6g} to cost {budget:g} nats under F without its ridge"
        design = replace(design, notes=(*design.notes, note))
    return replace(
        design,
        covariance=design.covariance.scaled(budget / used),
        cost=budget,
        constraint_factor=None,
        multiplier_ratios=None,
    )
