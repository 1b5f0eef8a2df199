"""The commands of ``tacit dock``."""

from __future__ import annotations

import typer

from tacit.cli.dock import asking, records, token
from tacit.cli.dock.seeding import seed
from tacit.cli.dock.serving import serve

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
