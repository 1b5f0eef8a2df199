"""Codes as mechanisms: which cell a state lies in, cells being values, and the likeliest token."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tacit._ground.checks import integer, non_negative
from tacit._ground.numbers import log_up, rounded_up
from tacit.guarantees import InformationBound
from tacit.guarantees.base import Guarantee
from tacit.hidden_states.audit.mechanisms import Mechanism
from tacit.hidden_states.audit.points import Point, Setting
from tacit.hidden_states.audit.request import SweepRequest
from tacit.hidden_states.codebooks.certificates import CandidateLaw, codes_leakage
from tacit.hidden_states.spelling import SpelledValue, read_one
from tacit.text import significant_up

if TYPE_CHECKING:
    from tacit.hidden_states.audit.cell_points import CodeTrial
    from tacit.hidden_states.audit.laboratory import Laboratory
    from tacit.hidden_states.codebooks.codebook import Codebook

# Nats that a changed likeliest token costs in the cells that guard decisions.
DECISION_COST = 4.0


@dataclass(frozen=True)
class CellRule(SpelledValue, ABC):
    """What makes two states share a cell, and what stands for a cell.

    Attributes:
        continues: whether what stands for a cell is trained through the layers above.
    """

    continues: ClassVar[bool] = False

    @property
    @abstractmethod
    def words(self) -> str:
        """What is released, ``{C}`` in the place of the number of cells."""

    @abstractmethod
    def options(self, laboratory: Laboratory) -> dict[str, Any]:
        """Return the fields of a ``CodebookFit`` but C, and what ``Codebook.fit`` takes besides."""


@dataclass(frozen=True)
class EuclideanCells(CellRule):
    """CellRule of states that are near, the mean state for each."""

    word = "euclidean"

    @property
    def words(self) -> str:
        return "which of {C} states is nearest"

    def options(self, laboratory: Laboratory) -> dict[str, Any]:
        return {"metric": "euclidean", "codewords": "centroid"}


@dataclass(frozen=True)
class FisherCells(CellRule):
    """CellRule of states that are near by the Fisher information, a trained state for each."""

    word = "fisher"
    continues = True

    @property
    def words(self) -> str:
        return "which of {C} states is nearest by Fisher information"

    def options(self, laboratory: Laboratory) -> dict[str, Any]:
        fisher = laboratory.geometry.ridged_fisher
        return {"metric": "fisher", "fisher": fisher, **_trained(laboratory)}


@dataclass(frozen=True)
class BehaviourCells(CellRule):
    """CellRule of prompts after which the model does alike, a trained state for each.

    Attributes:
        decision_cost: nats >= 0 that a changed likeliest token counts besides KL.
    """

    decision_cost: float = 0.0

    word = "behaviour"
    continues = True
    aliases: ClassVar = {"decision": {"decision_cost": DECISION_COST}}

    def __post_init__(self) -> None:
        non_negative("decision_cost", self.decision_cost)

    @property
    def words(self) -> str:
        guarded = ", decisions guarded" if self.decision_cost else ""
        return f"which of {{C}} behaviours it shows{guarded}"

    def options(self, laboratory: Laboratory) -> dict[str, Any]:
        cost = float(self.decision_cost)
        return {"metric": "behaviour", "decision_cost": cost, **_trained(laboratory)}


def _trained(laboratory: Laboratory) -> dict[str, Any]:
    return {"codewords": "trained", "continuation": laboratory.learnt}


CELLS: tuple[type[CellRule], ...] = (EuclideanCells, FisherCells, BehaviourCells)


@dataclass(frozen=True)
class StateCodes(Mechanism, ABC):
    """A code of each state: what a codebook and the likeliest token have in common."""

    family = "codebook"
    proof = "counting cells"

    @abstractmethod
    def book(self, laboratory: Laboratory, size: int | None, seed: int) -> Codebook:
        """Return the codebook fitted on calibration prompts."""

    def fit(self, laboratory: Laboratory, setting: Setting, seed: int) -> CodeTrial:
        from tacit.hidden_states.audit.cell_points import CodeTrial

        return CodeTrial(laboratory, self.book(laboratory, setting.codewords, seed))

    def contradiction(
        self, point: Point, guarantees: Sequence[Guarantee], releases: int
    ) -> str | None:
        """Count again: C^T for every prior, occupied/N for the uniform law, at most ln occupied."""
        size = point.cells
        # 2^T is above the rank from its number of bits on: a stored T of any length costs nothing
        few = min(releases, point.rank.bit_length())
        if size is None or not 1 <= point.rank <= min(point.bank, size**few):
            return "expected a number of codewords and of occupied cells, got other values"
        # a uniform prompt of the bank: P(named) = occupied/N, rounded up
        law = CandidateLaw(point.bank, 1 / point.bank)
        counted = rounded_up(Fraction(point.rank, point.bank))
        # H(cell) ≤ ln occupied, rounded up; the entropy itself cannot be counted from the file
        most = log_up(point.rank)
        expected = (codes_leakage(size, releases), law.success(counted, releases))
        for held in guarantees:
            if isinstance(held, InformationBound):
                if held != law.information(min(held.nats, most), releases):
                    return f"{point.rank:,} occupied cells do not give the information stated"
            elif held not in expected:
                return (
                    f"C = {size:,}, T = {releases} and {point.rank:,} of {point.bank:,} "
                    f"occupied do not give the {type(held).__name__} stated"
                )
        return None

    def formula(self, point: Point) -> str:
        """Return the theorems: for every prior, and for a uniform prompt of the bank."""
        return (
            "P(right with the code) ≤ *C* · P(right without),\u2002 "
            f"P(named) ≤ (occupied cells)/*N* = {point.rank:,}/{point.bank:,},\u2002 "
            "I(*X*; cell) = H(cell) ≤ ln *C*"
        )

    def caveat(self, point: Point) -> str:
        """Return how releases about one prompt add up, and for whom the percentage is."""
        return (
            "The factor holds for every prior and all side information; the percentage for one to "
            "whom the prompts of the bank are equally likely. Releases about one prompt multiply, "
            "and so do rows about one person, however they are worded: *T* of them by up to "
            f"*C*^*T*, {_of_rows(point.cells or point.rank)}. *N* is {point.bank:,}."
        )


def _of_rows(cells: int) -> str:
    """Say what a few rows about one person come to.

    Example:
        >>> _of_rows(56)
        'which is 3,136 for two rows and 3.09 × 10¹⁰ for six'
    """
    return f"which is {cells**2:,} for two rows and {significant_up(float(cells) ** 6)} for six"


@dataclass(frozen=True)
class CodebookMechanism(StateCodes):
    """Which of C cells the state lies in.

    Example:
        >>> CodebookMechanism(BehaviourCells(decision_cost=4.0)).name
        'codebook-decision'
    """

    cells: CellRule

    @property
    def continues(self) -> bool:
        """Whether codewords are trained."""
        return self.cells.continues

    @property
    def name(self) -> str:
        """The name of the cells after ``codebook-``."""
        return f"codebook-{self.cells.name}"

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Return the codebook of the cells that a word names."""
        for kind in CELLS:
            if (found := kind.read(text.removeprefix("codebook-"))) is not None:
                return cls(found) if text.startswith("codebook-") else None
        return None

    @classmethod
    def spelling(cls) -> tuple[str, ...]:
        """Return the words of all cells."""
        return tuple(f"codebook-{word}" for kind in CELLS for word in kind.spelling())

    def settings(
        self, request: SweepRequest, *, calibration: int, vocabulary: int
    ) -> tuple[Setting, ...]:
        """Return every C, 2 … the calibration prompts."""
        # no cell is of fewer prompts than one
        return tuple(
            Setting(codewords=integer("codewords", size, minimum=2, maximum=calibration))
            for size in request.codewords
        )

    def book(self, laboratory: Laboratory, size: int | None, seed: int) -> Codebook:
        """Return C cells and what stands for each."""
        return _fitted(laboratory, size, seed, self.cells.options(laboratory))

    def words(self, point: Point) -> str:
        """Say which cells they are."""
        return self.cells.words.replace("{C}", f"{point.cells or 0:,}")

    def mark(self, point: Point) -> str:
        """Return C."""
        return f"{point.cells or 0:,}"


