"""A refused file ends no process: its reader is closed before anything is raised."""

import subprocess
import sys

import numpy as np
import pytest

KINDS = ("1,2,3", "1", "1,x", "1,inf", '"1,2', "1,", "1,9007199254740993.5e400", "\x00,1")
# A refusal in a process of its own, which ends as an interpreter ends.
REFUSAL = """
import sys
from tacit.statistics import read_table
from tacit.statistics.tables import csv_text
csv_text.ROWS_AT_A_TIME = 1 << int(sys.argv[2])
try:
    read_table(sys.argv[1])
except ValueError:
    sys.exit(0)
sys.exit(3)
"""


def ends(folder, turns):
    """Return what did not end with a refusal and a regular end of the process."""
    wrong = []
    for turn in turns:
        rng = np.random.default_rng(turn)
        rows = [f"{a},{b}" for a, b in rng.integers(100, size=(int(rng.integers(4, 2_000)), 2))]
        rows.insert(int(rng.integers(len(rows) + 1)), KINDS[turn % len(KINDS)])
        path = folder / f"{turn}.csv"
        path.write_text("a,b\n" + "\n".join(rows) + "\n")
        done = subprocess.run(
            [sys.executable, "-c", REFUSAL, str(path), "4" if turn // 8 % 2 else "16"],
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            wrong.append((turn, KINDS[turn % len(KINDS)], done.returncode, done.stderr[-200:]))
    return wrong


def test_a_refused_table_ends_no_process(tmp_path):
    # too many fields, too few, and a quote that is never closed
    assert ends(tmp_path, [0, 1, 4]) == []


@pytest.mark.thorough
def test_many_refusals_end_no_process(tmp_path):
    assert ends(tmp_path, range(100, 148)) == []
