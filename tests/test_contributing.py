"""The worked examples of CONTRIBUTING.md run as printed; a kind: releases/test_kinds."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("section", ["## Add a mechanism", "## Add a bound"])
def test_a_worked_example_runs_with_its_case(section):
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    part = text[text.index(section) :]
    part = part[: part.index("\n## ", 1)]
    blocks = re.findall(r"```python\n(.*?)```", part, re.DOTALL)
    assert blocks
    # in a process of its own: its case is not one of the registry's
    done = subprocess.run([sys.executable, "-"], input="\n".join(blocks), text=True, cwd=ROOT,
                          capture_output=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    called = re.findall(r"^test_\w+\(\)$", blocks[-1], re.MULTILINE)
    assert len(called) == 1
