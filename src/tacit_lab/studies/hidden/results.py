"""The result file of an experiment: written with a row on a line, read into a section of a page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit._ground.files import write_text_atomic
from tacit_lab.studies.places import RESULTS


def write_result(path: Path, result: dict[str, Any], rows: str) -> None:
    """Write JSON whole or not at all, what stands under ``rows`` with an entry on a line."""
    short = json.dumps({**result, rows: []}, allow_nan=False, ensure_ascii=False, indent=1)
    lines = ",\n  ".join(
        json.dumps(row, allow_nan=False, ensure_ascii=False) for row in result[rows]
    )
    whole = short.replace(f'"{rows}": []', f'"{rows}": [\n  {lines}\n ]', 1)
    write_text_atomic("out", path, whole + "\n")


def section(name: str, title: str, lines: Callable[[dict[str, Any]], list[str]]) -> list[str]:
    """Return the lines of a section, or that the experiment was not run."""
    path = RESULTS / f"{name}.json"
    if not path.is_file():
        return [f"## {title}", "", f"Not run: `make experiments NAME={name}`.", ""]
    return [f"## {title}", "", *lines(json.loads(path.read_text(encoding="utf-8")))]
