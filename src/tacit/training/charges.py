"""What a run is charged: on the disk, in the ledger and in every reference's account, once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from tacit._ground.checks import boolean, integer
from tacit._ground.files import held, read_bytes
from tacit._ground.reprs import shown
from tacit.guarantees import GaussianDP
from tacit.guarantees.base import Guarantee
from tacit.releases.prepared import Book, Reserved, check_same_release
from tacit.runs.folder import RunFolder
from tacit.training.account import Budgets, ParticipationAccount
from tacit.training.parameters import Snapshot

ASSUMPTIONS = (
    "the noise of the run is given: its covariance depends on the data, so this is no differential "
    "privacy",
)
# The same for every reference and run, so that what a source spends adds up.
ADJACENCY = "the input and a safe reference, with the noise of the run either way"
# What a release is called in the ledger when its noise is drawn, and when its record is there.
DRAWN, COMMITTED = "drawn", "committed"
# Of what is published, which names the model.
DIGESTS = ("digests",)
# The rounds that were charged, a line each, and what a stored state holds.
CHARGED = "charged.jsonl"
FIELDS = {"rounds", "charges", "energies", "model", "optimizer"}


def ledger_cost(mu: float) -> GaussianDP:
    """Return what a ledger counts of a run at distance μ from a reference."""
    return GaussianDP(
        mu=mu,
        adjacency=ADJACENCY,
        evidence="theorem",
        assumptions=ASSUMPTIONS,
        source="dsi, Theorem 3.4",
    )


class ReservedEntry(NamedTuple):
    """What is reserved under one name of a ledger."""

    secret: str
    spends: Sequence[Guarantee]
    description: str


class Purse:
    """Reserves once, whatever happens to the run afterwards: one reservation is one release.

    Args:
        ledger: what is spent from; None for nothing.
        entries: what is reserved in it.
        reproducible: whether a seed fixes the noise.
        no_budget: reserve though a name has no budget and others have one.

    Raises:
        ValueError: no ledger, or one without a name in it.
    """

    def __init__(
        self,
        ledger: Book | None,
        entries: Sequence[ReservedEntry],
        *,
        reproducible: bool,
        no_budget: bool = False,
    ) -> None:
        # a name without a ledger would be counted nowhere
        if (ledger is None) != (not entries) or (ledger is None and no_budget):
            raise ValueError("ledger, secret: expected both or none, and one beside no_budget")
        if ledger is not None and not hasattr(ledger, "reserve"):
            raise ValueError(f"ledger: expected a tacit.Ledger, got {type(ledger).__name__}")
        self._ledger, self._entries, self._reproducible = ledger, list(entries), reproducible
        self._no_budget = boolean("no_budget", no_budget)
        self._reservations: list[Reserved] = []
        self._done = ledger is None
        self._closed: Reserved | None = None

    def declared(self) -> Any:
        """Return where is spent from and under which names, for a run that is taken up again."""
        if self._ledger is None:
            return None
        place = str(getattr(self._ledger, "location", ""))
        return [place, *(entry.secret for entry in self._entries)]

    @property
    def closed(self) -> Reserved | None:
        """What the ledger had closed when the run was taken up; None where nothing."""
        return self._closed

    def take_up(self, folder: RunFolder) -> None:
        """Go on with what an earlier process of the same run reserved.

        Raises:
            ValueError: the ledger has no such release, or is another than the one reserved in.
        """
        # whatever follows, nothing is reserved a second time
        self._done, places = True, folder.places()
        if self._ledger is None:
            if places:
                raise ValueError(
                    "ledger: expected the one that the run in the checkpoint spends from, got none"
                )
            return
        # every name has the entry that it was counted under
        if len(places) != len(self._entries):
            raise ValueError(
                f"checkpoint: expected where {len(self._entries)} ledger entries are, got "
                f"{len(places)}"
            )
        # the ledger proves by the seal that these entries are this run's
        self._reservations = [
            self._ledger.reserved(number, entry.secret, seal=seal)
            for (number, seal), entry in zip(places, self._entries, strict=True)
        ]
        # a closed reservation has had its release
        closed = (one for one in self._reservations if one.status == COMMITTED)
        self._closed = next(closed, None)

    def reserve(self, folder: RunFolder | None = None) -> None:
        """Reserve everything, the first time; all names or an error that tells the first.

        Args:
            folder: of the run, in which is written where it is counted; None for none.
        """
        if self._done or self._ledger is None:
            return
        try:
            for entry in self._entries:
                # check and charge are one step in the ledger
                one = self._ledger.reserve(
                    entry.secret,
                    entry.spends,
                    entry.description,
                    reproducible=self._reproducible,
                    no_budget=self._no_budget,
                )
                self._reservations.append(one)
            if folder is not None:
                # where it is counted is on the disk before anything is drawn
                folder.reserve([(one.number, one.seal) for one in self._reservations])
        # all or none: what was reserved under other names is given back
        except BaseException:
            for one in self._reservations:
                one.cancel()
            self._reservations = []
            raise
        self._done = True

    def mark_drawn(self) -> None:
        """Say that the noise is drawn from here on.

        Raises:
            ValueError: a reservation was cancelled meanwhile, which gave its cost back, or closed
                with the release of another process.
        """
        # of a run that was taken up after its own release nothing more is drawn
        done = {DRAWN} if self._closed is None else {DRAWN, COMMITTED}
        for one in self._reservations:
            if one.status not in done:
                one.mark_drawn()

    def commit(self, record: dict[str, Any]) -> None:
        """Store what was released beside the cost; what is stored already is the same release.

        Raises:
            ValueError: the ledger has closed a reservation with another release.
        """
        # stored already, by a process that died after it: it must be the same model
        closed = [one for one in self._reservations if one.status == COMMITTED]
        for one in closed:
            check_same_release(one, record, DIGESTS)
        for one in self._reservations:
            if one not in closed:
                one.commit(record)
        # a run that goes on within its budget publishes every round of one trajectory
        self._reservations = []


class Journal(RunFolder):
    """The files of one run in a folder, and its charges.

    A round is written and synced before anything of it is applied. One that is written and was not
    applied when the process died stays charged. The folder is the account: a copy of it is another.

    Args:
        folder: made where it is not there yet.
        declared: what the run is; a run that is taken up again must declare the same.

    Raises:
        ValueError: the folder holds another run, or its files are damaged.
    """

    def __init__(self, folder: str | os.PathLike[str], declared: Mapping[str, Any]) -> None:
        super().__init__(folder, declared, fields=FIELDS, others=(CHARGED,))
        # every round that was ever charged
        self._charges = self._read()
        path = self.folder / CHARGED
        # how long the file is by what this process knows
        self._size = path.stat().st_size if path.exists() else 0

    @property
    def charges(self) -> int:
        """How many rounds were charged."""
        return len(self._charges)

    def rounds_of(self, count: int) -> npt.NDArray[np.int64]:
        """Return in how many of them each of ``count`` references took part."""
        taken = np.zeros(count, dtype=np.int64)
        # counted again from the file: memory is not believed
        for indices in self._charges:
            if indices and max(indices) >= count:
                raise ValueError(f"checkpoint: {CHARGED} names a reference that is not there")
            taken[indices] += 1
        return taken

    def charge(self, indices: npt.NDArray[np.intp]) -> None:
        """Write that a round is drawn for these references, and wait until it is on the disk."""
        entry = [int(index) for index in indices]
        line = json.dumps({"round": self.charges, "references": entry}) + "\n"
        path = self.folder / CHARGED
        # appended and synced under a lock: a charge is on the disk or was never made
        with held(path), path.open("ab") as stream:
            # another process wrote in between: its rounds are not in our count
            if stream.tell() != self._size:
                raise ValueError(f"checkpoint: another process trains in {self.folder}")
            stream.write(line.encode("ascii"))
            stream.flush()
            os.fsync(stream.fileno())
            self._size = stream.tell()
        self._charges.append(entry)

    def check_alone(self) -> None:
        """Refuse to go on where another process has written meanwhile."""
        path = self.folder / CHARGED
        if (path.stat().st_size if path.exists() else 0) != self._size:
            raise ValueError(f"checkpoint: another process trains in {self.folder}")

    def state(self) -> dict[str, Any] | None:
        state = super().state()
        if state is None:
            return None
        rounds = integer("checkpoint.rounds", state["rounds"], minimum=0, maximum=None)
        charges = integer("checkpoint.charges", state["charges"], minimum=0, maximum=None)
        # a state cannot be of more rounds than were charged
        if max(charges, rounds) > self.charges:
            raise ValueError(
                f"checkpoint: the state is of {charges} charged rounds, got {self.charges} in "
                f"{CHARGED}"
            )
        return state

    def _read(self) -> list[list[int]]:
        path = self.folder / CHARGED
        if not path.exists():
            return []
        content = read_bytes("checkpoint", path)
        # whole lines only
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            # the process died while it wrote: nothing was drawn for that line
            with path.open("r+b") as stream:
                stream.truncate(whole)
        return [_charge_of(place, line) for place, line in enumerate(content[:whole].splitlines())]


def _charge_of(place: int, line: bytes) -> list[int]:
    try:
        entry = json.loads(line)
        indices = [int(index) for index in entry["references"]]
        if entry["round"] == place and all(index >= 0 for index in indices):
            return indices
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"checkpoint: line {place + 1} of {CHARGED} is damaged")


class Charges:
    """The rounds of a run that were charged, and those of them that were applied.

    Args:
        names: of the references.
        granted: to each of them.
        purse: what the run spends from.
        seed: of the noise; None for the operating system's.
    """

    def __init__(
        self, names: Sequence[str], granted: Budgets, purse: Purse, seed: int | None
    ) -> None:
        self.seed, self.purse = seed, purse
        self.account = ParticipationAccount(names, granted)
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
        # participations, lost rounds included: they stay charged
        taken = journal.rounds_of(len(self._names))
        self.count = journal.charges
        # a run that reserved or charged goes on with its own entries
        if journal.charges or journal.places():
            self.purse.take_up(journal)
        state = journal.state()
        if state is not None:
            # the last round that was applied; those charged after it are lost
            restore(model, optimizer, state)
            self.applied, self.energies = state["rounds"], list(state["energies"])
        self.account = ParticipationAccount(self._names, self._granted, taken)

    def charge(self, indices: npt.NDArray[np.intp]) -> None:
        """Count the round everywhere, on the disk too, before anything of it is applied.

        Raises:
            ReferenceSpentError: a reference has nothing left.
            ValueError: the run was released already, or another process goes on with it.
        """
        # refused before anything is spent
        self.account.check(indices)
        if self.purse.closed is not None:
            raise ValueError(
                "checkpoint: expected a run that was not released yet, got one whose reservation "
                "the ledger has closed; a reservation is worth one release"
            )
        # another process may have gone on with the folder
        if self._journal is not None:
            self._journal.check_alone()
        # the whole budget, the first time
        self.purse.reserve(self._journal)
        self.purse.mark_drawn()
        if self._journal is not None:
            self._journal.charge(indices)
        # in memory last: what fails before leaves nothing counted here alone
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


def restore(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer | None, state: Mapping[str, Any]
) -> None:
    """Put a stored state into a model and its optimizer, into both or neither.

    Raises:
        ValueError: it was written for others.
    """
    before = Snapshot(model)
    try:
        model.load_state_dict(state["model"])
        if optimizer is not None:
            optimizer.load_state_dict(state["optimizer"])
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError):
        before.restore()
        raise ValueError(
            "checkpoint: expected the model and optimizer that it was written for, got other values"
        ) from None


def reference_entries(
    secret: str | Mapping[str, str] | None, names: Sequence[str], budgets: Budgets
) -> list[ReservedEntry]:
    """Return what is reserved: the largest μ under one name, or each reference under its own.

    Args:
        secret: the name in the ledger, or one for each reference; None for none.
        names: of the references.
        budgets: of the run.

    Raises:
        ValueError: a reference has no name in the ledger, or there are others.
    """
    if secret is None:
        return []
    # μ of every reference, rounded up
    mu = budgets.mu.tolist()
    if not isinstance(secret, Mapping):
        # one secret is spent from by its loosest reference
        worst = max(range(len(names)), key=mu.__getitem__)
        called = names[0] if len(names) == 1 else f"any of {len(names)} references"
        beside = [(secret, called, mu[worst])]
    else:
        # each source under its own name, so that what it spends adds up over runs
        missing = [name for name in names if name not in secret]
        if missing:
            raise ValueError(
                f"secret: expected a name for each reference, got none for {missing[0]!r}"
            )
        if len(secret) > len(names):
            raise ValueError(f"secret: expected {len(names)} references, got {shown(dict(secret))}")
        beside = [(secret[name], name, one) for name, one in zip(names, mu, strict=True)]
    return [
        ReservedEntry(under, (ledger_cost(distance),), f"a training run beside {name}")
        for under, name, distance in beside
    ]
