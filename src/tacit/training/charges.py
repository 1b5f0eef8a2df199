"""What a run is charged: on the disk, in the ledger and in every reference's account, once."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tacit._ground.checks import Array, boolean, integer
from tacit.releases.prepared import Book
from tacit.training.account import Account, Budgets
from tacit.training.journal import Journal, restore
from tacit.training.spending import Purse


class Charges:
    """The rounds of a run that were charged, and those of them that were applied.

    Args:
        names: of the references.
        granted: to each of them.
        ledger: what the run spends from; None for nothing.
        secret: the name there, or one for each reference.
        no_budget: train though a name has no budget and others have one.
        rng: seed of the noise; None for the operating system's.

    Raises:
        ValueError: an argument is outside its range.
    """

    def __init__(
        self,
        names: Sequence[str],
        granted: Budgets,
        ledger: Book | None,
        secret: str | Mapping[str, str] | None,
        *,
        no_budget: bool,
        rng: int | None,
    ) -> None:
        self.seed = None if rng is None else integer("rng", rng, minimum=0, maximum=None)
        self.purse = Purse(
            ledger, secret, names, granted,
            reproducible=rng is not None, no_budget=boolean("no_budget", no_budget),
        )  # fmt: skip
        self.account = Account(names, granted, None)
        # held from the check of a round to its end, so that rounds of one run never mix
        self.alone = threading.RLock()
        self.count = self.applied = 0
        self.energies: list[float] = []
        self._names, self._granted = names, granted
        self._journal: Journal | None = None

    def take_up(
        self,
        checkpoint: str | os.PathLike[str],
        declared: Mapping[str, Any],
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | None,
    ) -> None:
        """Go on from a folder, and keep the run there.

        Args:
            checkpoint: the folder.
            declared: what the run is.
            model: put where the run stopped.
            optimizer: likewise.

        Raises:
            ValueError: the folder holds another run, or its files are damaged.
        """
        journal = self._journal = Journal(checkpoint, declared)
        taken = journal.taken(len(self._names))
        self.count = journal.charges
        if journal.charges:
            self.purse.taken_up(journal)
        state = journal.state()
        if state is not None:
            restore(model, optimizer, state)
            self.applied, self.energies = state["rounds"], list(state["energies"])
        self.account = Account(self._names, self._granted, taken)

    def charge(self, indices: npt.NDArray[np.intp]) -> None:
        """Count the round everywhere, on the disk too, before anything of it is applied.

        Raises:
            ReferenceSpentError: a reference has nothing left.
        """
        self.account.check(indices)
        self.purse.check_open()
        if self._journal is not None:
            self._journal.check_alone()
        self.purse.reserve()
        if self._journal is not None:
            if not self.count:
                self._journal.reserve(self.purse.entries)
            self._journal.charge(indices)
        self.account.count(indices)
        self.count += 1

    def source(self) -> np.random.Generator | None:
        """Return what draws the round's noise; None for the operating system."""
        # one stream for every charge, so that what a crash lost is never drawn again
        return None if self.seed is None else np.random.default_rng([self.seed, self.count])

    def apply(
        self,
        energy: float | None,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | None,
    ) -> None:
        """Count a round that was applied, and keep where the run stands after it."""
        self.applied += 1
        if energy is not None:
            self.energies.append(energy)
        if self._journal is not None:
            self._journal.save(
                {
                    "rounds": self.applied,
                    "charges": self.count,
                    "energies": list(self.energies),
                    "model": model.state_dict(),
                    "optimizer": None if optimizer is None else optimizer.state_dict(),
                }
            )

    def left(self) -> Array:
        """Return μ² that each reference has left, (m,)."""
        return np.maximum(self.account.budgets.squared - self.account.spent, 0.0)
