"""Files and folders that their owner alone may read."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path


def keep_private(path: Path) -> None:
    """Take from others what they may do with a file or folder; one of somebody else stays."""
    with suppress(OSError):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            path.chmod(mode & 0o700)


def open_private(path: str, flags: int) -> int:
    """Open a file that is made for its owner alone: an ``opener`` of ``open``."""
    return os.open(path, flags, 0o600)
