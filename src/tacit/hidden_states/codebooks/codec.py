"""What makes codes of vectors, whatever kind: read, assigned, decoded, stored, counted."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from tacit import codec
from tacit._ground.checks import integer
from tacit.guarantees import InformationBound, MaximalLeakage
from tacit.hidden_states.codebooks.certificates import (
    CodeCertificate,
    Codes,
    certify,
    checked_codes,
    codes_leakage,
    compose,
    information,
)
from tacit.hidden_states.codebooks.response import RandomizedCodes, RandomizedParts
from tacit.hidden_states.origin import Origin
from tacit.hidden_states.tensors import format_of, malformed, read_tensors, write_tensors

# What reads each kind of file: a further kind of code is its module and a line here.
CODECS = {
    "tacit-codebook-2": "tacit.hidden_states.codebooks.codebook:Codebook",
    "tacit-product-codebook-2": "tacit.hidden_states.codebooks.product:ProductCodebook",
    "tacit-residual-codebook-1": "tacit.hidden_states.codebooks.residual:ResidualCodebook",
}


class Codec(ABC):
    """m numbers in the place of a vector, each one of C_j: ``Π_j C_j`` codes, and no more to tell.

    A kind of code is a frozen dataclass of its own, whose tensors stand apart from the JSON of its
    header. What is certified of codes is counted here, whatever makes them.

    Attributes:
        form: name of the format of its files.
        summed: whether the centroids of the parts are summed to a vector; put side by side if not.
        calibration: public vectors it was fitted on.
        least_cell: calibration vectors that what stands for a cell is the average of at least.
        origin: model, layer and calibration prompts by digest; None where they are not known.
    """

    form: ClassVar[str]
    summed: ClassVar[bool] = False

    calibration: int
    least_cell: int
    origin: Origin | None

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """Cells C_j of every part of a code, m of them."""

    @property
    @abstractmethod
    def width(self) -> int:
        """d, numbers in a vector."""

    @property
    @abstractmethod
    def words(self) -> str:
        """What a code says, in a few words."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """SHA-256 of all that assigns and decodes."""

    @property
    @abstractmethod
    def centroids(self) -> tuple[Tensor, ...]:
        """What stands for the cells of every part, (C_j, d_j) for d_j numbers of the vector.

        Where they are summed, d_j is d.
        """

    @abstractmethod
    def encode(self, states: ArrayLike) -> Codes:
        """Return the codes of vectors (n, d) alone, (n, m).

        Raises:
            ValueError: vectors of another width, or codes that vectors alone do not give.
        """

    @abstractmethod
    def decode(self, codes: ArrayLike) -> Tensor:
        """Return the vector that stands for each code (n, m), (n, d)."""

    @abstractmethod
    def randomised(self, epsilon: float, *, near: int = 1) -> RandomizedCodes | RandomizedParts:
        """Return randomised response over codes, or over each of their parts.

        Args:
            epsilon: ε > 0 of the whole code.
            near: k, cells of a part most like the true one that are reported for it.
        """

    @abstractmethod
    def _tensors(self) -> Mapping[str, Tensor]:
        """Tensors of its file by name."""

    @classmethod
    @abstractmethod
    def _apart(cls, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return the fields that stand apart from the JSON, from the tensors of a file."""

    @property
    def size(self) -> int:
        """Codes there are, ``Π_j C_j``."""
        return math.prod(self.sizes)

    @property
    def kept_bits(self) -> float:
        """Bits that a code can tell, ``Σ_j log2 C_j``, rounded up.

        Example:
            >>> import torch
            >>> from tacit.hidden_states import ProductCodebook
            >>> ProductCodebook((torch.eye(2), torch.eye(2)), 9, 1).kept_bits
            2.0
        """
        # a power of two is exact; log2 of an integer of any size is off by an ulp at most
        size = self.size
        exact = float(size.bit_length() - 1)
        return exact if size == 1 << int(exact) else math.nextafter(math.log2(size), math.inf)

    @property
    def bits(self) -> int:
        """b, bits that the code of a part takes: ``⌈log2 max C_j⌉``, at least 1."""
        return max(1, (max(self.sizes) - 1).bit_length())

    def leakage(self, releases: int = 1) -> MaximalLeakage:
        """Return what T codes multiply any attacker's chance of guessing anything right by.

        That is ``(Π_j C_j)^T``, for every prior and all side information.

        Source: Issa, Wagner and Kamath (2020), Theorem 1.
        """
        return codes_leakage(self.size, integer("releases", releases, minimum=1))

    def information(self, releases: int = 1) -> InformationBound:
        """Return what T codes tell about a vector whatever its law: ``T Σ_j ln C_j`` nats."""
        return information(self.sizes, releases)

    def compose(
        self, releases: int, candidates: int, *, weights: ArrayLike | None = None
    ) -> CodeCertificate:
        """Bound T releases without a look at a bank: see ``certificates.compose``."""
        return compose(self.size, releases, candidates, weights=weights)

    def certify(self, codes: ArrayLike, *, weights: ArrayLike | None = None) -> CodeCertificate:
        """Bound what the code (N, m) of one of N candidates of a bank tells about which it is.

        Cells are distinct rows of codes.

        Args:
            codes: of every candidate.
            weights: (N,) probabilities up to a factor; uniform when None.
        """
        # a cell is a row of m codes
        cells = np.unique(self._checked(codes), axis=0, return_inverse=True)[1].reshape(-1)
        return certify(cells, self.size, weights=weights)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the codebook as safetensors, whole or not at all; of its origin what is public.

        Raises:
            ValueError: the file cannot be written.
        """
        public: Any = self
        if self.origin is not None:
            public = replace(public, origin=self.origin.public)
        return write_tensors(path, self.form, self._tensors(), public)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what ``save`` wrote.

        Raises:
            ValueError: no such file, or another kind of file.
        """
        tensors, about = read_tensors(path, cls.form)
        with malformed(path, "codebook"):
            found: Self = codec.read_apart(cls, about, "path", cls._apart(tensors))
        return found

    def _checked(self, codes: Any) -> Any:
        """Return codes (n, m), each below the cells of its part."""
        rows = checked_codes("codes", codes, max(self.sizes), least=1)
        if rows.ndim != 2 or rows.shape[1] != len(self.sizes):
            raise ValueError(f"codes: expected shape (n, {len(self.sizes)}), got {rows.shape}")
        for place, size in enumerate(self.sizes):
            if int(rows[:, place].max()) >= size:
                raise ValueError(
                    f"codes: expected integers in 0 … {size - 1} in part {place}, got "
                    f"{rows[:, place].max()}"
                )
        return rows


def load_codec(path: str | os.PathLike[str]) -> Codec:
    """Read a codebook of any kind.

    Raises:
        ValueError: no such file, or no codebook.
    """
    held = format_of(path)
    if held is not None and held.startswith("tacit-quotient"):
        raise ValueError(
            f"path: {os.fspath(path)} is a quotient, not a codebook; what it released is attacked "
            "by tacit hidden attack RELEASED --fitted QUOTIENT --prompts FILE"
        )
    # a file of no format that is known is refused in the words of the plainest
    module, _, name = CODECS.get(str(held), next(iter(CODECS.values()))).partition(":")
    kind: type[Codec] = getattr(import_module(module), name)
    return kind.load(path)
