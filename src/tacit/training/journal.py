"""What survives a crash: every round that was charged, and the state after the last one applied.

A round is written and synced before anything of it is applied. One that is written and was not
applied when the process died stays charged. The folder is the account: a copy of it is another.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tacit._ground.checks import integer
from tacit._ground.files import held, read_bytes
from tacit.training.folder import RunFolder
from tacit.training.parameters import Snapshot

CHARGED = "charged.jsonl"
FIELDS = {"rounds", "charges", "energies", "model", "optimizer"}


class Journal(RunFolder):
    """The files of one run in a folder, and its charges.

    Args:
        folder: made where it is not there yet.
        declared: what the run is; a run that is taken up again must declare the same.

    Raises:
        ValueError: the folder holds another run, or its files are damaged.
    """

    def __init__(self, folder: str | os.PathLike[str], declared: Mapping[str, Any]) -> None:
        super().__init__(folder, declared, fields=FIELDS, others=(CHARGED,))
        self._charges = self._read()
        path = self.folder / CHARGED
        self._size = path.stat().st_size if path.exists() else 0

    @property
    def charges(self) -> int:
        """How many rounds were charged."""
        return len(self._charges)

    def taken(self, count: int) -> npt.NDArray[np.int64]:
        """Return in how many of them each of ``count`` references took part."""
        taken = np.zeros(count, dtype=np.int64)
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
        with held(path), path.open("ab") as stream:
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
        """Return the last state that was saved, None before the first."""
        state = super().state()
        if state is None:
            return None
        rounds = integer("checkpoint.rounds", state["rounds"], minimum=0, maximum=None)
        charges = integer("checkpoint.charges", state["charges"], minimum=0, maximum=None)
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
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            # the process died while it wrote: nothing was drawn for that line
            with path.open("r+b") as stream:
                stream.truncate(whole)
        return [_entry(place, line) for place, line in enumerate(content[:whole].splitlines())]


def _entry(place: int, line: bytes) -> list[int]:
    try:
        entry = json.loads(line)
        indices = [int(index) for index in entry["references"]]
        if entry["round"] == place and all(index >= 0 for index in indices):
            return indices
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"checkpoint: line {place + 1} of {CHARGED} is damaged")


def restore(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer | None, state: Mapping[str, Any]
) -> None:
    """Put a stored state into a model and its optimiser, into both or neither.

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
            "checkpoint: expected the model and optimizer that it was written for, got others"
        ) from None
