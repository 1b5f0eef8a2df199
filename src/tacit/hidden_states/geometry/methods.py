"""How Fisher information and the spread of states are measured, as values."""

from __future__ import annotations

from typing import Any, Literal

from tacit._ground.values import Count, Positive, value


@value
class FisherFit:
    """How the Fisher information of a state is measured.

    Args:
        label_source: Where labels come from: true, model-sampled, model-exact or top-k; what each
            is and costs stands at ``fisher_information``.
        diagonal: Keep the d numbers of the diagonal of F alone.
        next_tokens: What follows each prompt, (n,), for true labels alone.
        draws: Labels drawn a prompt, of model-sampled ones.
        top: Likeliest tokens kept apart, of top-k; V − 1 where it is more.
        batch_size: Prompts run at a time.

    Example:
        >>> FisherFit(label_source="top-k", top=8)
        FisherFit(label_source='top-k', top=8)
    """

    label_source: Literal["true", "model-sampled", "model-exact", "top-k"] = "model-sampled"
    diagonal: bool = False
    next_tokens: Any = None
    draws: Count = 1
    top: Count = 32
    batch_size: Count | None = None


@value
class GeometryFit(FisherFit):
    """How the geometry of a layer is measured: its Fisher information, and its spread.

    Args:
        label_source: As of ``FisherFit``.
        diagonal: Likewise.
        next_tokens: Likewise.
        draws: Likewise.
        top: Likewise.
        batch_size: Likewise.
        rank: k, 1 … d − 1; the smaller of 128 and d/2 when left out.
        difference_scale: S from unit differences, as published, or from raw ones.
        pairs: Random pairs for the unit differences.
        ridge: λ, relative to the mean eigenvalue.

    Example:
        >>> GeometryFit(rank=4).draws
        4
    """

    draws: Count = 4
    rank: Count | None = None
    difference_scale: Literal["unit", "raw"] = "unit"
    pairs: Count = 20_000
    ridge: Positive = 1e-4


FISHER, GEOMETRY = FisherFit(), GeometryFit()
