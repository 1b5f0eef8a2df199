"""Where a training stands, kept so that it goes on after an interruption."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tacit._ground.checks import non_negative
from tacit._ground.files import check_writable, write_bytes_atomic
from tacit.documents import dumps

SECONDS_BETWEEN = 60.0


class Checkpoint:
    """A file with weights, optimisers and randomness of a training, replaced whole now and then.

    Args:
        path: the file.
        about: what determines the training; another one's file is refused.
        every: seconds between two writes.
    """

    def __init__(self, path: Any, about: dict[str, Any], *, every: float = SECONDS_BETWEEN) -> None:
        self.path: Path = check_writable("checkpoint", path)
        self.about = dumps(about, sort_keys=True)
        self.every = non_negative("every", every)
        self._last = time.monotonic()

    def read(self) -> dict[str, Any] | None:
        """Return what was kept, None where there is no file yet.

        Raises:
            ValueError: it cannot be read, or is of another training.
        """
        if not self.path.exists():
            return None
        try:
            kept: dict[str, Any] = torch.load(self.path, map_location="cpu", weights_only=True)
            about = kept["about"]
        except Exception as error:
            raise ValueError(
                f"checkpoint: cannot read {self.path} ({type(error).__name__})"
            ) from None
        if about != self.about:
            raise ValueError(
                f"checkpoint: {self.path} is of a training with other settings, text or penalties; "
                "name another file or remove it"
            )
        return kept

    def is_due(self) -> bool:
        """Whether it is time to write."""
        return time.monotonic() - self._last >= self.every

    def write(
        self,
        facts: dict[str, Any],
        network: Any,
        optimizers: Sequence[torch.optim.Optimizer],
        source: torch.Generator,
    ) -> None:
        """Replace the file."""
        content = io.BytesIO()
        torch.save(
            {
                **facts,
                "about": self.about,
                "network": network.state_dict(),
                "optimizers": [optimizer.state_dict() for optimizer in optimizers],
                "source": source.get_state(),
            },
            content,
        )
        write_bytes_atomic("checkpoint", self.path, content.getvalue())
        self._last = time.monotonic()

    def restore(
        self,
        kept: dict[str, Any],
        network: Any,
        optimizers: Sequence[torch.optim.Optimizer],
        source: torch.Generator,
    ) -> None:
        """Put back what ``read`` returned."""
        network.load_state_dict(kept["network"])
        for optimizer, state in zip(optimizers, kept["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        source.set_state(kept["source"])

    def remove(self) -> None:
        """Remove the file, once the model is whole."""
        self.path.unlink(missing_ok=True)
