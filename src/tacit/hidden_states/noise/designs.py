"""Every design of hidden-state releases at one KL budget, so that they compare at equal cost."""

from __future__ import annotations

from numpy.typing import ArrayLike

from tacit._ground.checks import as_float, integer, non_negative, positive
from tacit.design import Design
from tacit.hidden_states.geometry.estimation import Geometry
from tacit.hidden_states.noise.shapes import (
    Complement,
    FisherComplement,
    GeneralizedEigen,
    InverseFisher,
    Isotropic,
    MahalanobisOptimal,
    Power,
    Shape,
    WorstCase,
)


def designs_at_budget(
    geometry: Geometry,
    kl_budget: float,
    *,
    rank: int | None = None,
    exponent: float = 0.5,
    floor: float = 1e-2,
    differences: ArrayLike | None = None,
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
        >>> from tacit.hidden_states import measure_geometry
        >>> from tacit.models import load
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
    budget, width = positive("kl_budget", kl_budget), geometry.width
    kept = geometry.rank if rank is None else integer("rank", rank, minimum=1, maximum=width - 1)
    alpha, eta = as_float("exponent", exponent), non_negative("floor", floor)
    shapes: dict[str, Shape] = {
        "isotropic": Isotropic(),
        "generalized-eigen(1)": GeneralizedEigen(1),
        f"generalized-eigen({kept})": GeneralizedEigen(kept),
        "mahalanobis-bare": MahalanobisOptimal(0.0),
        "mahalanobis-optimal": MahalanobisOptimal(eta),
        "inverse-fisher": InverseFisher(),
        "inverse-fisher-diagonal": InverseFisher(diagonal=True),
        f"power({alpha:g})": Power(alpha),
        "complement": Complement(kept),
        "fisher-complement": FisherComplement(kept),
    }
    if differences is not None:
        shapes["worst-case"] = WorstCase(eta)
    return {
        name: shape.design(geometry, budget, differences=differences)
        for name, shape in shapes.items()
        if shape.refusal(geometry) is None
    }
