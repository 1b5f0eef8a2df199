"""Rows of a study that were finished, kept so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit_lab.studies.places import CACHE


class StoredStudy:
    """Rows by key, for settings that must all be the same to go on."""

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
        self.path = CACHE / f"{name}-rows-{digest}.json"
        self.rows: dict[str, Any] = {}
        if self.path.is_file():
            self.rows = json.loads(self.path.read_text(encoding="utf-8"))

    def row(self, key: str, compute: Callable[[], Any]) -> Any:
        """Return a row, computed only if it was not before."""
        if key not in self.rows:
            self.rows[key] = compute()
            write(self.path, self.rows)
        return self.rows[key]


def write(path: Path, content: Any) -> None:
    """Write JSON whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)
