"""Product codes: a vector cut into parts, each part coded by a codebook of its own."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from tacit._ground.checks import RandomSource, generator, integer
from tacit._ground.reprs import short_repr
from tacit.compute import progress_bar
from tacit.documents import check_known
from tacit.guarantees import InformationBound, MaximalLeakage
from tacit.hidden_states.codebooks.assignment import nearest_cells
from tacit.hidden_states.codebooks.certificates import (
    CodeCertificate,
    Codes,
    certify,
    checked_codes,
    codes_leakage,
    compose,
)
from tacit.hidden_states.codebooks.clustering import FIRST_ROUNDS, FULL_ROUNDS
from tacit.hidden_states.codebooks.counting import information
from tacit.hidden_states.codebooks.fitting import cells_of_states
from tacit.hidden_states.codebooks.least_cells import LEAST_CELL
from tacit.hidden_states.codebooks.randomised_parts import RandomizedParts
from tacit.hidden_states.codebooks.response import nearest_codes
from tacit.hidden_states.codebooks.shapes import check_matrix
from tacit.hidden_states.codebooks.storage import malformed, read_parts, write_parts
from tacit.hidden_states.origin import Origin, digest_of, origin_from, published
from tacit.models.behaviours import as_states


@short_repr
@dataclass(frozen=True, eq=False)
class ProductCodebook:
    """m parts of a vector, C_j cells for each: ``Π_j C_j`` codes, and as many nats as their logs.

    Attributes:
        parts: centroids of every part, (C_j, d/m) of float32.
        calibration: vectors it was fitted on.
        least_cell: calibration vectors that every centroid is the average of at least.
        origin: model, layer and calibration prompts by digest; None where they are not known.
    """

    parts: tuple[Tensor, ...]
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
        """Cells of every part."""
        return tuple(len(part) for part in self.parts)

    @property
    def size(self) -> int:
        """Codes there are, ``Π_j C_j``."""
        return math.prod(self.sizes)

    @property
    def width(self) -> int:
        """d, numbers in a vector."""
        return sum(int(part.shape[1]) for part in self.parts)

    @property
    def words(self) -> str:
        """What a code says, in a few words."""
        most = max(self.sizes)
        return f"which of at most {most:,} cells each of {len(self.parts)} parts lies in"

    @property
    def digest(self) -> str:
        """SHA-256 of all that assigns and decodes."""
        return digest_of({str(place): part for place, part in enumerate(self.parts)}, "product")

    @classmethod
    def fit(
        cls,
        states: ArrayLike,
        *,
        parts: int,
        size: int,
        least_cell: int = LEAST_CELL,
        rng: RandomSource = None,
        progress: bool | None = None,
    ) -> ProductCodebook:
        """Fit k-means on every part of public calibration vectors.

        Args:
            states: (n, d), public, disjoint from what is released.
            parts: m, which divides d.
            size: C, cells of a part at most.
            least_cell: calibration vectors of a cell at least: smaller cells are removed.
            rng: source of the choices.
            progress: whether a bar is shown; None for when stderr is a terminal.

        Returns:
            The codebook.

        Raises:
            ValueError: a bad argument.

        Example:
            >>> rows = torch.randn(900, 6, generator=torch.Generator().manual_seed(0))
            >>> book = ProductCodebook.fit(rows, parts=3, size=8, rng=0)
            >>> book.size, book.assign(rows).shape
            (512, (900, 3))

        Source: product quantisation (Jégou, Douze and Schmid, 2011).
        """
        rows = as_states("states", states)
        count = integer("parts", parts, minimum=1)
        if rows.shape[1] % count:
            raise ValueError(f"parts: expected a divisor of {rows.shape[1]}, got {count}")
        cells = integer("size", size, minimum=1, maximum=len(rows))
        least = integer("least_cell", least_cell, minimum=1)
        if len(rows) < least:
            raise ValueError(
                f"states: expected at least {least}, the least cell, got {len(rows)} rows"
            )
        source = generator(rng)
        steps = count * (1 + FIRST_ROUNDS + FULL_ROUNDS)
        with progress_bar(steps, "codebook", shown=progress is not False) as advance:
            found = tuple(
                cells_of_states(part.contiguous(), cells, least, source, advance)[0]
                for part in torch.tensor_split(rows, count, dim=1)
            )
        return cls(parts=found, calibration=len(rows), least_cell=least)

    def assign(self, states: ArrayLike) -> Codes:
        """Return the nearest centroid of every part, (n, m)."""
        rows = as_states("states", states, width=self.width)
        blocks = torch.split(rows, [int(part.shape[1]) for part in self.parts], dim=1)
        found = [
            nearest_cells(block.contiguous(), part)
            for block, part in zip(blocks, self.parts, strict=True)
        ]
        return np.stack(found, axis=1)

    def decode(self, codes: ArrayLike) -> Tensor:
        """Return the vector that stands for each code, (n, d)."""
        rows = torch.from_numpy(self._checked(codes))
        return torch.cat([part[rows[:, j]] for j, part in enumerate(self.parts)], dim=1)

    def certify(self, codes: ArrayLike, *, weights: ArrayLike | None = None) -> CodeCertificate:
        """Bound what the code of one of N candidates tells: cells are distinct rows of codes.

        Args:
            codes: of every candidate, (N, m).
            weights: (N,) probabilities up to a factor; uniform when None.
        """
        rows = self._checked(codes)
        cells = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
        return certify(cells, self.size, weights=weights)

    def compose(
        self, releases: int, candidates: int, *, weights: ArrayLike | None = None
    ) -> CodeCertificate:
        """Bound T releases without a bank, as ``Codebook.compose``."""
        return compose(self.size, releases, candidates, weights=weights)

    def leakage(self, releases: int = 1) -> MaximalLeakage:
        """Return what T codes multiply any attacker's chance by: ``(Π_j C_j)^T``."""
        return codes_leakage(self.size, integer("releases", releases, minimum=1))

    def information(self, releases: int = 1) -> InformationBound:
        """Return what T codes tell about a vector whatever its law: ``T Σ_j ln C_j`` nats."""
        return information(self.sizes, releases)

    def randomised(self, epsilon: float, *, near: int = 1) -> RandomizedParts:
        """Return randomised response over every part, ε in equal shares.

        Nearness of cells is the distance of their centroids.

        Args:
            epsilon: ε > 0 of the whole code.
            near: k, cells of a part most like the true one that are reported for it.

        Raises:
            ValueError: a bad ε, or k cells that some part does not have beside others.
        """
        least = min((size for size in self.sizes if size > 1), default=2)
        integer("near", near, minimum=1, maximum=least - 1)
        return RandomizedParts(epsilon, tuple(_nearest(part, near) for part in self.parts))

    def centroids(self) -> npt.NDArray[np.float32]:
        """Return the centroids as FAISS keeps them, (m, 2^b, d/m) of float32.

        ``b = ⌈log2 max C_j⌉``, at least 1; a part of fewer cells repeats its first one, which no
        code refers to.
        """
        return np.stack(
            [
                np.concatenate(
                    [part.numpy(), np.repeat(part[:1].numpy(), 2**self.bits - len(part), 0)]
                )
                for part in self.parts
            ]
        )

    @property
    def bits(self) -> int:
        """b, bits that the code of a part takes."""
        return max(1, (max(self.sizes) - 1).bit_length())

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the codebook as safetensors, whole or not at all.

        Raises:
            ValueError: the file cannot be written.
        """
        return write_parts(path, self.parts, self._about())

    def _about(self) -> dict[str, Any]:
        sizes = {"calibration": self.calibration, "least_cell": self.least_cell}
        return sizes | published(self.origin)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ProductCodebook:
        """Read what ``save`` wrote.

        Raises:
            ValueError: no such file, or not a product of codebooks.
        """
        parts, about = read_parts(path)
        with malformed(path):
            found = cls(
                parts=parts,
                calibration=about["calibration"],
                least_cell=about["least_cell"],
                origin=origin_from(about.get("origin")),
            )
            check_known("path", about, found._about())
            return found

    def _checked(self, codes: Any) -> Codes:
        rows = checked_codes("codes", codes, max(self.sizes), least=1)
        if rows.ndim != 2 or rows.shape[1] != len(self.parts):
            raise ValueError(f"codes: expected shape (n, {len(self.parts)}), got {rows.shape}")
        for place, size in enumerate(self.sizes):
            if int(rows[:, place].max()) >= size:
                raise ValueError(
                    f"codes: expected integers in 0 … {size - 1} in part {place}, got "
                    f"{rows[:, place].max()}"
                )
        return rows


def _nearest(part: Tensor, near: int) -> Codes:
    if near == 1 or len(part) == 1:
        return np.arange(len(part))[:, None]
    return nearest_codes(torch.cdist(part, part).numpy(), near)
