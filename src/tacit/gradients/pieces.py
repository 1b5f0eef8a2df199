"""The per-example gradients of one parameter, whatever reads it, with norms that bound the sums."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.gradients.products import SLACK, LayerGradients, cleared, stacked, summed
from tacit.gradients.rows import ROUNDED, squares, weighted


class TableGradients:
    """A table looked up: ``G_i = Σ_t e_{id(i,t)} g_itᵀ``, kept by the rows that were looked up.

    Args:
        count: rows of the table.
        padding: a row without a gradient; −1 for none.
    """

    def __init__(self, count: int, padding: int) -> None:
        self.count, self.padding = count, padding
        self._uses: list[tuple[Tensor, Tensor]] = []
        self._known: tuple[Tensor, Tensor, Tensor] | None = None
        self._examples = 0

    @property
    def uses(self) -> Sequence[tuple[Tensor, Tensor]]:
        """Indices (B, T) and gradients (B, T, d) of every use; those of padding are 0."""
        return self._uses

    def add(self, indices: Tensor, gradients: Tensor) -> None:
        """Add one use of the table.

        Args:
            indices: (B, T).
            gradients: (B, T, d) g.
        """
        self._known, self._examples = None, indices.shape[0]
        if self.padding >= 0:
            gradients = gradients.masked_fill((indices == self.padding)[..., None], 0.0)
        self._uses.append((indices, gradients))

    def masses(self) -> Tensor:
        """Return Σ_t ‖g_it‖, (B,) in float64."""
        lengths = [
            torch.linalg.vector_norm(one, dim=2, dtype=torch.float64).sum(dim=1)
            for _, one in self._uses
        ]
        return torch.stack(lengths).sum(dim=0)

    def squared_norms(self) -> Tensor:
        """Return (B,) ‖G_i‖² in float64, of the very rows that ``sums`` adds; inf if not finite."""
        _, examples, rows = self._rows()
        found = rows.new_zeros(self._examples)
        # ‖G_i‖² = Σ over the rows that i looked up
        found.index_add_(0, examples, rows.square().sum(dim=1))
        return torch.where(found.isfinite(), found, math.inf)

    def sums(self, coefficients: Tensor) -> Tensor:
        """Return Σ_i c_i G_i, (rows, d) in float64; what is not finite adds nothing."""
        places, examples, rows = self._rows()
        finite = self.squared_norms().isfinite()
        scale = torch.where(finite, coefficients.double(), 0.0)[examples]
        # 0·inf is no number: such rows are cleared, not multiplied
        clean = torch.where(finite[examples][:, None], rows, 0.0)
        total = rows.new_zeros(self.count, rows.shape[1])
        return total.index_add_(0, places, clean * scale[:, None])

    def joined(self, owners: Tensor) -> TableGradients:
        """Return the gradients of units, each a sum of those of its records."""
        made = TableGradients(self.count, self.padding)
        for indices, gradients in self._uses:
            # a place that no record has adds 0 to the first row
            made.add(stacked(indices, owners), stacked(gradients, owners))
        return made

    def dense(self) -> Tensor:
        """Return G, (B, rows · d) in float64."""
        places, examples, rows = self._rows()
        found = rows.new_zeros(self._examples * self.count, rows.shape[1])
        return found.index_add_(0, examples * self.count + places, rows).view(self._examples, -1)

    def _rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the row, the example and Σ_t g_it of every pair of them that occurs."""
        if self._known is None:
            indices = torch.cat([one for one, _ in self._uses], dim=1)
            gradients = torch.cat([one for _, one in self._uses], dim=1)
            examples = torch.arange(self._examples, device=indices.device)[:, None]
            # one number for each pair of an example and a row
            keys, inverse = _numbered(examples * self.count + indices)
            rows = gradients.new_zeros(len(keys), gradients.shape[2], dtype=torch.float64)
            # several positions of one row add up, in float64
            rows.index_add_(0, inverse.flatten(), gradients.flatten(0, 1).double())
            self._known = keys % self.count, keys // self.count, rows
        return self._known