@dataclass(frozen=True)
class Argmax(StateCodes):
    """The likeliest next token itself: a control, for it agrees always and says little else."""

    word = "argmax"
    control = "releases the likeliest token"

    @property
    def continues(self) -> bool:
        """What stands for a token is trained."""
        return True

    def settings(
        self, request: SweepRequest, *, calibration: int, vocabulary: int
    ) -> tuple[Setting, ...]:
        """Return one setting: there are as many codewords as tokens."""
        return (Setting(codewords=vocabulary),)

    def book(self, laboratory: Laboratory, size: int | None, seed: int) -> Codebook:
        """Return a cell for every token."""
        return _fitted(laboratory, None, seed, {"metric": "argmax", **_trained(laboratory)})

    def words(self, point: Point) -> str:
        """Say that it is the token."""
        return "the likeliest next token"


def read_code(argument: str, text: str) -> StateCodes:
    """Return the mechanism of the cells that a word names, or of the likeliest token."""
    kinds: tuple[type[CellRule | Argmax], ...] = (*CELLS, Argmax)
    found = read_one(argument, text, kinds)
    return CodebookMechanism(found) if isinstance(found, CellRule) else found


def _fitted(
    laboratory: Laboratory, size: int | None, seed: int, options: dict[str, Any]
) -> Codebook:
    import numpy as np

    from tacit.hidden_states.codebooks.codebook import Codebook
    from tacit.hidden_states.codebooks.methods import CodebookFit

    beside = {name: options.pop(name) for name in ("fisher", "continuation") if name in options}
    return Codebook.fit(
        laboratory.calibration,
        CodebookFit(size=size, least_cell=laboratory.sizes.least_cell, **options),
        behaviours=laboratory.calibration_behaviours,
        rng=np.random.default_rng(seed),
        progress=False,
        **beside,
    )
