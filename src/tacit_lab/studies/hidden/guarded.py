"""Codebooks that guard decisions: what the cost of one, trying codewords and joint rounds add."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tacit.hidden_states import Codebook, CodebookFit
from tacit.hidden_states.audit.laboratory import Laboratory

TRIES = 16


@dataclass(frozen=True)
class Guarded:
    """A codebook to fit: C, λ in nats, and how often cells are assigned anew by trial."""

    cells: int
    decision_cost: float
    joint_rounds: int = 0


@dataclass(frozen=True)
class GuardedRow:
    """What one codebook reached on held-out prompts: [agreement, KL in nats].

    Attributes:
        wanted: the codebook.
        bound: no attacker names a prompt of the bank more often.
        states: protocol A, codes by the table.
        tried: protocol A, codes by trying ``TRIES`` codewords through the layers above.
        table: protocol B.
        generated: share of 8 tokens that stay the same under protocol A, codes by the table.
        prompts: how many prompts.
        seconds: to fit, assign and measure.
    """

    wanted: Guarded
    bound: float
    states: tuple[float, float]
    tried: tuple[float, float]
    table: tuple[float, float]
    generated: float | None
    prompts: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return what ``from_dict`` reads."""
        return asdict(self)

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> GuardedRow:
        """Read what ``to_dict`` wrote."""
        pairs = {name: tuple(entry[name]) for name in ("states", "tried", "table")}
        return cls(**{**entry, **pairs, "wanted": Guarded(**entry["wanted"])})


class GuardedTable:
    """Rows kept as JSON lines: an interrupted run measures only what is missing."""

    def __init__(self, path: Path, model: str, seed: int) -> None:
        self.path, self.seed, self.model = path, seed, model
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        self._kept = {entry["key"]: entry["row"] for entry in map(json.loads, lines)}

    def row(self, laboratory: Laboratory, wanted: Guarded) -> GuardedRow:
        """Return a row, measured now or before."""
        key = f"{self.model} {laboratory.layer} {laboratory.sizes} {self.seed} {wanted}"
        if key not in self._kept:
            row = measured(laboratory, wanted, self.seed)
            print(row, flush=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "row": row.to_dict()}) + "\n")
            self._kept[key] = row.to_dict()
        return GuardedRow.from_dict(self._kept[key])


def measured(laboratory: Laboratory, wanted: Guarded, seed: int) -> GuardedRow:
    """Fit a codebook on the calibration prompts and read it in three ways."""
    start = time.perf_counter()
    book = Codebook.fit(
        laboratory.calibration,
        CodebookFit(
            size=wanted.cells,
            metric="behaviour",
            codewords="trained",
            joint_rounds=wanted.joint_rounds,
            decision_cost=wanted.decision_cost,
            least_cell=laboratory.sizes.least_cell,
        ),
        behaviours=laboratory.calibration_behaviours,
        continuation=laboratory.learnt,
        rng=np.random.default_rng([seed, wanted.cells]),
        progress=False,
    )
    cells = book.assign(behaviours=laboratory.bank_behaviours)
    codes = torch.from_numpy(book.assign(behaviours=laboratory.measured_behaviours))
    states = book.decode(codes).to(laboratory.bank)
    tried = torch.cat([_tried(book, laboratory, run, rows) for run, rows in laboratory.batches()])
    generated = laboratory.generated(states)
    return GuardedRow(
        wanted=wanted,
        bound=book.certify(cells).success.success,
        states=_utility(laboratory, laboratory.reads_states(states)),
        tried=_utility(laboratory, laboratory.reads_states(book.decode(tried).to(states))),
        table=_utility(
            laboratory, lambda _, rows: book.distributions(codes[rows]).to(laboratory.bank)
        ),
        generated=None if generated is None else round(generated.value, 4),
        prompts=len(codes),
        seconds=round(time.perf_counter() - start, 1),
    )


def _tried(book: Codebook, laboratory: Laboratory, run: Any, rows: slice) -> torch.Tensor:
    known = laboratory.measured_behaviours.select(torch.arange(rows.start, rows.stop))
    return torch.from_numpy(
        book.assign(behaviours=known, continuation=run, tries=min(TRIES, book.size))
    )


def _utility(laboratory: Laboratory, reader: Any) -> tuple[float, float]:
    agreement, kl = (laboratory.utility(reader)[name] for name in ("agreement", "kl"))
    assert agreement is not None
    assert kl is not None
    return round(agreement.value, 4), round(kl.value, 4)
