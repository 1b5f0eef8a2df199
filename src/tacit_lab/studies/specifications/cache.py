"""What was made once and is kept outside the checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tacit.models.small.storage import cache_folder

CACHE = cache_folder() / "experiments" / "specifications"


def keep(path: Path, **arrays: Any) -> None:
    """Write arrays whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, **arrays)
    partial.replace(path)
