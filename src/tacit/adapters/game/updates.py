"""What an update says about one record to whoever sees it and knows every other record."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from tacit._ground.checks import in_interval, positive
from tacit.gradients.methods import Method


def update_log_ratio(
    method: Method,
    published: Tensor,
    others: Tensor,
    canary: Tensor,
    projection: Tensor | None,
    std: float,
    *,
    sampling_rate: float = 1.0,
) -> Tensor:
    """Return how much likelier an update is with the canary than without it, in nats.

    With U what `Method.step` returned, m(V) what it returns of V without noise, A public and
    Σ the covariance of the noise, ``l = ⟨U − m(V_others), m(G)⟩_Σ⁻¹ − ½ ‖m(G)‖²_Σ⁻¹``, and for a
    canary that is in the sample with probability q: ``ln(1 − q + q e^l)``. Its sum over the steps
    is the likelihood ratio of all of them: no attacker who sees the run does better.

    Args:
        method: of the step; one that adds noise.
        published: U, (…, out, in) or (…, out, rank): what ``method.step`` returned.
        others: sum of what the step took of the other records' gradients (clipped where it clips).
        canary: what it would take of the canary's, of the same shape.
        projection: A, (…, rank, in); None where it is not used.
        std: standard deviation of the noise, as in ``method.step``.
        sampling_rate: q in (0, 1].

    Returns:
        (…) in float64.

    Raises:
        ValueError: a bad argument, or a method without noise.

    Example:
        >>> import torch
        >>> from tacit.adapters import DPSGD
        >>> zero, canary = torch.zeros(1, 2, 3), torch.ones(1, 2, 3)
        >>> update_log_ratio(DPSGD(), canary, zero, canary, None, 1.0)
        tensor([3.], dtype=torch.float64)

    Source: Neyman and Pearson (1933); lora-privacy, Eq. M2 for the noise.
    """
    if method.noise == "none":
        raise ValueError(f"method: expected one that adds noise, got {method.name}")
    scale = positive("std", std)
    rate = in_interval("sampling_rate", sampling_rate, 0.0, 1.0, open_low=True)
    exact = None if projection is None else projection.double()
    clean = partial(method.step, projection=exact, std=0.0, normal=_zeros)
    moved = clean(canary.double())
    residual = published.double() - clean(others.double())
    if method.noise == "projected" and exact is not None:
        seen, moved = _whitened(residual, moved, exact, full=method.full)
    else:
        seen = residual
    ratio = ((seen - 0.5 * moved) * moved).sum(dim=(-2, -1)) / scale**2
    if rate == 1.0:
        return ratio
    absent = torch.full_like(ratio, math.log1p(-rate))
    return torch.logaddexp(absent, ratio + math.log(rate))


def _zeros(shape: tuple[int, ...]) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


def _whitened(
    residual: Tensor, moved: Tensor, projection: Tensor, *, full: bool
) -> tuple[Tensor, Tensor]:
    """Return both as noise z with independent N(0, 1) entries would give them.

    With ``AAᵀ = LLᵀ`` the noise ``E Aᵀ`` is ``z Lᵀ``, and ``E AᵀA`` times Aᵀ is ``z Lᵀ L Lᵀ``.
    Where A has more rows than columns, z is E itself.
    """
    both = torch.cat([residual, moved], dim=-2)
    if projection.shape[-2] > projection.shape[-1]:
        noise = projection.mT @ projection if full else projection.mT
        both = both @ torch.linalg.pinv(noise)
    else:
        root = torch.linalg.cholesky(projection @ projection.mT)
        if full:
            both = _over(_over(both @ projection.mT, root.mT, upper=True), root, upper=False)
        both = _over(both, root.mT, upper=True)
    rows = residual.shape[-2]
    return both[..., :rows, :], both[..., rows:, :]


def _over(left: Tensor, triangle: Tensor, *, upper: bool) -> Tensor:
    """Return ``left triangle⁻¹``."""
    solution: Tensor = torch.linalg.solve_triangular(triangle, left, upper=upper, left=False)
    return solution
