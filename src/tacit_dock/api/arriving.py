"""Bodies under way: how many and how much of them, of one address and of all."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import Scope

from tacit_dock.errors import RefusedError
from tacit_dock.settings import DockSettings

NAME = "tacit.arriving"
AGAIN_SECONDS = 5


class Arriving:
    """Counts bodies from their first byte until their request is answered.

    Args:
        settings: how many bodies and bytes there may be.
    """

    def __init__(self, settings: DockSettings) -> None:
        self._settings = settings
        self._bodies: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    @property
    def bodies(self) -> int:
        """How many are under way."""
        return self._bodies.total()

    @property
    def size(self) -> int:
        """Bytes of them that arrived."""
        return self._bytes.total()

    @contextmanager
    def body(self, scope: Scope) -> Iterator[None]:
        """Have one more under way.

        Raises:
            RefusedError: there are too many (503).
        """
        limits, address = self._settings, network_of(address_of(scope))
        everybody = self._bodies.total() >= limits.max_arriving
        if everybody or self._bodies[address] >= limits.max_arriving_of_one:
            raise _again("bodies")
        self._bodies[address] += 1
        held = scope[NAME] = Body(self, address)
        try:
            yield
        finally:
            for counted, less in ((self._bodies, 1), (self._bytes, held.size)):
                counted[address] -= less
                if counted[address] <= 0:
                    del counted[address]

    def grow(self, address: str, size: int) -> None:
        """Have more bytes under way.

        Raises:
            RefusedError: there are too many (503).
        """
        self._bytes[address] += size
        most = self._settings.max_arriving_bytes
        if self._bytes.total() > most or self._bytes[address] > max(1, most // 2):
            raise _again("bytes")


class Body:
    """One of them.

    Attributes:
        size: bytes that arrived.
    """

    def __init__(self, arriving: Arriving, address: str) -> None:
        self._arriving, self._address, self.size = arriving, address, 0

    def grow(self, size: int) -> None:
        """Count bytes that arrived.

        Raises:
            RefusedError: there are too many under way (503).
        """
        self.size += size
        self._arriving.grow(self._address, size)


def address_of(scope: Scope) -> str:
    """Return where a request comes from, as the server knows it."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def network_of(address: str) -> str:
    """Return whose limits an address shares: of IPv6 its 64 bits of network, all one's own.

    Example:
        >>> network_of("192.0.2.7"), network_of("2001:db8::7") == network_of("2001:db8::8")
        ('192.0.2.7', True)
    """
    try:
        found = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    mapped = found.ipv4_mapped
    return str(mapped or ipaddress.IPv6Network((found, 64), strict=False))


def _again(what: str) -> RefusedError:
    return RefusedError(503, f"too many {what} are under way", retry_after=AGAIN_SECONDS)
