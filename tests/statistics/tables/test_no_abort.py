"""A refused file ends no process: its reader is closed before anything is raised."""

import subprocess
import sys

import pytest

# Each refusal in a process of its own that ends as an interpreter ends, modules loaded before.
REFUSALS = """
import os, sys, warnings
import numpy as np
from tacit import Effort, Rows
from tacit.statistics.tables import csv_text
from tacit.statistics import prepare, read_table
from tacit.statistics.rows import workflow
warnings.simplefilter("ignore")
folder, count = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(0)
kinds = ("1,2,3", "1", "1,x", "1,inf", '"1,2', "1,", "1,9007199254740993.5e400", "\\x00,1")
for turn in range(count):
    rows = [f"{a},{b}" for a, b in rng.integers(100, size=(int(rng.integers(4, 2_000)), 2))]
    rows.insert(int(rng.integers(len(rows) + 1)), kinds[turn % len(kinds)])
    path = f"{folder}/{turn % 16}.csv"
    with open(path, "w") as file:
        file.write("a,b\\n" + "\\n".join(rows) + "\\n")
    csv_text.BLOCK = 1 << (12 if turn % 2 else 22)
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            prepare("mean", read_table(path), Rows(success=0.6), Effort(trials=0))
        except ValueError:
            sys.exit(0)
        os._exit(3)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != 0:
        print(turn, repr(kinds[turn % len(kinds)]), code)
"""


def ends(folder, count):
    """Return what did not end with a refusal and a regular end of the process."""
    done = subprocess.run(
        [sys.executable, "-c", REFUSALS, str(folder), str(count)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_refused_table_ends_no_process(tmp_path):
    assert ends(tmp_path, 16) == ""


@pytest.mark.thorough
def test_many_refusals_end_no_process(tmp_path):
    assert ends(tmp_path, 400) == ""
