"""A group whose own flags are those of one of its commands: what is given no name runs that one."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

# No file that is a table is called so, nor is any command.
UNNAMED = "/"


class WithDefault(TyperGroup):
    """Commands by name, and ``UNNAMED`` for arguments that do not begin with one of them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command in front that is not named."""
        named = bool(args) and args[0] in self.commands and args[0] != UNNAMED
        return super().parse_args(ctx, args if named else [UNNAMED, *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command, which has no name in its usage where it was not named."""
        name, command, rest = super().resolve_command(ctx, args)
        return ("" if name == UNNAMED else name), command, rest

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names that may be given."""
        return [name for name in super().list_commands(ctx) if name != UNNAMED]
