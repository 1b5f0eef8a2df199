"""Residual codes: a vector as a sum of codewords, one of each stage."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from torch import Tensor

from tacit._ground.checks import RandomSource, generator, integer
from tacit._ground.reprs import short_repr
from tacit.codec import APART
from tacit.compute import progress_bar
from tacit.hidden_states.codebooks.beam import Beams, Stages, extended, nearest_sums, sums
from tacit.hidden_states.codebooks.certificates import Codes
from tacit.hidden_states.codebooks.clustering import Advance, nearest_cells
from tacit.hidden_states.codebooks.codec import Codec
from tacit.hidden_states.codebooks.methods import ResidualFit
from tacit.hidden_states.codebooks.response import RandomizedParts
from tacit.hidden_states.codebooks.subspace import (
    Floats,
    Subspace,
    power_near,
    principal_subspace,
    unit_of,
)
from tacit.hidden_states.origin import Origin, digest_of
from tacit.hidden_states.tensors import check_matrix
from tacit.models.behaviours import as_states
from tacit.text import number_up

# rows that are searched at once: their sums so far are what a call holds beside its rows
ROWS_TOGETHER = 2**15
LARGEST_BEAM = 256
BITS_DIGITS = 4
# of rows in a unit near their largest entry: a few units in the last place of float32
ROUNDING = 2.0**-20
# rounds of k-means on at most so many rows a codeword; all rows make the last means
ROUNDS, ROWS_PER_CODEWORD = 16, 128
# of the way to a row, by which codewords are apart that share a cell
NUDGE = 2.0**-6


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
        return int(self.mean.shape[1])

    @property
    def words(self) -> str:
        asked = len(self.stages) * math.log2(self.asked)
        return (
            f"which codewords of {len(self.stages)} stages are summed to it, "
            f"{number_up(self.kept_bits, BITS_DIGITS)} bits of the "
            f"{number_up(asked, BITS_DIGITS)} asked for"
        )

    @property
    def digest(self) -> str:
        return digest_of(self._tensors(), f"residual {self.beam}")

    @property
    def centroids(self) -> tuple[Tensor, ...]:
        """Codewords of every stage as vectors that are summed, (C_j, d), the mean in the first."""
        first, *others = self._vectors
        # the mean is added once, with the first stage
        return tuple(map(torch.from_numpy, (first + self._space.mean, *others)))

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

    def first(self, count: int) -> ResidualCodebook:
        """Return the codebook of the first stages, whose codes have fewer bits.

        Args:
            count: stages that it has.

        Raises:
            ValueError: there are fewer.

        Example:
            >>> rows = torch.randn(900, 6, generator=torch.Generator().manual_seed(0))
            >>> book = ResidualCodebook.fit(rows, ResidualFit(stages=3, size=8), rng=0)
            >>> book.first(2).kept_bits
            6.0
        """
        integer("count", count, minimum=1, maximum=len(self.stages))
        return replace(self, stages=self.stages[:count])

    def encode(self, states: ArrayLike) -> Codes:
        """Return the codes of vectors (n, d), (n, m), by a search that keeps B sums."""
        rows = as_states("states", states, width=self.width).numpy()
        codes = np.empty((len(rows), len(self.stages)), dtype=np.int64)
        space, stages, unit = self._space, *self._search
        # a search holds B sums of every row: some rows at a time
        for start in range(0, len(rows), ROWS_TOGETHER):
            part = slice(start, start + ROWS_TOGETHER)
            codes[part] = nearest_sums(space.coordinates(rows[part], unit), stages, self.beam)
        return codes

    def decode(self, codes: ArrayLike) -> Tensor:
        rows = self._checked(codes)
        # x̂ = mean + Σ_j basisᵀ c_j, number by number from tables: the last bits of a product would
        # say how many codes were decoded at once, and there would be more vectors than codes
        return torch.from_numpy(sums(self._vectors, rows) + self._space.mean)

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
    def _vectors(self) -> list[Floats]:
        """Codewords of every stage as vectors, (C_j, d), without the mean."""
        basis = self._space.basis
        if basis is None:
            return self._tables
        # in float64, and rounded once
        wide = basis.astype(np.float64)
        return [(table.astype(np.float64) @ wide).astype(np.float32) for table in self._tables]

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


def fit_stages(
    rows: Floats, how: ResidualFit, source: np.random.Generator, advance: Advance
) -> tuple[Subspace, tuple[Floats, ...]]:
    """Return the directions that are coded, and the codewords of every stage.

    A stage is fitted to what all sums that a search keeps leave of every row, as it will be given
    these. A codeword is a mean over at least ``least_cell`` different rows.
    """
    mean = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
    unit = unit_of(rows, mean)
    space = principal_subspace(rows, mean, unit, how.stages * math.log2(max(how.size, 2)))
    points = space.coordinates(rows, unit)
    tables: tuple[Floats, ...] = ()
    beams = Beams.empty(len(points))
    for _ in range(how.stages):
        tables, beams = _with_stage(points, tables, beams, how, source)
        advance(1)
    return space, tuple(table * np.float32(unit) for table in tables)


def _with_stage(
    points: Floats,
    tables: tuple[Floats, ...],
    beams: Beams,
    how: ResidualFit,
    source: np.random.Generator,
) -> tuple[tuple[Floats, ...], Beams]:
    """Return one stage more and the sums with it, which are no farther from the rows than before.

    Codewords that serve all sums may not serve the best one, where the others are far off: then
    those of the best alone are taken, and where these do not help either, a codeword of zeros.
    """
    before = float(beams.scores[:, 0].mean(dtype=np.float64))
    for kept in dict.fromkeys((beams.scores.shape[1], 1)):
        # what each of the sums so far leaves of its row: x − s
        left = np.repeat(points, kept, axis=0)
        if tables:
            left -= sums(tables, beams.codes[:, :kept].reshape(len(left), len(tables)))
        if float(np.abs(left).max()) <= ROUNDING:
            # what rounding left says nothing of a row
            break
        owners = np.repeat(np.arange(len(points)), kept)
        more = *tables, fit_codewords(left, owners, how.size, how.least_cell, source)
        found = extended(points, Stages(more), len(tables), beams, how.beam)
        # ‖x − s‖² = ‖x‖² − 2 score: the mean score may not fall
        if float(found.scores[:, 0].mean(dtype=np.float64)) >= before:
            return more, found
    more = *tables, np.zeros((1, points.shape[1]), dtype=np.float32)
    return more, extended(points, Stages(more), len(tables), beams, how.beam)


def fit_codewords(
    rows: Floats, owners: Codes, size: int, least: int, source: np.random.Generator
) -> Floats:
    """Return the means of at most ``size`` cells of rows that are near each other.

    Args:
        rows: (n, r).
        owners: (n,), which vector each is of; a cell needs ``least`` different ones.
        size: C.
        least: vectors of a cell at least.
        source: of the start.
    """
    part, most = rows, ROWS_PER_CODEWORD * size
    if len(rows) > most:
        part = rows[np.sort(source.choice(len(rows), most, replace=False))]
    # from rows as they come: seeds far from all others would be cells of few rows, which are lost
    centres = part[source.choice(len(part), size, replace=False)].copy()
    enough = max(1, least * len(part) // len(rows))
    for left in range(ROUNDS - 1, -1, -1):
        cells = _nearest(part, centres)
        centres, counts = _means(part, cells, centres)
        if left:
            # the last round leaves every codeword a mean
            _split(part, cells, centres, counts, enough, source)
    cells, kept = without_few(rows, owners, _nearest(rows, centres), centres, least)
    return _means(rows, cells, centres[kept])[0]


def without_few(
    rows: Floats, owners: Codes, cells: Codes, centres: Floats, least: int
) -> tuple[Codes, Codes]:
    """Remove the cell of fewest vectors until all that are left have at least ``least``.

    The rows of a removed cell go to the nearest codeword that is left, so that cells only grow.

    Returns:
        The cells (n,), numbered from 0 without gaps, and the numbers they had.
    """
    found = cells.copy()
    held = [set(owners[cells == cell].tolist()) for cell in range(len(centres))]
    left = {cell: len(own) for cell, own in enumerate(held) if own}
    while len(left) > 1:
        fewest = min(left, key=left.__getitem__)
        if left[fewest] >= least:
            break
        del left[fewest]
        moved = np.flatnonzero(found == fewest)
        others = np.fromiter(left, dtype=np.int64)
        found[moved] = others[_nearest(rows[moved], centres[others])]
        for cell in np.unique(found[moved]).tolist():
            held[cell].update(owners[moved[found[moved] == cell]].tolist())
            left[cell] = len(held[cell])
    kept = np.fromiter(sorted(left), dtype=np.int64)
    number = np.full(len(centres), -1)
    number[kept] = np.arange(len(kept))
    return number[found], kept


def _nearest(rows: Floats, centres: Floats) -> Codes:
    return nearest_cells(torch.from_numpy(rows), torch.from_numpy(centres))


def _means(rows: Floats, cells: Codes, otherwise: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return the mean of every cell, ``otherwise`` where there are no rows, and their counts."""
    shape = (len(otherwise), len(rows))
    counts = np.bincount(cells, minlength=len(otherwise))
    # sums over cells as a product with the table of who is where
    inside = sparse.csr_matrix(
        (np.ones(len(rows), dtype=np.float32), (cells, np.arange(len(rows)))), shape
    )
    means = np.asarray(inside @ rows, dtype=np.float32) / np.maximum(counts, 1)[:, None]
    return np.where(counts[:, None] > 0, means, otherwise).astype(np.float32), counts


def _split(
    rows: Floats,
    cells: Codes,
    centres: Floats,
    counts: npt.NDArray[np.int64],
    enough: int,
    source: np.random.Generator,
) -> None:
    """Put the codewords of too few rows beside those of the most, whose rows they will share."""
    few = np.flatnonzero(counts < enough)
    most = np.argsort(-counts, kind="stable")[: len(few)]
    # a cell is shared only where both halves may have enough
    most = most[counts[most] >= 2 * enough]
    order = source.permutation(len(rows))
    # the first row of every cell in a random order
    present, first = np.unique(cells[order], return_index=True)
    chosen = order[first[np.searchsorted(present, most)]]
    # a little to either side of the mean, towards a row: two halves, not a row and all others
    step = np.float32(NUDGE) * (rows[chosen] - centres[most])
    centres[few[: len(most)]] = centres[most] + step
    centres[most] -= step
