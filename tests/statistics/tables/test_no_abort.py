"""A refused file ends no process: its reader is closed before anything is raised."""

import subprocess
import sys

import numpy as np
import pytest

KINDS = ("1,2,3", "1", "1,x", "1,inf", '"1,2', "1,", "1,9007199254740993.5e400", "\x00,1")
# Each refusal in a process of its own, forked after the imports, which ends as an interpreter ends.
REFUSALS = """
import os, sys
from tacit.statistics import read_table
from tacit.statistics.tables import csv_text

for given in sys.argv[1:]:
    child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit(0)
path, bits = given.rsplit(":", 1)
csv_text.ROWS_AT_A_TIME = 1 << int(bits)
try:
    read_table(path)
except ValueError:
    sys.exit(0)
sys.exit(3)
"""


def ends(folder, turns):
    """Return what did not end with a refusal and a regular end of the process."""
    given = []
    for turn in turns:
        rng = np.random.default_rng(turn)
        rows = [f"{a},{b}" for a, b in rng.integers(100, size=(int(rng.integers(4, 2_000)), 2))]
        rows.insert(int(rng.integers(len(rows) + 1)), KINDS[turn % len(KINDS)])
        path = folder / f"{turn}.csv"
        path.write_text("a,b\n" + "\n".join(rows) + "\n")
        given.append(f"{path}:{4 if turn // 8 % 2 else 16}")
    done = subprocess.run([sys.executable, "-c", REFUSALS, *given], capture_output=True, check=True)
    codes = [int(code) for code in done.stdout.split()]
    return [
        (turn, KINDS[turn % len(KINDS)], code, done.stderr[-200:])
        for turn, code in zip(turns, codes, strict=True)
        if code != 0
    ]


def test_a_refused_table_ends_no_process(tmp_path):
    # too many fields, too few, and a quote that is never closed
    assert ends(tmp_path, [0, 1, 4]) == []


@pytest.mark.thorough
def test_many_refusals_end_no_process(tmp_path):
    assert ends(tmp_path, range(100, 148)) == []
