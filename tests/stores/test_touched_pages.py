"""What is fetched by clear codes is read to its last page, so that pages tell no more of it."""

from __future__ import annotations

import ctypes
import mmap
import sys

import pytest

pytest.importorskip("cryptography")

from tacit.stores.sealing import FetchedRows

PAGES = 4


@pytest.mark.skipif(sys.platform != "linux", reason="mincore tells otherwise elsewhere")
def test_every_page_of_a_document_is_read():
    room, size = mmap.mmap(-1, PAGES * mmap.PAGESIZE), mmap.PAGESIZE
    place = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(room)))
    there = (ctypes.c_ubyte * PAGES)()
    # two pages long, from the middle of one to that of the third
    document = memoryview(room)[size // 2 : size // 2 + 2 * size]
    FetchedRows([document], b"", 0).touch()
    assert ctypes.CDLL(None).mincore(place, ctypes.c_size_t(PAGES * size), there) == 0
    assert [one & 1 for one in there] == [1, 1, 1, 0]
