"""The seed that canaries and coins come from, kept beside a checkpoint so that a run can go on."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np

from tacit import documents
from tacit._ground.files import absolute, read_bytes, write_text_atomic

KEPT = "canaries.json"
BITS = 128


class CanarySeed:
    """A seed of the operating system, or the one that a run in a folder began with.

    Args:
        checkpoint: folder of the run; None for none.
        settings: digest of what is trained on; a run that goes on must have the same.
        rng: a seed of the caller's own.

    Raises:
        ValueError: the folder holds a run on other sequences or canaries, or its file is damaged.
    """

    def __init__(
        self, checkpoint: str | os.PathLike[str] | None, settings: str, rng: int | None
    ) -> None:
        self._settings = settings
        self._path = None if checkpoint is None else absolute("checkpoint", checkpoint) / KEPT
        kept = None if self._path is None or not self._path.exists() else self._read(self._path)
        self.fresh = kept is None
        self._value = (secrets.randbits(BITS) if rng is None else rng) if kept is None else kept

    def source(self, purpose: int) -> np.random.Generator:
        """Return the generator of one purpose: 0 secrets, 1 coins."""
        return np.random.default_rng([self._value, purpose])

    def keep(self, *, begun: bool) -> None:
        """Write the seed before the first round.

        Args:
            begun: whether the run had a round before.

        Raises:
            ValueError: the seed of a run that had begun is gone.
        """
        if self._path is None or not self.fresh:
            return
        if begun:
            raise ValueError(f"checkpoint: {KEPT} is missing in {self._path.parent}")
        content = {"settings": self._settings, "seed": hex(self._value)}
        write_text_atomic("checkpoint", self._path, documents.dumps(content, name="canaries"))
        self.fresh = False

    def _read(self, path: Path) -> int:
        found: Any = documents.loads(read_bytes("checkpoint", path), name="checkpoint")
        try:
            settings, value = found["settings"], int(found["seed"], 16)
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"checkpoint: {KEPT} is damaged") from None
        if settings != self._settings or value < 0:
            raise ValueError("checkpoint: the folder holds a run on other sequences or canaries")
        return value
