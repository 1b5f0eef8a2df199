"""``tacit dock token``: who may submit."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from tacit.cli.console import consoles, line
from tacit_dock.cli.place import FOLDER, Database, Folder, open_store

app = typer.Typer(help="Make, list and end the tokens of developers.", no_args_is_help=True)


@app.command()
def create(
    developer: Annotated[str, typer.Argument(help="Who it is for, such as vision-team.")],
    *,
    days: Annotated[int, typer.Option(help="After which it expires.")] = 365,
    folder: Folder = FOLDER,
    database: Database = None,
) -> None:
    """Make a token and print it, once: the dock keeps its SHA-256 alone."""
    with open_store(folder, database, create=True) as store:
        token, made = store.create_token(developer, days=days)
    told = consoles(True)
    line(told, "token", f"number {made.number} of {made.developer}, until {made.expires[:10]}")
    # standard output is the token alone, so that a script can keep it
    typer.echo(token)


@app.command("list")
def show(*, folder: Folder = FOLDER, database: Database = None) -> None:
    """List every token that was made, never the secret."""
    with open_store(folder, database, create=False) as store:
        tokens = store.tokens()
    console = consoles(False)
    if not tokens:
        console.print("No token was made yet.")
    for held in tokens:
        state = "holds" if held.holds else "revoked" if held.revoked else "expired"
        text = f"{held.number:>4}  {held.developer:<24}  {state:<8}  until {held.expires[:10]}"
        console.print(Text(text, "" if held.holds else "dim"))


@app.command()
def revoke(
    number: Annotated[int, typer.Argument(help="Number of the token in the list.")],
    *,
    folder: Folder = FOLDER,
    database: Database = None,
) -> None:
    """End a token now; what it submitted stays."""
    with open_store(folder, database, create=False) as store:
        held = store.revoke_token(number)
    line(consoles(False), "revoked", f"number {held.number} of {held.developer}")
