"""Product codes: a vector cut into parts, each part coded by a codebook of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from tacit._ground.checks import RandomSource, generator, integer
from tacit._ground.reprs import short_repr
from tacit.codec import APART
from tacit.compute import progress_bar
from tacit.hidden_states.codebooks.certificates import Codes
from tacit.hidden_states.codebooks.clustering import FIRST_ROUNDS, FULL_ROUNDS, nearest_cells
from tacit.hidden_states.codebooks.codec import Codec
from tacit.hidden_states.codebooks.fitting import cells_of_states
from tacit.hidden_states.codebooks.methods import ProductFit
from tacit.hidden_states.codebooks.response import RandomizedParts
from tacit.hidden_states.origin import Origin, digest_of
from tacit.hidden_states.tensors import check_matrix
from tacit.models.behaviours import as_states


@short_repr
@dataclass(frozen=True, eq=False)
class ProductCodebook(Codec):
    """m parts of a vector, C_j cells for each: ``Π_j C_j`` codes, and as many nats as their logs.

    Attributes:
        parts: centroids of every part, (C_j, d/m) of float32.
        calibration: vectors it was fitted on.
        least_cell: calibration vectors that every centroid is the average of at least.
        origin: model, layer and calibration prompts by digest; None where they are not known.
    """

    form: ClassVar[str] = "tacit-product-codebook-2"

    parts: Annotated[tuple[Tensor, ...], APART]
    calibration: int
    least_cell: int
    origin: Origin | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.parts, tuple) or not self.parts:
            raise ValueError("parts: expected a tuple of at least one tensor, got none")
        for place, part in enumerate(self.parts):
            check_matrix(f"part {place}", part)
            if part.shape[1] != self.parts[0].shape[1]:
                raise ValueError(
                    f"part {place}: expected {self.parts[0].shape[1]} columns, as the first part "
                    f"has, got {part.shape[1]}"
                )
        for name in ("calibration", "least_cell"):
            integer(name, getattr(self, name), minimum=1)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(part) for part in self.parts)

    @property
    def width(self) -> int:
        return sum(int(part.shape[1]) for part in self.parts)

    @property
    def words(self) -> str:
        most = max(self.sizes)
        return f"which of at most {most:,} cells each of {len(self.parts)} parts lies in"

    @property
    def digest(self) -> str:
        return digest_of({str(place): part for place, part in enumerate(self.parts)}, "product")

    @property
    def centroids(self) -> tuple[Tensor, ...]:
        """Those of every part."""
        return self.parts

    @classmethod
    def fit(
        cls,
        states: ArrayLike,
        how: ProductFit,
        *,
        rng: RandomSource = None,
        progress: bool | None = None,
    ) -> ProductCodebook:
        """Fit k-means on every part of public calibration vectors.

        Args:
            states: (n, d), public, disjoint from what is released.
            how: m parts, which divide d, and C cells of each at most.
            rng: source of the choices.
            progress: whether a bar is shown; None for when stderr is a terminal.

        Returns:
            The codebook.

        Raises:
            ValueError: a bad argument.

        Example:
            >>> rows = torch.randn(900, 6, generator=torch.Generator().manual_seed(0))
            >>> book = ProductCodebook.fit(rows, ProductFit(parts=3, size=8), rng=0)
            >>> book.size, book.assign(rows).shape
            (512, (900, 3))

        Source: product quantisation (Jégou, Douze and Schmid, 2011).
        """
        rows = as_states("states", states)
        if rows.shape[1] % how.parts:
            raise ValueError(f"parts: expected a divisor of {rows.shape[1]}, got {how.parts}")
        cells = integer("size", how.size, minimum=1, maximum=len(rows))
        if len(rows) < how.least_cell:
            raise ValueError(
                f"states: expected at least {how.least_cell}, the least cell, got {len(rows)} rows"
            )
        # k-means of every part by itself: ‖h − c‖² is a sum over parts
        source = generator(rng)
        steps = how.parts * (1 + FIRST_ROUNDS + FULL_ROUNDS)
        with progress_bar(steps, "codebook", shown=progress is not False) as advance:
            found = tuple(
                cells_of_states(part.contiguous(), cells, how.least_cell, source, advance)[0]
                for part in torch.tensor_split(rows, how.parts, dim=1)
            )
        return cls(parts=found, calibration=len(rows), least_cell=how.least_cell)

    def encode(self, states: ArrayLike) -> Codes:
        return self.assign(states)

    def assign(self, states: ArrayLike) -> Codes:
        """Return the nearest centroid of every part, (n, m)."""
        rows = as_states("states", states, width=self.width)
        # the nearest product centroid is the nearest of every part
        blocks = torch.split(rows, [int(part.shape[1]) for part in self.parts], dim=1)
        found = [
            nearest_cells(block.contiguous(), part)
            for block, part in zip(blocks, self.parts, strict=True)
        ]
        return np.stack(found, axis=1)

    def decode(self, codes: ArrayLike) -> Tensor:
        rows = torch.from_numpy(self._checked(codes))
        # a code names one centroid of every part: side by side they are the vector
        return torch.cat([part[rows[:, j]] for j, part in enumerate(self.parts)], dim=1)

    def randomised(self, epsilon: float, *, near: int = 1) -> RandomizedParts:
        """Return randomised response over every part, ε in equal shares.

        Nearness of cells is the distance of their centroids.

        Args:
            epsilon: ε > 0 of the whole code.
            near: k, cells of a part most like the true one that are reported for it.

        Raises:
            ValueError: a bad ε, or k cells that some part does not have beside others.
        """
        return RandomizedParts.nearest(epsilon, [part.numpy() for part in self.parts], near)

    def _tensors(self) -> dict[str, Tensor]:
        return {f"part.{place}": part for place, part in enumerate(self.parts)}

    @classmethod
    def _apart(cls, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        return {"parts": tuple(tensors[f"part.{place}"] for place in range(len(tensors)))}
