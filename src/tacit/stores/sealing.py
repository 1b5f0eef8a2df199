"""Seals: one key gives handles of ids, the sealing of documents, and a check of itself.

Keys are derived with HKDF-SHA-256 from the caller's key, the store's random name and all that its
header declares, so that a header with another setting opens nothing. A sealed document is
``nonce ‖ AES-256-GCM(plain)``; its handle, version and code are bound to it as associated data.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tacit._ground.lazy import install_with

KEY_BYTES, HANDLE_BYTES, NONCE_BYTES, TAG_BYTES = 32, 16, 12, 16
OVERHEAD = NONCE_BYTES + TAG_BYTES
STORE_BYTES, LENGTH_BYTES, VERSION_BYTES = 16, 4, 8
# what an operating system reads of a mapped file at a time, at least
PAGE = 4096
# NIST SP 800-38D, 8.3: random nonces of 96 bits under one key, so that two are alike with a
# probability below 2⁻³²
MOST_SEALINGS = 2**32
PURPOSES = (b"documents", b"handles", b"check")
FORMAT = b"tacit sealed store 1"
# bytes of a document as they lie in a place; of a file that is mapped they are not copied
Sealed = bytes | memoryview


def new_key() -> bytes:
    """Return 32 bytes of the operating system's randomness.

    Example:
        >>> len(new_key())
        32
    """
    return os.urandom(KEY_BYTES)


@dataclass(frozen=True, eq=False)
class FetchedRows:
    """Sealed documents, and the handle, version and code that each is bound to, one after another.

    Attributes:
        sealed: n of them.
        bound: bytes of all.
        size: bytes of one.
    """

    sealed: Sequence[Sealed]
    bound: bytes
    size: int

    def bound_to(self, row: int) -> bytes:
        """Return what a document is bound to."""
        return self.bound[self.size * row : self.size * row + self.size]

    def touch(self) -> None:
        """Read from every page of every document: a host of mapped files sees which are read."""
        for one in self.sealed:
            bytes(one[::PAGE])
            bytes(one[-1:])


class Seals:
    """What a key does in one store; its representation shows nothing of it.

    Args:
        key: 32 bytes.
        store: random name of the store.
        declared: all that its header declares.

    Raises:
        ValueError: a key of another length, or ``cryptography`` is not installed.
    """

    def __init__(self, key: bytes, store: bytes, declared: bytes) -> None:
        check_key("key", key)
        aes, derive, self._changed = _cryptography()
        documents, handles, check = (
            derive(bytes(key), store, b"|".join((FORMAT, purpose, declared)))
            for purpose in PURPOSES
        )
        self._aes, self._handles, self.check = aes(documents), handles, check
        # of newer versions of cryptography
        self._into = getattr(self._aes, "decrypt_into", None)
        self._store = store

    def __repr__(self) -> str:
        return "Seals(...)"

    def handle(self, name: str) -> bytes:
        """Return what stands for an id in the clear: ``HMAC-SHA-256(k, id)``, 16 bytes of it."""
        # surrogatepass: an id is whatever text JSON holds
        digest = hmac.digest(self._handles, name.encode("utf-8", "surrogatepass"), "sha256")
        return digest[:HANDLE_BYTES]

    def seal(self, plain: bytes, *bound: bytes) -> bytes:
        """Return ``nonce ‖ ciphertext ‖ tag``, the nonce drawn anew."""
        nonce = os.urandom(NONCE_BYTES)
        sealed: bytes = nonce + self._aes.encrypt(nonce, plain, self._bound(bound))
        return sealed

    def open(self, sealed: Sealed, *bound: bytes) -> bytes | None:
        """Return what was sealed; None where it is not what was sealed for these."""
        # copied first: its host may write to a file that is mapped while it is opened
        held = bytes(sealed)
        if len(held) < OVERHEAD:
            return None
        try:
            plain: bytes = self._aes.decrypt(
                held[:NONCE_BYTES], held[NONCE_BYTES:], self._bound(bound)
            )
        except self._changed:
            return None
        return plain

    def open_into(self, buffer: bytearray, sealed: bytearray, *bound: bytes) -> bool:
        """Put what was sealed into a buffer of its length; False where it is not for these.

        New memory for every document costs twice what opening it does: both are the caller's, who
        uses them again.
        """
        if self._into is None:
            plain = self.open(bytes(sealed), *bound)
            if plain is not None:
                buffer[:] = plain
            return plain is not None
        try:
            held = memoryview(sealed)
            self._into(held[:NONCE_BYTES], held[NONCE_BYTES:], self._bound(bound), buffer)
        except self._changed:
            return False
        return True

    def _bound(self, parts: Sequence[bytes]) -> bytes:
        # parts are of lengths that the store fixes, so that no two lists give one string
        return b"".join((FORMAT, self._store, *parts))


def check_key(name: str, key: Any) -> None:
    """Refuse what is no key, without a byte of it in the message.

    Raises:
        ValueError: it is not 32 bytes.
    """
    if not isinstance(key, bytes | bytearray):
        raise ValueError(f"{name}: expected {KEY_BYTES} bytes, got {type(key).__name__}")
    if len(key) != KEY_BYTES:
        raise ValueError(f"{name}: expected {KEY_BYTES} bytes, got {len(key)}")


def padded(plain: bytes, size: int) -> bytes:
    """Return ``length ‖ plain ‖ zeros``, of a size that says nothing of the length."""
    return len(plain).to_bytes(LENGTH_BYTES, "little") + plain.ljust(size, b"\0")


def unpadded(content: bytes) -> bytes:
    """Return what ``padded`` was given."""
    size = int.from_bytes(content[:LENGTH_BYTES], "little")
    return content[LENGTH_BYTES : LENGTH_BYTES + size]


def _cryptography() -> tuple[Any, Any, type[Exception]]:
    """Return AES-GCM, a derivation of 32 bytes from key, salt and purpose, and what is raised."""
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    except ImportError:
        raise ValueError(f"cryptography: not installed; {install_with('stores')}") from None

    def derive(key: bytes, salt: bytes, purpose: bytes) -> bytes:
        return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=purpose).derive(key)

    return AESGCM, derive, InvalidTag
