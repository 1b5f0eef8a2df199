"""The server's side of one connection: the head of a request arrives in time, or it is closed."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


def protocol_of(header_seconds: float, least_speed: int, most: int) -> type[H11Protocol]:
    """Return the protocol of connections that are closed where no request comes in time.

    Args:
        header_seconds: from the connection, or from the end of the answer before, to the end of
            the head of a request.
        least_speed: bytes a second at which an answer is read at least.
        most: connections; one more is closed without a word.
    """

    class Punctual(H11Protocol):
        _late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > most:
                transport.abort()
                return
            self._expect()

        def connection_lost(self, exc: Exception | None) -> None:
            self._arrived()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            super().data_received(data)
            if self.cycle is not before:
                self._arrived()

        def on_response_complete(self) -> None:
            # a head that came with the body before it is a new cycle when this returns
            self._expect()
            before = self.cycle
            super().on_response_complete()
            if self.cycle is not before:
                self._arrived()

        def _expect(self) -> None:
            self._arrived()
            self._late = self.loop.call_later(header_seconds, self._close)

        def _close(self) -> None:
            # what was answered may still be on its way
            left = self.transport.get_write_buffer_size()
            self.transport.close()
            if left:
                self.loop.call_later(header_seconds + left / least_speed, self.transport.abort)

        def _arrived(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

    return Punctual
