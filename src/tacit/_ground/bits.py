"""Random bytes of the operating system, many of them by a cipher that it keys anew for every call.

No state outlives a call, so that no thread, forked process or copy ever repeats another's bytes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

# Of ChaCha20: 256 bits.
KEY_BYTES = 32
# Below so many bytes the operating system takes no time worth a library, and is asked itself.
DIRECT = 2**16
# Bytes of one key: far below the 2³⁸ after which the block counter of RFC 8439 starts again.
TOGETHER = 2**20

# A digest of the last key, which tells nothing of it.
_last = b""


def random_bytes(count: int) -> bytes:
    """Return bytes of the operating system, or of ChaCha20 under a fresh key of its 32 bytes.

    The cipher is that of OpenSSL, where ``cryptography`` is installed; elsewhere, and for a few
    bytes, all of them are the operating system's.

    Raises:
        RuntimeError: the operating system gave the same key twice.
    """
    if count < DIRECT or cipher() is None:
        return os.urandom(count)
    parts = [key_stream(fresh_key(), min(TOGETHER, count - at)) for at in range(0, count, TOGETHER)]
    return parts[0] if len(parts) == 1 else b"".join(parts)


def random_words(count: int) -> npt.NDArray[np.uint64]:
    """Return words of 64 bits from ``random_bytes``."""
    return np.frombuffer(random_bytes(8 * count), dtype="<u8")


def fresh_key() -> bytes:
    """Return a key that nothing had before.

    Raises:
        RuntimeError: it is the last one again: a source that is stuck.
    """
    global _last
    key = os.urandom(KEY_BYTES)
    # 256 bits that repeat by chance: never
    digest = hashlib.sha256(key).digest()
    if digest == _last:
        raise RuntimeError("the operating system gave the same random bits twice: draw nothing")
    _last = digest
    return key


def key_stream(key: bytes, count: int) -> bytes:
    """Return the first bytes of ChaCha20's stream under a key, its nonce and counter from 0.

    Source: RFC 8439, section 2.4.
    """
    start = cipher()
    assert start is not None
    # keystream = keystream xor 0
    stream: bytes = start(key).update(_zeros()[:count])
    return stream


@cache
def cipher() -> Callable[[bytes], Any] | None:
    """Return what starts ChaCha20 under a key; None without a library that has it."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
    except ImportError:
        return None

    def start(key: bytes) -> Any:
        # counter and nonce are 0: no two calls have one key
        return Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()

    try:
        start(bytes(KEY_BYTES))
    except UnsupportedAlgorithm:
        return None
    return start


@cache
def _zeros() -> memoryview:
    return memoryview(bytes(TOGETHER))
