"""What one use of a parameter adds to its per-example gradients: rows J, or factors of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from tacit.gradients.batches import HALVES


def at_least_single(values: Tensor) -> Tensor:
    """Return values in single precision where they came in half."""
    return values.float() if values.dtype in HALVES else values


class Contribution(Protocol):
    """Per-example gradients of one use of a parameter of shape (rows, …)."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the parameter."""
        ...

    @property
    def granularity(self) -> int:
        """Number of rows that only come together."""
        ...

    def rows(self, start: int, stop: int) -> Tensor:
        """Return the gradients of rows ``start`` … ``stop`` of the parameter, (B, n)."""
        ...

    def weighted(self, coefficients: Tensor) -> Tensor:
        """Return Σ_i c_i g_i in the parameter's shape."""
        ...


@dataclass(frozen=True, eq=False)
class DenseGradients:
    """The per-example gradients J themselves.

    Attributes:
        values: (B, p).
        shape: the parameter's shape, of p entries.
    """

    values: Tensor
    shape: tuple[int, ...]

    granularity = 1

    def rows(self, start: int, stop: int) -> Tensor:
        """Return columns of J."""
        if not self.shape:
            return self.values
        # columns of J in one row of the parameter
        width = self.values.shape[1] // self.shape[0]
        return self.values[:, start * width : stop * width]

    def weighted(self, coefficients: Tensor) -> Tensor:
        """Return cᵀJ."""
        # Σ_i c_i J_i, one product over examples
        return (coefficients.to(self.values.dtype) @ self.values).reshape(self.shape)


@dataclass(frozen=True, eq=False)
class LinearFactors:
    """A matrix product ``y = a Wᵀ``: ``J_i = g_iᵀ a_i`` summed over positions.

    Attributes:
        inputs: a, (B, T, in).
        gradients: g, (B, T, out).
        transposed: whether the parameter is Wᵀ, (in, out).
    """

    inputs: Tensor
    gradients: Tensor
    transposed: bool = False

    granularity = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the parameter, (out, in) or (in, out)."""
        left, right = self._sides
        return (left.shape[2], right.shape[2])

    @property
    def _sides(self) -> tuple[Tensor, Tensor]:
        """The factor of the parameter's rows and that of its columns."""
        # J_i = g_iᵀ a_i is (out, in), of Wᵀ it is the other way round
        sides = (self.gradients, self.inputs)
        return sides[::-1] if self.transposed else sides

    def rows(self, start: int, stop: int) -> Tensor:
        """Return (g_i[:, start:stop])ᵀ a_i for every example."""
        left, right = self._sides
        # Σ_t of outer products, for some rows of W alone
        return torch.bmm(left[:, :, start:stop].transpose(1, 2), right).flatten(1)

    def weighted(self, coefficients: Tensor) -> Tensor:
        """Return Σ_i c_i g_iᵀ a_i as one product over examples and positions."""
        left, right = self._sides
        # c_i multiplies the narrower factor: that is the smaller copy
        if left.shape[2] <= right.shape[2]:
            left = scale(left, coefficients)
        else:
            right = scale(right, coefficients)
        # Σ_i Σ_t c_i g_it a_itᵀ in one product, (out, B T) by (B T, in)
        return left.flatten(0, 1).T @ right.flatten(0, 1)

    def gram(self) -> Tensor | None:
        """Return JJᵀ = (a aᵀ)∘(g gᵀ), (B, B), where there is one position."""
        if self.inputs.shape[1] != 1:
            return None
        # in float64: the products of two Gram matrices
        inputs, gradients = self.inputs[:, 0].double(), self.gradients[:, 0].double()
        return (inputs @ inputs.T) * (gradients @ gradients.T)


