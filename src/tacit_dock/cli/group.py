"""The commands of ``tacit dock``."""

from __future__ import annotations

import typer

from tacit_dock.cli import asking, records, token
from tacit_dock.cli.seeding import seed
from tacit_dock.cli.serving import serve

app = typer.Typer(
    help="Keep learnwares, and find one by the specification of a task.", no_args_is_help=True
)
app.command("serve")(serve)
app.command("seed")(seed)
app.command("submit")(asking.submit)
app.command("search")(asking.search)
app.command("fetch")(asking.fetch)
app.command("withdraw")(asking.withdraw)
app.command("list")(asking.show)
app.command("admit")(records.admit)
app.command("log")(records.log)
app.command("move")(records.move)
app.add_typer(token.app, name="token")
