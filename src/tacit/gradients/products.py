"""The per-example gradients of one linear layer, as products or as their factors."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from tacit.gradients.rows import exact_squares, squares, weighted

# What a squared norm may be off, as a share of (Σ_t ‖g_t‖‖x_t‖)²: products of up to 2¹⁶ entries and
# two sums of 2¹⁶ positions, each off by 2⁻⁵³ of its terms. The same for every layer and batch, so
# that no record's factor depends on how long the others are.
SLACK = 2.0**18 * 2.0**-53
# A float64 Gram matrix costs about twice as much as the same product in float32.
GRAM_COST = 2
# From so many positions on a product in float32, formed twice, costs less than a sum in float64.
AGAIN = 40
# Entries of products that are formed together: 16 megabytes.
FORMED = 2**22


class LayerGradients:
    """``G_i = Σ_t g_it x_itᵀ`` of a layer: (B, out, in), or g (B, T, out) and x (B, T, in).

    Products are kept, in float64, where they cost less than factors, by memory and by time alike:
    ``out·in <= 2 T (out + in)``; a low-rank layer's always are, but for T = 1. Either way norms and
    sums are the same up to rounding in float64, for T is as long as the longest record makes it.

    Args:
        out: width of the outputs.
        width: width of the inputs.
        single: whether products of many positions may be formed in float32, some rows at a time,
            once for the norms and once for the sums: what is summed is no longer than its norm.
    """

    def __init__(self, out: int, width: int, *, single: bool = False) -> None:
        self.out, self.width = out, width
        self._products: Tensor | None = None
        self._factors: tuple[Tensor, Tensor] | None = None
        self._versions = (0, 0)
        self._squared: Tensor | None = None
        self._masses: Tensor | None = None
        self._precision = torch.float32
        self._single, self._parts = single, list[Tensor]()

    def in_double(self) -> None:
        """Form nothing in float32: what is added to it is known by its factors."""
        self._single, self._squared = False, None

    @property
    def examples(self) -> int:
        """B."""
        known = self._products if self._factors is None else self._factors[0]
        if known is None:
            raise RuntimeError("no use of the layer was added")
        return int(known.shape[0])

    def add(self, gradients: Tensor, inputs: Tensor) -> None:
        """Add one use of the layer.

        Args:
            gradients: (B, T, out) g.
            inputs: (B, T, in) x.
        """
        self._squared, self._precision = None, gradients.dtype
        # G of all uses is one sum
        if self._products is not None:
            # Σ_t ‖g_t‖‖x_t‖ adds up over uses, as the rounding that it bounds does
            self._masses = self.masses() + _masses(gradients, inputs)
            self._products.add_(self._product(gradients, inputs))
            return
        # g and x of several uses stand behind each other, as if positions of one
        if self._factors is not None:
            earlier = self._unchanged()
            gradients = torch.cat((earlier[0], gradients), dim=1)
            inputs = torch.cat((earlier[1], inputs), dim=1)
        positions = gradients.shape[1]
        # out·in <= 2 T (out + in): the product is no larger than its factors
        cheap = self.out * self.width <= GRAM_COST * positions * (self.out + self.width)
        if positions > 1 and cheap:
            self._factors, self._masses = None, _masses(gradients, inputs)
            self._products = self._product(gradients, inputs)
        else:
            self._factors, self._masses = (gradients, inputs), None
            self._versions = gradients._version, inputs._version

    def squared_norms(self) -> Tensor:
        """Return (B,) ‖G_i‖²_F in float64, no less than that of what ``sums`` adds.

        ``‖G_i‖² + 2⁻³⁵ (Σ_t ‖g_it‖‖x_it‖)²``, for where a record's positions cancel, what is added
        is its rounding. It is inf for a record whose gradient is not finite, which ``sums`` leaves
        out.
        """
        # once for each batch, as clipping and its check both read them
        if self._squared is None:
            if self._forms():
                # of the very numbers that are summed
                self._parts = [squares(made) for _, made in self._formed(*self._unchanged())]
                found = torch.stack(self._parts).sum(dim=0)
            else:
                # rounded up: what a norm in float64 may have lost stands beside it
                found = self._norms() + SLACK * self.masses().square()
            self._squared = torch.where(found.isfinite(), found, math.inf)
        return self._squared

    def sums(self, coefficients: Tensor) -> Tensor:
        """Return Σ_i c_i G_i, (out, in) in float64, for (B,) c.

        In float64, for what a record adds may be far below its terms, and float32 would round
        those; a record whose gradient is not finite adds nothing.
        """
        # NaN and inf take their record out, and no other
        finite = self.squared_norms().isfinite()
        # c_i, and 0 for what is not finite: 0·inf would be no number
        scale = torch.where(finite, coefficients.double(), 0.0)
        if self._factors is None:
            # Σ_i c_i G_i as one product with the rows vec(G_i)
            products = cleared(self._known().flatten(1), finite)
            return self._turn((scale @ products).view(self._known().shape[1:]))
        if self._forms():
            return self._sums_formed(scale, finite)
        # Σ_i c_i Σ_t g_it x_itᵀ as one product over examples and positions
        gradients, inputs = (cleared(one, finite).double() for one in self._unchanged())
        scale = scale[:, None, None]
        # the narrower factor is the one to copy
        if self.width < self.out:
            return _side_by_side(gradients) @ _side_by_side(inputs * scale).mT
        return _side_by_side(gradients * scale) @ _side_by_side(inputs).mT

    def masses(self) -> Tensor:
        """Return Σ_t ‖g_it‖‖x_it‖, (B,) in float64: what the rounding of G_i is a share of."""
        if self._masses is None:
            # of factors that no Gram matrix was formed of
            self._masses = _masses(*self._unchanged())
        return self._masses

    def kept(self) -> list[Tensor]:
        """Return what is held: products, or factors of which the input is the layer's own."""
        return [self._known()] if self._factors is None else [self._factors[0]]

    def joined(self, owners: Tensor) -> LayerGradients:
        """Return the gradients of units, each a sum of those of its records."""
        made = LayerGradients(self.out, self.width, single=self._single)
        if self._factors is not None:
            # Σ_i Σ_t g_it x_itᵀ: records of a unit stand behind each other, as positions of one
            gradients, inputs = (stacked(one, owners) for one in self._unchanged())
            made.add(gradients, inputs)
        else:
            made._products = summed(self._known(), owners)
            made._masses = summed(self.masses(), owners)
            made._precision = self._precision
        return made

    def rows_at(self, places: Tensor, *, transposed: bool = False) -> Tensor:
        """Return the rows of G_i at some outputs, (B, T, in) in float64.

        Args:
            places: (B, T) outputs of each example.
            transposed: whether rows of G_iᵀ are asked for, at some inputs.
        """
        if self._factors is None:
            made = self._turn(self._known())
            made = made.mT if transposed else made
            index = places[..., None].expand(-1, -1, made.shape[2])
            return made.gather(1, index).double()
        left, right = self._unchanged()
        if transposed:
            left, right = right, left
        # g_is[id(t)] of every position s, (B, T, S)
        index = places[:, None, :].expand(-1, left.shape[1], -1)
        chosen = left.gather(2, index).mT.double()
        return torch.bmm(chosen, right.double())

    def products(self) -> Tensor:
        """Return G, (B, out, in), in the precision of its factors."""
        made = self._known() if self._factors is None else self._product(*self._unchanged())
        return self._turn(made.to(self._precision))

    def _norms(self) -> Tensor:
        if self._factors is None:
            # Σ of squares of the entries of G_i
            return exact_squares(self._known().flatten(1))
        gradients, inputs = (one.double() for one in self._unchanged())
        if gradients.shape[1] == 1:
            # one position: ‖g xᵀ‖ = ‖g‖‖x‖, no product at all
            return exact_squares(gradients.flatten(1)) * exact_squares(inputs.flatten(1))
        # ‖Σ_t g_t x_tᵀ‖² = ⟨g gᵀ, x xᵀ⟩, in float64 because its terms cancel
        gram, other = torch.bmm(gradients, gradients.mT), torch.bmm(inputs, inputs.mT)
        # Σ_t ‖g_t‖‖x_t‖ of their diagonals, squares in float64
        lengths = gram.diagonal(dim1=1, dim2=2) * other.diagonal(dim1=1, dim2=2)
        self._masses = lengths.sqrt().sum(dim=1)
        gram.mul_(other)
        squares: Tensor = gram.sum(dim=2).sum(dim=1).clamp_(min=0.0)
        return squares

    def _forms(self) -> bool:
        """Whether products are formed in float32 and left again."""
        if not self._single or self._factors is None:
            return False
        return self._precision == torch.float32 and self._factors[0].shape[1] >= AGAIN

    def _formed(self, gradients: Tensor, inputs: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yield some rows of all G_i, (B, rows · in) in float32, in one place of memory."""
        count = gradients.shape[0]
        most = min(max(FORMED // (count * self.width), 1), self.out)
        place = gradients.new_empty(count * most * self.width)
        for start in range(0, self.out, most):
            rows = slice(start, min(start + most, self.out))
            size = (count, rows.stop - start, self.width)
            made = place[: math.prod(size)].view(size)
            torch.bmm(gradients[:, :, rows].mT, inputs, out=made)
            yield rows, made.flatten(1)

    def _sums_formed(self, scale: Tensor, finite: Tensor) -> Tensor:
        """Return Σ_i c_i G_i of products that are formed again, none longer than it was before."""
        total = scale.new_empty(self.out, self.width)
        factors = (cleared(one, finite) for one in self._unchanged())
        for (rows, made), known in zip(self._formed(*factors), self._parts, strict=True):
            found = squares(made)
            # what is formed a second time may be rounded otherwise
            shorter = torch.where(found > known, (known / found).sqrt(), 1.0)
            total[rows] = weighted(made, scale * shorter).view(-1, self.width)
        return total

    def _unchanged(self) -> tuple[Tensor, Tensor]:
        """Return the factors, which are the layer's own input and gradient and no copies."""
        if self._factors is None:
            raise RuntimeError("no use of the layer was added")
        if (self._factors[0]._version, self._factors[1]._version) != self._versions:
            raise ValueError(
                "modules: expected inputs and gradients of a layer to stay as they were in the "
                "backward pass until its sums are read, got a tensor that was written to"
            )
        return self._factors

    def _product(self, gradients: Tensor, inputs: Tensor) -> Tensor:
        # G_i of a record in float64, where its positions cancel
        gradients, inputs = gradients.double(), inputs.double()
        # a product with few rows is several times faster than its transpose
        if self.width < self.out:
            return torch.bmm(inputs.mT, gradients)
        return torch.bmm(gradients.mT, inputs)

    def _turn(self, values: Tensor) -> Tensor:
        return values.mT if self.width < self.out else values

    def _known(self) -> Tensor:
        if self._products is None:
            raise RuntimeError("no use of the layer was added")
        return self._products


class BiasGradients:
    """``b_i = Σ_t g_it`` of a layer's bias, (B, out)."""

    def __init__(self) -> None:
        self._values: Tensor | None = None

    def add(self, gradients: Tensor) -> None:
        """Add one use of the layer, (B, T, out) g."""
        # ∂ℓ/∂b = Σ_t g_t
        made = gradients.sum(dim=1)
        self._values = made if self._values is None else self._values.add_(made)

    def squared_norms(self) -> Tensor:
        """Return (B,) ‖b_i‖² in float64; inf where it is not finite."""
        found = exact_squares(self.products())
        return torch.where(found.isfinite(), found, math.inf)

    def sums(self, coefficients: Tensor) -> Tensor:
        """Return Σ_i c_i b_i, (out,) in float64, for (B,) c; what is not finite adds nothing."""
        finite = self.squared_norms().isfinite()
        # as of the weight: a record that is not finite adds nothing
        scale = torch.where(finite, coefficients.double(), 0.0)
        return scale @ cleared(self.products(), finite).double()

    def products(self) -> Tensor:
        """Return b, (B, out)."""
        if self._values is None:
            raise RuntimeError("no use of the layer was added")
        return self._values


def _masses(gradients: Tensor, inputs: Tensor) -> Tensor:
    """Σ_t ‖g_t‖‖x_t‖ of every record, (B,) in float64, which no float32 value overflows."""
    # norms in float64: ‖g‖‖x‖ of float32 values never overflows there
    lengths = [
        torch.linalg.vector_norm(one, dim=2, dtype=torch.float64) for one in (gradients, inputs)
    ]
    found: Tensor = (lengths[0] * lengths[1]).sum(dim=1)
    return found


def _side_by_side(factor: Tensor) -> Tensor:
    """Return (B, T, d) as (d, B T), no copy where the d entries of a position are neighbours."""
    if factor.stride(2) == 1:
        return factor.flatten(0, 1).mT
    # what a convolution sees has positions as neighbours: they are copied in runs
    return factor.permute(2, 0, 1).flatten(1)


def summed(rows: Tensor, owners: Tensor) -> Tensor:
    """Return the sums of rows of each owner, (P, …).

    Owners stay with the host, which reads from them how many there are.
    """
    made = rows.new_zeros(int(owners[-1]) + 1, *rows.shape[1:])
    return made.index_add_(0, owners.to(rows.device, non_blocking=True), rows)


def stacked(rows: Tensor, owners: Tensor) -> Tensor:
    """Return (B, T, …) as (P, k T, …), k records of an owner at most; 0 where there are fewer."""
    counts = torch.bincount(owners)
    # the place of each record among those of its owner: owners come in order
    places = torch.arange(len(owners)) - (counts.cumsum(0) - counts)[owners]
    made = rows.new_zeros(len(counts), int(counts.max()), *rows.shape[1:])
    # copied from the host's memory as they stand, and not waited for
    index = [one.to(rows.device, non_blocking=True) for one in (owners, places)]
    made[index[0], index[1]] = rows
    return made.flatten(1, 2)


def cleared(values: Tensor, finite: Tensor) -> Tensor:
    """Return values (B, …) with 0 for the records that are not finite."""
    # no copy where nothing has to go, which a processor sees and a device is not asked
    if finite.device.type == "cpu" and bool(finite.all()):
        return values
    shape = (-1, *[1] * (values.ndim - 1))
    return torch.where(finite.reshape(shape), values, 0.0)


def sequences(name: str, gradients: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return g (B, T, out) and x (B, T, in), in float32 at least."""
    if gradients.ndim < 2:
        raise ValueError(
            f"modules: expected inputs whose first dimension is the batch at {name}, got shape "
            f"{tuple(inputs.shape)}"
        )
    # half precision would round the sums that are clipped
    precise = gradients.dtype
    if not precise == inputs.dtype == torch.float32:
        precise = torch.promote_types(torch.promote_types(precise, inputs.dtype), torch.float32)
    count, positions = gradients.shape[0], math.prod(gradients.shape[1:-1])
    return (
        gradients.to(precise).reshape(count, positions, gradients.shape[-1]),
        inputs.to(precise).reshape(count, positions, inputs.shape[-1]),
    )