@dataclass(frozen=True, eq=False)
class ConvolutionFactors:
    """A convolution, by its own weight gradient with one group per example.

    Attributes:
        inputs: a, (B, C, …).
        gradients: g, (B, O, …).
        shape: of the weight, (O, C / groups, …).
        stride, padding, dilation, groups: the convolution's.
    """

    inputs: Tensor
    gradients: Tensor
    shape: tuple[int, ...]
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int

    @property
    def granularity(self) -> int:
        """Rows of a group come together, unless there is one group."""
        return self.shape[0] // self.groups if self.groups > 1 else 1

    def rows(self, start: int, stop: int) -> Tensor:
        """Return the weight gradient with B · groups groups, in which no example meets another."""
        count, channels = self.inputs.shape[:2]
        # without groups every output row reads all channels
        inputs, groups = self.inputs, 1
        if self.groups > 1:
            # groups whose outputs are asked for, and their channels
            first, last = start // self.granularity, stop // self.granularity
            wide = channels // self.groups
            inputs, groups = inputs[:, first * wide : last * wide], last - first
        gradients = self.gradients[:, start:stop]
        # examples side by side as channels, one group each: no sum over examples
        found = self._gradient(
            gradients.reshape(1, -1, *gradients.shape[2:]),
            inputs.reshape(1, -1, *inputs.shape[2:]),
            (count * (stop - start), *self.shape[1:]),
            count * groups,
        )
        return found.reshape(count, -1)

    def weighted(self, coefficients: Tensor) -> Tensor:
        """Return the ordinary weight gradient of c · g."""
        # linear in g: the sum over examples that a backward pass makes, of c_i g_i
        return self._gradient(
            scale(self.gradients, coefficients), self.inputs, self.shape, self.groups
        )

    def _gradient(
        self, gradients: Tensor, inputs: Tensor, shape: tuple[int, ...], groups: int
    ) -> Tensor:
        # only the shape of the weight is read
        weight = inputs.new_empty(shape)
        _, found, _ = torch.ops.aten.convolution_backward(
            gradients,
            inputs,
            weight,
            None,
            self.stride,
            self.padding,
            self.dilation,
            False,
            [0] * (len(shape) - 2),
            groups,
            [False, True, False],
        )
        result: Tensor = found
        return result


@dataclass(frozen=True, eq=False)
class EmbeddingFactors:
    """A table looked up: every position adds its gradient to the row of its index.

    Attributes:
        indices: (B, T).
        gradients: g, (B, T, d).
        count: number of rows of the table.
        padding: the row without a gradient, −1 for none.
    """

    indices: Tensor
    gradients: Tensor
    count: int
    padding: int

    granularity = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the table."""
        return (self.count, self.gradients.shape[2])

    def rows(self, start: int, stop: int) -> Tensor:
        """Return the sums of g over the positions of each index between ``start`` and ``stop``."""
        # (B, n) of zeros, and every position added to the row of its index
        batch, width = len(self.indices), self.gradients.shape[2]
        return self.add_to(self.gradients.new_zeros(batch, (stop - start) * width), start, stop)

    def add_to(self, block: Tensor, start: int, stop: int) -> Tensor:
        """Add the rows to those of another use, (B, n), in place."""
        size, width = stop - start, self.gradients.shape[2]
        # positions that look up a row asked for; the padding row has no gradient
        example, position = torch.nonzero(
            (self.indices >= start) & (self.indices < stop) & (self.indices != self.padding),
            as_tuple=True,
        )
        # where (example, row) stands in the block
        slots = example * size + self.indices[example, position] - start
        # several positions of one index add up
        block.view(-1, width).index_add_(0, slots, self.gradients[example, position])
        return block

    def weighted(self, coefficients: Tensor) -> Tensor:
        """Return the table's gradient of c · g."""
        # linear in g: Σ_i Σ_t c_i g_it at the row of each index
        found: Tensor = torch.ops.aten.embedding_dense_backward(
            scale(self.gradients, coefficients), self.indices, self.count, self.padding, False
        )
        return found


Contributions: TypeAlias = Sequence[Contribution]


def scale(gradients: Tensor, coefficients: Tensor) -> Tensor:
    """Return c_i g_i, example by example."""
    return gradients * coefficients.to(gradients.dtype).reshape(-1, *[1] * (gradients.ndim - 1))


def among_seen(batches: Sequence[Sequence[EmbeddingFactors]]) -> tuple[list[Contributions], int]:
    """Return the same look-ups in the table of the rows that occur, and how many those are.

    Rows that no example looks up add nothing to a Gram matrix.
    """
    # all indices of all micro-batches, so that a row has one number in all
    every = torch.cat([use.indices.flatten() for uses in batches for use in uses])
    seen, renamed = torch.unique(every, return_inverse=True)
    parts = iter(renamed.split([use.indices.numel() for uses in batches for use in uses]))
    found: list[Contributions] = []
    for uses in batches:
        found.append([_rename(use, seen, next(parts)) for use in uses])
    return found, int(seen.numel())


def _rename(use: EmbeddingFactors, seen: Tensor, indices: Tensor) -> EmbeddingFactors:
    # the padding row under its new number, if it occurs
    position = torch.nonzero(seen == use.padding)
    padding = int(position[0]) if position.numel() else -1
    return replace(
        use, indices=indices.reshape(use.indices.shape), count=len(seen), padding=padding
    )
