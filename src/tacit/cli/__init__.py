"""The ``tacit`` command."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tacit import __version__
from tacit.cli import classifier, gate, ledger, show, statistic
from tacit.cli.account import commands as account
from tacit.cli.hidden import audit
from tacit.cli.hidden import commands as hidden

# UsageError's base: what every wrong flag, value or file raises, whichever parser typer brings
PARSER_ERROR: type[Exception] = typer.BadParameter.__mro__[2]

INTERRUPTED, CLOSED = 130, 141

app = typer.Typer(
    name="tacit",
    help="Decide what a release says, prove it, attack it before you ship it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("statistic")(statistic.statistic)
app.command("classifier")(classifier.classifier)
app.command("gate")(gate.gate)
app.command("show")(show.show)
app.add_typer(account.app, name="account")
app.add_typer(audit.app, name="audit")
app.add_typer(hidden.app, name="hidden")
app.add_typer(ledger.app, name="ledger")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"tacit {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: exit 0 when done, 1 when a gate is crossed, 2 on bad input."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; bad input is one sentence on standard error."""
    try:
        code = app(arguments, prog_name="tacit", standalone_mode=False)
    except PARSER_ERROR as error:
        return _refuse(_parser_sentence(error, arguments))
    except ValueError as error:
        return _refuse(str(error))
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except BrokenPipeError:
        return CLOSED
    except SystemExit as stop:
        # the parser and the console turn a reader that went away into an exit of 1
        if not isinstance(stop.__context__, BrokenPipeError):
            raise
        return CLOSED
    if code == INTERRUPTED:
        print("tacit: interrupted", file=sys.stderr)
    return code if isinstance(code, int) else 0


def _parser_sentence(error: Exception, arguments: list[str]) -> str:
    # the message alone does not name the flag; format_message does, in every parser typer brings
    sentence = str(getattr(error, "format_message", error.__str__)())
    for flag in getattr(getattr(error, "param", None), "opts", ()):
        if flag in arguments[:-1]:
            return f"{sentence}, got {arguments[arguments.index(flag) + 1]!r}"
    return sentence


def _refuse(sentence: str) -> int:
    # a command given nothing at all has shown its help and has no sentence
    if sentence:
        print(f"tacit: {' '.join(sentence.split())}", file=sys.stderr)
    return 2
