"""Freed memory is used again: counted in pages that the system had to hand out."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from tacit._ground.memory import keep_freed_memory
kept = len(sys.argv) > 1 and keep_freed_memory()
for number in range(40):
    b"x" * (48_000_000 if number % 2 else 40_000_000)
print(int(kept), resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


def faults(*arguments):
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], env=ENVIRONMENT,
                          capture_output=True, text=True, check=True)  # fmt: skip
    return [int(word) for word in done.stdout.split()]


ENVIRONMENT = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(filter(None, sys.path))}


@pytest.mark.skipif(sys.platform != "linux", reason="glibc alone gives memory back after every use")
def test_large_blocks_are_used_again():
    (_, plain), (kept, less) = faults(), faults("kept")
    if not kept:
        pytest.skip("another C library")
    # 40 blocks of 40 and 48 MB are 430,000 pages of 4 KiB, and one of each 21,000
    assert less < plain / 3
