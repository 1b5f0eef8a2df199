"""The ``tacit`` command."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO, TextIOWrapper
from typing import Annotated, Any

import typer

from tacit import __version__
from tacit.cli.console import harmless
from tacit.cli.hooks import CONTEXT, Commands
from tacit.cli.output import ARGUMENTS
from tacit.cli.refusals import parser_sentence
from tacit.statistics.user_code import QueryError, QueryWarning

# UsageError's base: what every wrong flag, value or file raises, whichever parser typer brings
PARSER_ERROR: type[Exception] = typer.BadParameter.__mro__[2]

REFUSED, QUERY_FAILED, INTERRUPTED, CLOSED = 2, 3, 130, 141

app = typer.Typer(
    name="tacit",
    cls=Commands,
    help="Decide what a release says, prove it, attack it before you ship it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)


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
    """Run the command line and exit with the code of ``run``."""
    _make_speakable()
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def _make_speakable() -> None:
    """Have what was drawn told whatever the output is: it was paid for."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # closed by the caller
            setattr(sys, name, StringIO())
        elif isinstance(stream, TextIOWrapper):
            # a character that its encoding lacks is escaped
            stream.reconfigure(errors="backslashreplace")


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code.

    0 when done, 1 when a gate is crossed, 2 on bad input or an output that cannot be written, 3
    when the caller's own query failed, 130 when interrupted, 141 when whoever reads the output
    closed it; one sentence on standard error tells which.
    """
    ARGUMENTS.set(tuple(arguments))
    try:
        with _warnings_told():
            code = app(arguments, prog_name="tacit", standalone_mode=False)
        sys.stdout.flush()
    except PARSER_ERROR as error:
        return _refuse(parser_sentence(error, arguments))
    except QueryError as error:
        told = f" ({error.detail})" if "--show-values" in arguments and error.detail else ""
        return _refuse(f"{error}{told}", QUERY_FAILED)
    except ValueError as error:
        return _refuse(str(error))
    except ArithmeticError as error:
        # a claim that is proved false is said; a division by zero is a fault with its trace
        if type(error) is not ArithmeticError:
            raise
        return _refuse(str(error))
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except BrokenPipeError:
        return _closed()
    except SystemExit as exit_:
        # help is printed by rich's own console, which exits with 1 there
        if not isinstance(exit_.__context__, BrokenPipeError):
            raise
        return _closed()
    except OSError as error:
        _discard_output()
        where = f" {error.filename}" if error.filename else ""
        return _refuse(f"cannot read or write{where or ' the output'} ({error.strerror or error})")
    if code == INTERRUPTED:
        print("tacit: interrupted", file=sys.stderr)
    return code if isinstance(code, int) else 0


@contextmanager
def _warnings_told() -> Iterator[None]:
    """Print what the caller's own query warned of as one sentence, once."""
    usual, told = warnings.showwarning, set[str]()

    def tell(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
        if not issubclass(category, QueryWarning):
            usual(message, category, *rest, **named)
        elif str(message) not in told:
            told.add(str(message))
            print(f"tacit: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = tell
        yield


def _closed() -> int:
    _discard_output()
    return CLOSED


def _discard_output() -> None:
    """Send what is still to be written nowhere: the interpreter would try once more at its end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        # a stream that has no file has nothing pending
        return


def _refuse(sentence: str, code: int = REFUSED) -> int:
    # a command given nothing at all has shown its help and has no sentence
    if sentence:
        print(f"tacit: {harmless(' '.join(sentence.split()))}", file=sys.stderr)
    return code
