"""The folder of a run that survives a crash: what the run is, what it reserved, where it stands."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from tacit import documents
from tacit._ground.checks import integer
from tacit._ground.files import (
    absolute,
    atomic_stream,
    held,
    read_bytes,
    write_bytes_atomic,
    write_text_atomic,
)

DECLARED, STATE, RESERVED = "declared.json", "state.pt", "reserved.json"
OWNER_ONLY = 0o600


class RunFolder:
    """The files of one run in a folder.

    Args:
        folder: made where it is not there yet.
        declared: what the run is; a run that is taken up again must declare the same.
        fields: names that a stored state has.
        others: files that are not there without a declaration.

    Raises:
        ValueError: the folder holds another run, or its files are damaged.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        declared: Mapping[str, Any],
        *,
        fields: set[str],
        others: Sequence[str] = (),
    ) -> None:
        self.folder, self._fields, self._others = _make_folder(folder), fields, others
        stored = self.folder / DECLARED
        text = documents.dumps(dict(declared), name="declared", indent=2)
        if stored.exists():
            # the same run, or a refusal that names what differs
            found = documents.loads(read_bytes("checkpoint", stored), name="checkpoint")
            _check_same(found, json.loads(text))
        else:
            # a state whose declaration is gone could be of any run
            if any((self.folder / name).exists() for name in (STATE, *others)):
                raise ValueError(f"checkpoint: {DECLARED} is missing in {self.folder}")
            # digests of what is secret stand in it
            write_bytes_atomic("checkpoint", stored, text.encode("utf-8"), mode=OWNER_ONLY)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder: two that go on from one state would do twice what is done once.

        Raises:
            ValueError: another process trains in it.
        """
        # only the taking of the lock is refused so; what is done while it is held is not caught
        lock = held(self.folder / "run", wait=False)
        try:
            lock.__enter__()
        except BlockingIOError:
            raise ValueError(
                f"checkpoint: expected a folder that no other process is training in, got "
                f"{self.folder}"
            ) from None
        try:
            yield
        finally:
            lock.__exit__(None, None, None)

    def reserve(self, places: Sequence[tuple[int, str | None]]) -> None:
        """Write where in a ledger the run is counted: number and seal of every entry."""
        told = [{"number": number, "seal": seal} for number, seal in places]
        # the seal proves later that an entry is this run's
        text = documents.dumps(told, name="reserved")
        write_text_atomic("checkpoint", self.folder / RESERVED, text)

    def places(self) -> list[tuple[int, str]]:
        """Return where in a ledger the run is counted, and the seals; nothing where in none."""
        path = self.folder / RESERVED
        if not path.exists():
            return []
        found = documents.loads(read_bytes("checkpoint", path), name="checkpoint")
        try:
            return [
                (integer("number", one["number"], minimum=0, maximum=None), _text(one["seal"]))
                for one in found
            ]
        except (TypeError, KeyError, ValueError):
            raise ValueError(f"checkpoint: {RESERVED} is damaged") from None

    def forget(self) -> None:
        """Take back the declaration of a run that was refused before anything of it was done."""
        # what has a state or an entry is not forgotten
        if not any((self.folder / name).exists() for name in (STATE, RESERVED)):
            (self.folder / DECLARED).unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the files of a run whose outcome is kept elsewhere, and the folder if bare."""
        # the declaration last: a folder is a run's as long as it says so
        for name in (STATE, RESERVED, *self._others, DECLARED, ".run.lock"):
            (self.folder / name).unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def save(self, state: Mapping[str, Any]) -> None:
        """Write the state whole or not at all."""
        try:
            # beside the old one, then in its place: a crash leaves one of them whole
            # for its holder alone: what records are drawn by, and noise that is tied to other steps
            with atomic_stream("checkpoint", self.folder / STATE, mode=OWNER_ONLY) as stream:
                torch.save(dict(state), stream)
        except RuntimeError as error:
            # torch says so when the disk is full
            raise ValueError(f"checkpoint: cannot write {STATE} ({error})") from None

    def state(self) -> dict[str, Any] | None:
        """Return the last state that was saved, None before the first."""
        path = self.folder / STATE
        if not path.exists():
            return None
        try:
            # tensors and plain values alone: a pickle could run anything
            state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise ValueError(f"checkpoint: {path} is damaged ({type(error).__name__})") from None
        # other fields are of another version or of another kind of run
        if not isinstance(state, dict) or set(state) != self._fields:
            raise ValueError(f"checkpoint: {path} is damaged (it is no state of a run)")
        return state


def _make_folder(folder: str | os.PathLike[str]) -> Path:
    target = absolute("checkpoint", folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"checkpoint: cannot make {target} ({error.strerror})") from None
    return target


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _check_same(found: Any, declared: Mapping[str, Any]) -> None:
    if not isinstance(found, Mapping):
        raise ValueError(f"checkpoint: {DECLARED} is damaged")
    # told by name alone: values may be digests of what is secret
    for name in sorted({*found, *declared}):
        if found.get(name) != declared.get(name):
            raise ValueError(f"checkpoint: the folder holds a run with another {name}")
