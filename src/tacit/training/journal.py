"""What survives a crash: every round that was charged, and the state after the last one applied.

A round is written and synced before anything of it is applied. One that is written and was not
applied when the process died stays charged. The folder is the account: a copy of it is another.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tacit import documents
from tacit._ground.checks import integer
from tacit._ground.files import absolute, atomic_stream, held, read_bytes, write_text_atomic
from tacit.training.parameters import Snapshot

DECLARED, CHARGED, STATE = "declared.json", "charged.jsonl", "state.pt"
RESERVED = "reserved.json"
FIELDS = {"rounds", "charges", "energies", "model", "optimizer"}


class Journal:
    """The files of one run in a folder.

    Args:
        folder: made where it is not there yet.
        declared: what the run is; a run that is taken up again must declare the same.

    Raises:
        ValueError: the folder holds another run, or its files are damaged.
    """

    def __init__(self, folder: str | os.PathLike[str], declared: Mapping[str, Any]) -> None:
        self.folder = _made(folder)
        stored = self.folder / DECLARED
        text = documents.dumps(dict(declared), name="declared", indent=2)
        if stored.exists():
            found = documents.loads(read_bytes("checkpoint", stored), name="checkpoint")
            _check_same(found, json.loads(text))
        else:
            if any((self.folder / name).exists() for name in (CHARGED, STATE)):
                raise ValueError(f"checkpoint: {DECLARED} is missing in {self.folder}")
            write_text_atomic("checkpoint", stored, text)
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

    def reserve(self, numbers: Sequence[int]) -> None:
        """Write where in a ledger the run is counted."""
        text = documents.dumps(list(numbers), name="numbers")
        write_text_atomic("checkpoint", self.folder / RESERVED, text)

    def reserved(self) -> list[int]:
        """Return where in a ledger the run is counted; nothing where it is in none."""
        path = self.folder / RESERVED
        if not path.exists():
            return []
        found = documents.loads(read_bytes("checkpoint", path), name="checkpoint")
        if not isinstance(found, list):
            raise ValueError(f"checkpoint: {RESERVED} is damaged")
        return [integer("checkpoint.reserved", one, minimum=0, maximum=None) for one in found]

    def check_alone(self) -> None:
        """Refuse to go on where another process has written meanwhile."""
        path = self.folder / CHARGED
        if (path.stat().st_size if path.exists() else 0) != self._size:
            raise ValueError(f"checkpoint: another process trains in {self.folder}")

    def save(self, state: Mapping[str, Any]) -> None:
        """Write the state whole or not at all."""
        try:
            with atomic_stream("checkpoint", self.folder / STATE) as stream:
                torch.save(dict(state), stream)
        except RuntimeError as error:
            # torch says so when the disk is full; the round is charged and applied
            raise ValueError(f"checkpoint: cannot write {STATE} ({error})") from None

    def state(self) -> dict[str, Any] | None:
        """Return the last state that was saved, None before the first."""
        path = self.folder / STATE
        if not path.exists():
            return None
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise ValueError(f"checkpoint: {path} is damaged ({type(error).__name__})") from None
        if not isinstance(state, dict) or set(state) != FIELDS:
            raise ValueError(f"checkpoint: {path} is damaged (it is no state of a run)")
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


def _made(folder: str | os.PathLike[str]) -> Path:
    target = absolute("checkpoint", folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"checkpoint: cannot make {target} ({error.strerror})") from None
    return target


def _check_same(found: Any, declared: Mapping[str, Any]) -> None:
    if not isinstance(found, Mapping):
        raise ValueError(f"checkpoint: {DECLARED} is damaged")
    for name in sorted({*found, *declared}):
        if found.get(name) != declared.get(name):
            raise ValueError(f"checkpoint: the folder holds a run with another {name}")


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
