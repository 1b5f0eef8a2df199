"""What is read from is let go of before anything is raised."""

import importlib.util
import re
import subprocess
import sys
import textwrap

import pytest

from tacit.statistics import read_query

REFUSING = """
    import os, random, sys
    from tacit.statistics import read_table

    each, *seeds = map(int, sys.argv[1:])
    for seed in seeds:
        child = os.fork()
        if not child:
            break
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    else:
        sys.exit(0)
    source = random.Random(seed)
    for _ in range(each):
        rows = source.choice((10, 5_000, 200_000))
        bad = source.choice(("1,2", "1,2,3,4", "1,x,3", "1,,3", '1,"2,3', "1,inf,3"))
        before = source.randrange(rows)
        with open("t.csv", "w") as file:
            file.write("a,b,c\\n" + "1,2,3\\n" * before + bad + "\\n1,2,3" * (rows - before))
        try:
            read_table("t.csv")
        except ValueError:
            pass
        else:
            raise SystemExit(3)
    read_table("t.csv", ["d"])
"""


def refused(tmp_path, seeds, each):
    """Leave by an exception that is not caught, right after a refusal, each in a process."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(REFUSING), *map(str, (each, *seeds))],
        check=True, cwd=tmp_path, capture_output=True,
    )  # fmt: skip
    assert done.stdout.split() == [b"1"] * len(seeds), (done.stdout, done.stderr[-500:])
    assert len(re.findall(rb"(Value|MissingColumn)Error: ", done.stderr)) == len(seeds)


def test_a_refused_csv_ends_in_a_refusal(tmp_path):
    refused(tmp_path, range(3), 4)


@pytest.mark.thorough
def test_many_refused_csvs_end_in_refusals(tmp_path):
    refused(tmp_path, range(100, 150), 20)


@pytest.mark.skipif(importlib.util.find_spec("psycopg") is not None, reason="the driver is there")
@pytest.mark.parametrize("kind", ["postgres", "postgresql", "postgresql+psycopg"])
def test_a_missing_driver_is_named_with_its_extra(kind):
    with pytest.raises(ValueError, match=r"database: it needs the driver psycopg: .*\[postgres\]"):
        read_query("select 1", f"{kind}://somebody@localhost/people")
