"""How a command reaches a dock: its address, and a token that no process list shows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.options import Json

if TYPE_CHECKING:
    from tacit_dock import DockClient

HERE = "http://127.0.0.1:8765"
URL, TOKEN = "TACIT_DOCK_URL", "TACIT_DOCK_TOKEN"
LONGEST = 1000


@dataclass(frozen=True, kw_only=True)
class Address:
    """The flags of every command that asks a dock."""

    url: Annotated[
        str | None,
        typer.Option(help=f"Of the dock; else ${URL}, else {HERE}.", show_default=False),
    ] = None
    token_file: Annotated[
        str | None,
        typer.Option(help=f"File that holds the token alone; else ${TOKEN}.", show_default=False),
    ] = None
    allow_http: Annotated[
        bool, typer.Option("--allow-http", help="Send the token in the clear to another machine.")
    ] = False
    json: Json = None

    def client(self) -> DockClient:
        """Return a connection to the dock."""
        from tacit_dock import DockClient

        url = self.url or os.environ.get(URL) or HERE
        try:
            return DockClient(url, self._token(), allow_http=self.allow_http)
        except ImportError as error:
            raise ValueError(str(error)) from None

    def _token(self) -> str | None:
        if self.token_file is None:
            return os.environ.get(TOKEN, "").strip() or None
        from tacit._ground.files import read_bytes

        content = read_bytes("--token-file", self.token_file)
        if os.name == "posix" and os.stat(self.token_file).st_mode & 0o077:
            raise ValueError(
                f"--token-file: expected a file that nobody else can read, got {self.token_file}: "
                "chmod 600 it"
            )
        if len(content) > LONGEST or not content.strip().isascii():
            raise ValueError("--token-file: expected a file that holds the token alone")
        return content.decode("ascii").strip()
