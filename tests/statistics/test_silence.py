"""What a caller's own code writes at the draw, in whatever language, is not seen."""

import os
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
    import ctypes, os, subprocess, sys
    import numpy as np
    from tacit import Effort, Rows
    from tacit.statistics import prepare

    source = np.random.default_rng(0)
    rows = source.normal(size=(40, 2))
    rows[0] = 1e300
    drawing, seen = False, []

    def query(drawn):
        with np.errstate(all="ignore"):
            squares = drawn**2
        if drawing:
            seen.append(bool((drawn > 1e299).any()))
            os.write(1, b"descriptor 1")
            os.write(2, b"descriptor 2")
            sys.__stdout__.write("the first stream")
            subprocess.run(["echo", "a process"])
            ctypes.CDLL(None).printf(b"the C library")
        try:
            # LAPACK writes "** On entry to DLASCL" of infinite numbers
            slope = np.linalg.lstsq(squares[:, :1], drawn[:, 1], rcond=None)[0]
        except np.linalg.LinAlgError:
            slope = np.zeros(1)
        return np.nan_to_num(np.clip(slope, -5, 5))

    effort = Effort(simulations=60, trials=0, workers=1, progress=False)
    prepared = [prepare(query, rows, Rows(success=0.7), effort) for _ in range(5)]
    print("BEFORE")
    sys.stdout.flush()
    drawing = True
    for one in prepared:
        one.draw()
    print("AFTER", any(seen))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the C library by its name")
def test_what_c_code_and_processes_write_at_the_draw_leads_nowhere():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert "DLASCL" in done.stdout.partition("BEFORE")[0]
    assert done.stdout.partition("BEFORE\n")[2] == "AFTER True\n"
    assert done.stderr == ""


@pytest.mark.parametrize("closed", [(), (1,), (2,), (1, 2)])
def test_descriptors_are_as_they_were_whatever_happens(closed, tmp_path):
    program = f"""
        import os
        from tacit.statistics.user_code import silence

        def state():
            found = []
            for number in (1, 2):
                try:
                    found.append(os.fstat(number).st_ino)
                except OSError:
                    found.append(None)
            return found

        def count():
            return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

        for number in {closed!r}:
            os.close(number)
        before, opened = state(), count()
        for failing in (False, True):
            try:
                with silence():
                    os.write(1, b"lost")
                    os.write(2, b"lost")
                    assert not failing
            except AssertionError:
                pass
            assert (state(), count()) == (before, opened)
        open({str(tmp_path / "done")!r}, "w").close()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], check=False, capture_output=True
    )
    assert (tmp_path / "done").exists()
    assert b"lost" not in done.stdout + done.stderr
