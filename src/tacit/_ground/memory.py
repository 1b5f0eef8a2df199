"""What the process does with memory that was freed."""

from __future__ import annotations

import ctypes
from functools import cache

# Of glibc's malloc.h.
TRIM_THRESHOLD, MMAP_MAX = -1, -4
LARGEST = 2**31 - 1


@cache
def keep_freed_memory() -> bool:
    """Have freed blocks used again, where glibc would give large ones back after every use.

    A model's pass over prompts asks for the same large blocks again and again; fetching their pages
    anew costs a sixth of an audit's time. For a command's own process: what it holds at most it
    holds until it ends.

    Returns:
        Whether the allocator of this machine took it.
    """
    try:
        ask = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        # another C library, which decides by itself
        return False
    return bool(ask(MMAP_MAX, 0)) and bool(ask(TRIM_THRESHOLD, LARGEST))
