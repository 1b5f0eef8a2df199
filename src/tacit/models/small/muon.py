"""Muon in the precision that a machine computes fast in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

# Coefficients of the quintic whose slope at zero is steepest (Jordan, 2024).
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ROUNDS = 5
SMALLEST = 1e-7


class Muon(torch.optim.Optimizer):
    """Momentum whose steps are made nearly orthogonal, for the matrices of hidden layers.

    ``torch.optim.Muon`` multiplies in bfloat16 alone, which processors without such products
    emulate two hundred times slower than float32; this one takes the precision as an argument and
    multiplies matrices of one shape together. The update is

        B ← μ B + (1 − μ) G,   W ← (1 − η w) W − η √max(1, rows/columns) NS((1 − μ) G + μ B).

    Args:
        groups: parameter groups of matrices, each with its ``lr``.
        momentum: μ.
        weight_decay: w.
        precision: dtype of the products.

    Source: Jordan (2024), Muon: an optimizer for hidden layers in neural networks.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        momentum: float,
        weight_decay: float,
        precision: torch.dtype,
    ) -> None:
        defaults = {"lr": 1e-3, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(groups, defaults)
        self.precision = precision

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Move every matrix that has a gradient."""
        if closure is not None:
            raise ValueError("closure: expected None, for the gradients are computed already")
        for group in self.param_groups:
            for matrices in _alike(group["params"]):
                # matrices of one shape in one product
                update = torch.stack([self._direction(w, group["momentum"]) for w in matrices])
                rows, columns = matrices[0].shape
                # √max(1, rows/columns): a step of the same size in the outputs
                rate = group["lr"] * max(1.0, rows / columns) ** 0.5
                moves = orthogonalise(update, self.precision)
                for matrix, move in zip(matrices, moves, strict=True):
                    # decay apart from the step
                    matrix.mul_(1.0 - group["lr"] * group["weight_decay"])
                    matrix.add_(move, alpha=-rate)

    def _direction(self, matrix: Tensor, momentum: float) -> Tensor:
        """Return Nesterov's momentum of a matrix."""
        state, gradient = self.state[matrix], matrix.grad
        assert gradient is not None
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(gradient)
        # B ← μ B + (1 − μ) G
        kept: Tensor = state["momentum"].lerp_(gradient, 1.0 - momentum)
        # (1 − μ) G + μ B
        return gradient.lerp(kept, momentum)


def _alike(matrices: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Yield the matrices that have gradients, those of one shape together."""
    shapes: dict[torch.Size, list[Tensor]] = {}
    for matrix in matrices:
        if matrix.grad is not None:
            shapes.setdefault(matrix.shape, []).append(matrix)
    yield from shapes.values()


def orthogonalise(stack: Tensor, precision: torch.dtype) -> Tensor:
    """Bring the singular values of every matrix near one: Newton and Schulz's iteration.

    ``X ← a X + (b A + c A²) X`` with ``A = X Xᵀ`` on the smaller side, from X of norm one.

    Args:
        stack: (k, m, n).
        precision: dtype of the products.

    Returns:
        (k, m, n), singular values of each within about 0.5 … 1.5 where X's were not tiny.
    """
    # X Xᵀ on the smaller side
    tall = stack.shape[1] > stack.shape[2]
    start = stack.mT if tall else stack
    # Frobenius: all singular values at most one
    norm = torch.linalg.matrix_norm(start, keepdim=True).clamp_min(SMALLEST)
    start = (start / norm).to(precision)
    a, b, c = COEFFICIENTS
    current = start
    for _ in range(ROUNDS):
        # A = X Xᵀ
        gram = current @ current.mT
        # b A + c A²
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        # a X + (b A + c A²) X
        current = torch.baddbmm(current, factor, current, beta=a)
    found: Tensor = current.to(stack.dtype)
    return found.mT if tall else found
