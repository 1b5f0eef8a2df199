"""The worked examples of CONTRIBUTING.md run as printed; a kind: releases/test_kinds."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Headings and the blocks of Python below each.
BLOCKS = {
    part.partition("\n")[0]: re.findall(r"```python\n(.*?)```", part, re.DOTALL)
    for part in (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("\n## ")
}
# One module, installed and used as a distribution of its own.
INSTALLED = "Add a kind of release, and its command"
RUN = ["Add a mechanism", "Add a bound"]


def test_every_block_of_python_runs_somewhere():
    assert {heading for heading, blocks in BLOCKS.items() if blocks} == {INSTALLED, *RUN}
    assert len(BLOCKS[INSTALLED]) == 1


@pytest.mark.parametrize("heading", RUN)
def test_a_worked_example_runs_with_its_case(heading):
    blocks = BLOCKS[heading]
    # in a process of its own: its case is not one of the registry's
    done = subprocess.run([sys.executable, "-"], input="\n".join(blocks), text=True, cwd=ROOT,
                          capture_output=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    called = re.findall(r"^test_\w+\(\)$", blocks[-1], re.MULTILINE)
    assert len(called) == 1
