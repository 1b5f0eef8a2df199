"""A codebook fitted once, read under both protocols, and attacked exactly."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import gammaln
from torch import Tensor

from tacit._ground.checks import Array, vector
from tacit.attacks.exact.channels import CodeChannel
from tacit.guarantees.base import Guarantee
from tacit.hidden_states.audit.attackers import Attacker
from tacit.hidden_states.audit.guessers import Observed
from tacit.hidden_states.audit.laboratory import Laboratory, curve_sizes
from tacit.hidden_states.audit.mechanisms import RowPredictions, Trial
from tacit.hidden_states.audit.points import PROTOCOLS, AttackPoint
from tacit.hidden_states.codebooks.certificates import CodeCertificate
from tacit.hidden_states.codebooks.codebook import Codebook
from tacit.measured import Interval
from tacit.models.behaviours import Behaviours

CellIndex = npt.NDArray[np.int64]


class CodeTrial(Trial):
    """A codebook fitted on calibration prompts, and the code of every prompt of the bank.

    Args:
        laboratory: the layer.
        book: the codebook.

    Attributes:
        cells: (N,) codes of the last position.
        sequences: (N,) which sequence of codes it is, where several positions are released.
        certificate: what is proven of all that is released.
    """

    def __init__(self, laboratory: Laboratory, book: Codebook) -> None:
        self.laboratory, self.book = laboratory, book
        self.cells: CellIndex = book.assign(laboratory.bank, behaviours=laboratory.bank_behaviours)
        released = [
            self.cells,
            *(
                book.assign(read.states[laboratory.layer], behaviours=read.behaviours)
                for read in laboratory.earlier
            ),
        ]
        # what T positions of one prompt tell is the sequence of their codes
        joint = np.stack(released, axis=1)
        self.sequences: CellIndex = np.unique(joint, axis=0, return_inverse=True)[1].reshape(-1)
        self.certificate: CodeCertificate = book.certify(joint)
        self.rank = self.certificate.occupied or 0
        self.codes = book.size

    def certify(self) -> tuple[Guarantee, ...]:
        """Return the theorems, that for every prior first."""
        return self.certificate.guarantees

    def attack(self, attackers: Sequence[Attacker]) -> tuple[AttackPoint, ...]:
        """Return the exact attack, whatever attackers were named."""
        return (self._exact,)

    def observed(self) -> Observed:
        """Return the codes of all prompts, and what assigns a code to a candidate."""
        laboratory, book = self.laboratory, self.book

        def assign(states: Tensor, behaviours: Behaviours | None) -> CellIndex:
            return book.assign(states, behaviours=behaviours)

        public = book.assign(laboratory.calibration, behaviours=laboratory.calibration_behaviours)
        channel = CodeChannel(assign, predicts=book.centres is None)
        return Observed(channel, self.cells, self.cells, public)

    @cached_property
    def _codes(self) -> CellIndex:
        """Codes of the held-out prompts, (n,)."""
        laboratory = self.laboratory
        return self.book.assign(laboratory.measured, behaviours=laboratory.measured_behaviours)

    @cached_property
    def _exact(self) -> AttackPoint:
        return within(cell_attack(self.sequences, self.laboratory.last_tokens), self.certificate)

    def read(self, reading: str) -> Tensor | RowPredictions:
        """Return the state that stands for each code, or what its row of the table predicts."""
        bank, book = self.laboratory.bank, self.book
        codes = torch.from_numpy(self._codes)
        if PROTOCOLS[reading] == "A":
            return book.decode(codes).to(bank)
        return lambda rows: book.distributions(codes[rows]).to(bank)


def within(attack: AttackPoint, certificate: CodeCertificate) -> AttackPoint:
    """Return the attack when it stays under the bound, as a theorem says it must.

    Raises:
        ArithmeticError: it does not, so that one of the two is wrong.
    """
    bound = certificate.success.success
    if attack.top1.value > bound:
        raise ArithmeticError(
            f"an attack reached {attack.top1.value!r} where a theorem says {bound!r}"
        )
    return attack


def cell_attack(cells: Any, last_tokens: Any) -> AttackPoint:
    """Return what the best attacker reaches who sees the cell of a uniform prompt of the bank.

    All prompts of a cell are equally likely, so it names one of them: over the whole bank it is
    right with probability (occupied cells)/N, and no attacker is right more often. Expectations
    are exact over prompts and over how ties are broken, so the intervals have no width.

    Args:
        cells: (N,) the cell of every prompt of the bank.
        last_tokens: (N,) the last token of every prompt; the attacker names the commonest one of
            the cell.

    Returns:
        The attack; among m candidates it succeeds with the mean over prompts of
        ``(N/(c m)) (1 − C(N − c, m)/C(N, m))``, c the size of the prompt's cell.

    Example:
        >>> cell_attack([0, 0, 1, 1], [7, 7, 8, 9]).top1.value
        0.5
    """
    index = _integers("cells", cells)
    endings = _integers("last_tokens", last_tokens)
    if endings.shape != index.shape:
        raise ValueError(f"last_tokens: expected shape {index.shape}, got {endings.shape}")
    # c, the size of every cell that occurs
    _, places, counts = np.unique(index, return_inverse=True, return_counts=True)
    total, occupied = index.size, counts.size
    # of each cell the most prompts that end alike: the best guess of the last token
    pairs, together = np.unique(np.stack([places, endings]), axis=1, return_counts=True)
    commonest = np.zeros(occupied)
    np.maximum.at(commonest, pairs[0], together)
    return AttackPoint(
        name="exact",
        # Σ over cells (c/N)(1/c) = occupied/N, and min(c, k)/c in the place of 1/c for k guesses
        top1=_exact(occupied / total),
        top10=_exact(np.minimum(counts, 10).sum() / total),
        top100=_exact(np.minimum(counts, 100).sum() / total),
        last_token=_exact(commonest.sum() / total),
        candidates=tuple((size, _among(counts, total, size)) for size in curve_sizes(total)),
    )


def _among(counts: CellIndex, total: int, size: int) -> float:
    """Mean over prompts of the chance to be named among ``size`` candidates, rounded to [0, 1]."""
    # ln P(none of the cell among m) = ln C(N − c, m) − ln C(N, m), by ln Γ: factorials overflow
    outside = np.asarray(total - counts, dtype=np.float64)
    possible = outside >= size
    top = np.where(possible, outside, size)
    log_none = gammaln(top + 1) - gammaln(top - size + 1) - gammaln(total + 1.0)
    log_none += gammaln(total - size + 1.0)
    # 1 − e^x by expm1, exact where the chance is small; 1 where fewer than m lie outside the cell
    some = np.where(possible, -np.expm1(np.minimum(log_none, 0.0)), 1.0)
    # Σ over cells of (c/N) (N/(c m)) (…): the cell's size cancels
    return min(1.0, float(some.sum() / size))


def _exact(value: float) -> Interval:
    share = float(value)
    return Interval(share, share, share)


def _integers(name: str, value: Any) -> CellIndex:
    values: Array = vector(name, np.asarray(value))
    if not np.array_equal(values, np.round(values)) or values.min() < 0:
        raise ValueError(f"{name}: expected integers >= 0, got other values")
    if values.size < 2:
        raise ValueError(f"{name}: expected at least 2 entries, got {values.size}")
    return values.astype(np.int64)