def _numbered(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return the keys that occur, each once, and which of them each entry is.

    How many occur is read by the host; of a device it is not read, and numbers that are left over
    stand for the key 0 and have no entry.
    """
    if keys.device.type == "cpu":
        found: tuple[Tensor, Tensor] = torch.unique(keys, return_inverse=True)
        return found
    ordered, order = keys.flatten().sort()
    # one more wherever another key begins
    numbers = torch.zeros_like(ordered)
    numbers[1:] = (ordered[1:] != ordered[:-1]).cumsum(dim=0)
    # entries of one number write the same key
    seen = torch.zeros_like(ordered).scatter_(0, numbers, ordered)
    inverse = torch.empty_like(numbers).scatter_(0, order, numbers)
    return seen, inverse.view_as(keys)


# A product is formed once and kept where it is no larger than so many times its factors.
KEPT_COST = 4
# Fewer rows than that are few.
NARROW = 32


class Room:
    """How many bytes of products may be kept at a time.

    Args:
        most: of them.
    """

    def __init__(self, most: float = math.inf) -> None:
        self.most = self.left = most

    def take(self, size: int) -> bool:
        """Take so many bytes, if they are left."""
        taken = size <= self.left
        self.left -= size * taken
        return taken


class ParameterGradients:
    """G_i of one parameter over all of its uses: products of a layer, a table's rows, or dense rows.

    Args:
        shape: of the parameter.
        transposed: whether it is kept as (in, out) of the layers that it multiplies in.
        room: for products of layers; without end if none is given.
    """  # noqa: E501

    def __init__(
        self, shape: Sequence[int], *, transposed: bool = False, room: Room | None = None
    ) -> None:
        self.shape, self._transposed = tuple(shape), transposed
        self._room = Room() if room is None else room
        self._layer: LayerGradients | None = None
        self._table: TableGradients | None = None
        # dense rows, and whether each is of the transposed matrix
        self._dense: Tensor | None = None
        self._swapped = False
        self._squared: Tensor | None = None
        # whether all norms are finite
        self._whole = False

    def add_layer(self, gradients: Tensor, inputs: Tensor) -> None:
        """Add a use as ``y = a Wᵀ``: (B, T, out) g and (B, T, in) a.

        Where G_i is not much larger than its factors, and there is room, it is formed, as it comes
        out in single precision: its norm is taken of the very numbers that are summed.
        """
        out, width, positions = gradients.shape[2], inputs.shape[2], inputs.shape[1]
        first = positions > 1 and self._layer is None and self._table is None
        small = out * width <= KEPT_COST * positions * (out + width)
        if first and small and self._room.take(len(inputs) * out * width * inputs.element_size()):
            left, right = (inputs, gradients) if self._transposed else (gradients, inputs)
            if right.shape[2] < NARROW <= left.shape[2]:
                # a product with few rows is several times faster than its transpose
                self.add_dense(torch.bmm(right.mT, left), swapped=True)
            else:
                self.add_dense(torch.bmm(left.mT, right))
            return
        if self._layer is None:
            # of a convolution the matrix is (out, in · kernel)
            self._layer = LayerGradients(gradients.shape[2], inputs.shape[2], single=True)
        self._squared = None
        self._layer.add(gradients, inputs)

    def add_table(self, indices: Tensor, gradients: Tensor, padding: int) -> None:
        """Add a use as a table: (B, T) indices and (B, T, d) g."""
        if self._table is None:
            self._table = TableGradients(self.shape[0], padding)
        self._squared = None
        self._table.add(indices, gradients)

    def add_dense(self, rows: Tensor, *, swapped: bool = False) -> None:
        """Add a use by its gradients themselves, (B, …).

        Args:
            rows: of the parameter's shape, or of its matrix (first dimension, others).
            swapped: whether they are of the transposed matrix.
        """
        if self._dense is None:
            self._swapped = swapped
        elif swapped != self._swapped:
            sides = self._sides()[::-1] if swapped else self._sides()
            rows = rows.reshape(len(rows), *sides).mT
        # of a parameter that is one number, (B,), too
        rows, self._squared = rows.reshape(len(rows), -1), None
        # float64 as soon as there is something to add: the sum is what is clipped
        self._dense = rows if self._dense is None else self._dense.double() + rows.double()

    @property
    def known(self) -> bool:
        """Whether the norms were taken."""
        return self._squared is not None

    def know(self, squared: Tensor, *, whole: bool) -> None:
        """Take norms that ``bounding`` made of those of ``norms``.

        Args:
            squared: (B,).
            whole: whether the host knows all of them to be finite.
        """
        self._squared, self._whole = squared, whole

    @staticmethod
    def bounding(norms: Tensor) -> Tensor:
        """Return squared norms no less than those of what is added; inf where not finite."""
        # whichever way they were found, and whoever else is there, by the same share
        return torch.where(norms.isfinite(), norms * (1.0 + ROUNDED), math.inf)

    def squared_norms(self) -> Tensor:
        """Return (B,) ‖G_i‖² in float64, no less than those of what ``sums`` adds."""
        if self._squared is None:
            found = self.bounding(self.norms())
            # of a device the host reads nothing
            here = found.device.type == "cpu"
            self.know(found, whole=here and bool(found.isfinite().all()))
            return found
        return self._squared

    def sums(self, coefficients: Tensor) -> Tensor:
        """Return Σ_i c_i G_i in float64 and the parameter's shape, for (B,) c.

        A record whose gradient is not finite adds nothing.
        """
        finite, scale = self.squared_norms().isfinite(), coefficients.double()
        if not self._whole:
            scale = torch.where(finite, scale, 0.0)
        parts: list[Tensor] = []
        if self._layer is not None:
            made = self._layer.sums(scale)
            parts.append(made.mT if self._transposed else made)
        if self._table is not None:
            parts.append(self._table.sums(scale))
        if self._dense is not None:
            rows = self._dense if self._whole else cleared(self._dense, finite)
            parts.append(self.shaped(weighted(rows, scale)))
        total = parts[0].reshape(self.shape)
        for other in parts[1:]:
            total = total + other.reshape(self.shape)
        return total

    def small(self, most: int) -> Tensor | None:
        """Return dense rows (B, p) that are all there is, few and finite; None of any others."""
        rows = self._dense
        if rows is None or self._layer is not None or self._table is not None:
            return None
        return rows if self._whole and rows.shape[1] <= most else None

    def shaped(self, row: Tensor) -> Tensor:
        """Return a sum of dense rows, (p,), in the parameter's shape."""
        if self._swapped:
            row = row.view(self._sides()[::-1]).mT
        return row.reshape(self.shape)

    def dense(self) -> Tensor:
        """Return G, (B, …), in float64."""
        parts: list[Tensor] = []
        if self._layer is not None:
            made = self._layer.products().double()
            parts.append((made.mT if self._transposed else made).flatten(1))
        if self._table is not None:
            parts.append(self._table.dense())
        if self._dense is not None:
            rows = self._dense.double()
            if self._swapped:
                rows = rows.view(-1, *self._sides()[::-1]).mT.flatten(1)
            parts.append(rows)
        total = torch.stack(parts).sum(dim=0)
        return total.reshape(-1, *self.shape)

    def kept(self) -> int:
        """Return the bytes that are held."""
        parts = [] if self._dense is None else [self._dense]
        parts += [] if self._layer is None else self._layer.kept()
        parts += [] if self._table is None else [one for use in self._table.uses for one in use]
        return sum(one.numel() * one.element_size() for one in parts)

    def joined(self, owners: Tensor) -> ParameterGradients:
        """Return the gradients of units, each a sum of those of its records.

        Args:
            owners: (B,) whose each record is, from 0 on and in order.
        """
        made = ParameterGradients(self.shape, transposed=self._transposed)
        made._layer = None if self._layer is None else self._layer.joined(owners)
        made._table = None if self._table is None else self._table.joined(owners)
        if self._dense is not None:
            made._dense, made._swapped = summed(self._dense.double(), owners), self._swapped
        return made

    def _sides(self) -> tuple[int, int]:
        """Return the shape of the parameter as a matrix."""
        return self.shape[0], math.prod(self.shape[1:])

    def norms(self) -> Tensor:
        """Return (B,) ‖G_i‖² as they were found, in float64; what is not finite may be NaN."""
        kinds = [one for one in (self._layer, self._table, self._dense) if one is not None]
        if not kinds:
            raise RuntimeError("no use of the parameter was added")
        if self._dense is not None:
            if len(kinds) > 1:
                # uses of several kinds are one gradient: their sum is formed
                self._dense, self._swapped = self.dense().flatten(1), False
                self._layer = self._table = None
            # the norm of the rows that are summed, squares in float64
            return squares(self._dense)
        if self._layer is None or self._table is None:
            one = self._table if self._layer is None else self._layer
            assert one is not None
            return one.squared_norms()
        self._layer.in_double()
        # ‖L + E‖² = ‖L‖² + ‖E‖² + 2⟨L, E⟩ of a table that is also multiplied by, and what the
        # norms may have lost where the two cancel
        lost = SLACK * (self._layer.masses() + self._table.masses()).square()
        found = self._layer.squared_norms() + self._table.squared_norms() + 2.0 * self._cross()
        return found.clamp(min=0.0) + lost

    def _cross(self) -> Tensor:
        """Return ⟨L_i, E_i⟩ of a layer and a table of one weight, (B,)."""
        assert self._layer is not None
        assert self._table is not None
        terms: list[Tensor] = []
        for indices, gradients in self._table.uses:
            # ⟨Σ_s g_s x_sᵀ, Σ_t e_{id(t)} a_tᵀ⟩ = Σ_t a_t · (the row id(t) of L)
            rows = self._layer.rows_at(indices, transposed=self._transposed)
            terms.append((rows * gradients.double()).sum(dim=2).sum(dim=1))
        return torch.stack(terms).sum(dim=0)
