"""Residual codes: a vector as a sum of codewords, one of each stage."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from tacit._ground.checks import RandomSource, generator, integer
from tacit._ground.reprs import short_repr
from tacit.codec import APART
from tacit.compute import progress_bar
from tacit.hidden_states.codebooks.beam import Stages, nearest_sums, sums
from tacit.hidden_states.codebooks.certificates import Codes
from tacit.hidden_states.codebooks.codec import Codec
from tacit.hidden_states.codebooks.methods import ResidualFit
from tacit.hidden_states.codebooks.residual_fitting import fit_stages
from tacit.hidden_states.codebooks.response import RandomizedParts
from tacit.hidden_states.codebooks.subspace import Floats, Subspace, power_near
from tacit.hidden_states.origin import Origin, digest_of
from tacit.hidden_states.tensors import check_matrix
from tacit.models.behaviours import as_states
from tacit.text import number_up

# rows that are searched at once: their sums so far are what a call holds beside its rows
ROWS_TOGETHER = 2**15
LARGEST_BEAM = 256
BITS_DIGITS = 4


@short_repr
@dataclass(frozen=True, eq=False)
class ResidualCodebook(Codec):
    """m stages of C_j codewords, whose sum stands for a vector: ``Π_j C_j`` codes.

    Each stage codes what the stages before it left, so that all bits go where the vectors still
    differ. Vectors are coded in the principal directions that so few bits can say anything of.

    Attributes:
        stages: codewords of every stage, (C_j, r) of float32.
        mean: (1, d), what is subtracted first.
        basis: (r, d) with orthonormal rows, the directions that are coded; None for all of them.
        beam: B, sums that are kept after each stage of a search.
        asked: C, codewords of a stage that were asked for; those of too few vectors were removed.
        calibration: vectors it was fitted on.
        least_cell: calibration vectors that every codeword is an average over at least.
        origin: model, layer and calibration prompts by digest; None where they are not known.
    """

    form: ClassVar[str] = "tacit-residual-codebook-1"
    summed: ClassVar[bool] = True

    stages: Annotated[tuple[Tensor, ...], APART]
    mean: Annotated[Tensor, APART]
    basis: Annotated[Tensor | None, APART]
    beam: int
    asked: int
    calibration: int
    least_cell: int
    origin: Origin | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.stages, tuple) or not self.stages:
            raise ValueError("stages: expected a tuple of at least one tensor, got none")
        check_matrix("mean", self.mean, rows=1)
        width = self.mean.shape[1]
        if self.basis is not None:
            check_matrix("basis", self.basis, columns=width)
            width = self.basis.shape[0]
        integer("beam", self.beam, minimum=1, maximum=LARGEST_BEAM)
        for name in ("asked", "calibration", "least_cell"):
            integer(name, getattr(self, name), minimum=1)
        for place, table in enumerate(self.stages):
            check_matrix(f"stage {place}", table, columns=int(width))
            if len(table) > self.asked:
                raise ValueError(
                    f"stage {place}: expected at most the {self.asked} codewords asked for, got "
                    f"{len(table)}"
                )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Codewords of every stage."""
        return tuple(len(table) for table in self.stages)

    @property
    def width(self) -> int:
        """d, numbers in a vector."""
        return int(self.mean.shape[1])

    @property
    def words(self) -> str:
        """What a code says, in a few words."""
        asked = len(self.stages) * math.log2(self.asked)
        return (
            f"which codewords of {len(self.stages)} stages are summed to it, "
            f"{number_up(self.kept_bits, BITS_DIGITS)} bits of the "
            f"{number_up(asked, BITS_DIGITS)} asked for"
        )

    @property
    def digest(self) -> str:
        """SHA-256 of all that assigns and decodes."""
        return digest_of(self._tensors(), f"residual {self.beam}")

    @property
    def centroids(self) -> tuple[Tensor, ...]:
        """Codewords of every stage as vectors that are summed, (C_j, d), the mean in the first."""
        space = self._space
        turned = Subspace(np.zeros_like(space.mean), space.basis)
        first, *others = self._tables
        found = [space.vectors(first), *(turned.vectors(table) for table in others)]
        return tuple(torch.from_numpy(table) for table in found)

    @classmethod
    def fit(
        cls,
        states: ArrayLike,
        how: ResidualFit,
        *,
        rng: RandomSource = None,
        progress: bool | None = None,
    ) -> ResidualCodebook:
        """Fit k-means, stage by stage, on what public calibration vectors leave.

        Args:
            states: (n, d), public, disjoint from what is released.
            how: stages, C codewords of each at most, and the sums that a search keeps.
            rng: source of the choices.
            progress: whether a bar is shown; None for when stderr is a terminal.

        Returns:
            The codebook.

        Raises:
            ValueError: a bad argument.

        Example:
            >>> rows = torch.randn(900, 6, generator=torch.Generator().manual_seed(0))
            >>> book = ResidualCodebook.fit(rows, ResidualFit(stages=3, size=8), rng=0)
            >>> book.size, book.kept_bits, book.encode(rows).shape
            (512, 9.0, (900, 3))

        Source: residual vector quantisation by multi-path search (Barnes, Rizvi and Nasrabadi,
        1996).
        """
        rows = as_states("states", states)
        integer("size", how.size, minimum=1, maximum=len(rows))
        integer("beam", how.beam, minimum=1, maximum=LARGEST_BEAM)
        if len(rows) < how.least_cell:
            raise ValueError(
                f"states: expected at least {how.least_cell}, the least cell, got {len(rows)} rows"
            )
        source = generator(rng)
        with progress_bar(how.stages, "codebook", shown=progress is not False) as advance:
            space, stages = fit_stages(rows.numpy(), how, source, advance)
        return cls(
            stages=tuple(torch.from_numpy(table) for table in stages),
            mean=torch.from_numpy(space.mean)[None],
            basis=None if space.basis is None else torch.from_numpy(space.basis),
            beam=how.beam,
            asked=how.size,
            calibration=len(rows),
            least_cell=how.least_cell,
        )

    def encode(self, states: ArrayLike) -> Codes:
        """Return the codes of vectors (n, d), (n, m), by a search that keeps B sums."""
        rows = as_states("states", states, width=self.width).numpy()
        codes = np.empty((len(rows), len(self.stages)), dtype=np.int64)
        space, stages, unit = self._space, *self._search
        for start in range(0, len(rows), ROWS_TOGETHER):
            part = slice(start, start + ROWS_TOGETHER)
            codes[part] = nearest_sums(space.coordinates(rows[part], unit), stages, self.beam)
        return codes

    def decode(self, codes: ArrayLike) -> Tensor:
        """Return the vector that stands for each code (n, m), (n, d)."""
        rows = self._checked(codes)
        summed = sums(self._tables, rows)
        return torch.from_numpy(self._space.vectors(summed))

    def randomised(self, epsilon: float, *, near: int = 1) -> RandomizedParts:
        """Return randomised response over every stage, ε in equal shares.

        Nearness is the distance of the codewords of a stage.

        Args:
            epsilon: ε > 0 of the whole code.
            near: k, codewords of a stage most like the true one that are reported for it.

        Raises:
            ValueError: a bad ε, or k codewords that some stage does not have beside others.
        """
        return RandomizedParts.nearest(
            epsilon, [table.float().numpy() for table in self.stages], near
        )

    @cached_property
    def _tables(self) -> list[Floats]:
        return [table.float().numpy() for table in self.stages]

    @cached_property
    def _space(self) -> Subspace:
        basis = None if self.basis is None else self.basis.float().numpy()
        return Subspace(self.mean[0].float().numpy(), basis)

    @cached_property
    def _search(self) -> tuple[Stages, float]:
        """Codewords in a unit in which their entries are of order 1, and that unit."""
        return in_unit(self._tables)

    def _tensors(self) -> dict[str, Tensor]:
        found = {f"stage.{place}": table for place, table in enumerate(self.stages)}
        found["mean"] = self.mean
        return found if self.basis is None else {**found, "basis": self.basis}

    @classmethod
    def _apart(cls, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        count = len(tensors) - 1 - ("basis" in tensors)
        stages = tuple(tensors[f"stage.{place}"] for place in range(count))
        return {"stages": stages, "mean": tensors["mean"], "basis": tensors.get("basis")}


def in_unit(tables: list[Floats]) -> tuple[Stages, float]:
    """Return codewords in a unit in which the largest entry is of order 1, and that unit."""
    # squares of numbers of order 1 neither over- nor underflow in float32
    unit = power_near(max(float(np.abs(table).max()) for table in tables))
    return Stages(tuple(table * np.float32(1.0 / unit) for table in tables)), unit
