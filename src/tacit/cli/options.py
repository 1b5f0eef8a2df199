"""Flags that several commands share, and one for every field of the values a command takes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, Protocol, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from tacit._ground.values import Flag, Spelled, field_kinds, is_value, told, words_of

# What the library calls by another name than the flag.
SPELLED = {"held_out": "measured", "name_or_path": "model"}

Json = Annotated[
    str | None,
    typer.Option("--json", metavar="PATH", help="JSON to write; - for standard output."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Print the guarantees and the errors to expect (--json writes them); draw nothing.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--insecure-seed",
        help="Make the draw repeatable, for tests alone: this voids the guarantee.",
    ),
]
Attacked = Annotated[bool, typer.Option(help="Attack simulated releases and measure.")]
Report = Annotated[str | None, typer.Option(help="HTML report to write.")]
Certificate = Annotated[
    str | None,
    typer.Option(
        help="HTML page to publish beside the release, without what is for its holder alone."
    ),
]
LedgerFile = Annotated[
    str | None, typer.Option(help="Ledger to spend from: a file or a database URL.")
]
Secret = Annotated[
    str | None, typer.Option(help="Name in the ledger; the rows' fingerprint when left out.")
]
NoBudget = Annotated[
    bool,
    typer.Option(
        "--no-budget", help="Release though the secret has no budget and others have one."
    ),
]


@dataclass(frozen=True)
class Chosen:
    """Beside an argument that is one of several values: the flag that says which by its ``word``.

    Attributes:
        flag: its name.
        default: the word when it is left out.
        help: what it chooses; the first line of every value follows.
        kinds: the values, where they are not those of the annotation.
    """

    flag: str
    default: str
    help: str
    kinds: tuple[Any, ...] = ()


class Only(tuple[str, ...]):
    """Beside an argument that is a value: the fields of it that the command has."""

    __slots__ = ()

    def __new__(cls, *names: str) -> Only:
        """Return the names given."""
        return super().__new__(cls, names)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one flag for every field of the values and dataclasses among its arguments.

    The help of a value's field is its line in the ``Args:`` of the value, its range and its default
    are the value's own, and a refusal names the flag in place of the argument.
    """
    hints = get_type_hints(command, include_extras=True)
    takers: dict[str, tuple[_Taker, list[str]]] = {}
    flags: dict[str, inspect.Parameter] = {}
    for parameter in inspect.signature(command).parameters.values():
        taker = _taker(hints[parameter.name])
        if taker is None:
            flags[parameter.name] = _flag(parameter.name, parameter.default, hints[parameter.name])
            continue
        own = taker.flags()
        takers[parameter.name] = taker, [flag.name for flag in own]
        for flag in own:
            if flag.name in flags:
                raise TypeError(f"{command.__name__}: --{flag.name} is taken twice")
            flags[flag.name] = flag

    # the first word given to typer.Option stands where it has its default
    options = {
        name: next(
            (
                word
                for word in (note.default, *(note.param_decls or ()))
                if isinstance(word, str) and word[:2] == "--"
            ),
            flag_of(name),
        )
        for name, flag in flags.items()
        if (note := _note(getattr(flag.annotation, "__metadata__", ()), OptionInfo)) is not None
    }

    @wraps(command)
    def whole(**given: Any) -> None:
        for name, (taker, own) in takers.items():
            given[name] = taker.made({flag: given.pop(flag) for flag in own})
        try:
            command(**given)
        except ValueError as error:
            names, colon, rest = str(error).partition(":")
            flags_named = _flags_named(names.split(", "), options)
            if colon and flags_named:
                error.args = (f"{flags_named}:{rest}",)
            raise

    whole.__annotations__ = {flag.name: flag.annotation for flag in flags.values()}
    whole.__signature__ = inspect.Signature(list(flags.values()))  # type: ignore[attr-defined]
    return whole


def _flags_named(names: Sequence[str], options: Mapping[str, str]) -> str:
    """Return the flags that a message of the library names by arguments; "" where one is none.

    Example:
        >>> _flags_named(["bank", "held_out"], {"bank": "--bank", "measured": "--measured"})
        '--bank, --measured'
    """
    spelled = [(name, name.removesuffix("s"), SPELLED.get(name, "")) for name in names]
    found = [next((options[one] for one in each if one in options), "") for each in spelled]
    return ", ".join(found) if all(found) else ""


def flag_of(name: str, notes: Sequence[Any] = ()) -> str:
    """Return how a field is spelled on the command line."""
    own = next((note.name for note in notes if isinstance(note, Flag)), None)
    return own or f"--{name.replace('_', '-')}"


class _Taker(Protocol):
    """What takes the flags of one argument of a command and makes its value."""

    def flags(self) -> list[inspect.Parameter]: ...

    def made(self, given: Mapping[str, Any]) -> Any: ...


@dataclass(frozen=True)
class _Plain(_Taker):
    """A dataclass whose annotations are options already."""

    kind: Any

    def flags(self) -> list[inspect.Parameter]:
        hints = get_type_hints(self.kind, include_extras=True)
        return [
            _flag(
                field.name,
                inspect.Parameter.empty if field.default is MISSING else field.default,
                self._panelled(hints[field.name]),
            )
            for field in fields(self.kind)
        ]

    def _panelled(self, hint: Any) -> Any:
        """Return an annotation whose option stands in the group's own part of the help."""
        panel = getattr(self.kind, "panel", None)
        if panel is None:
            return hint
        notes = [copy(note) for note in hint.__metadata__]
        for note in notes:
            # an argument stands among the arguments
            if isinstance(note, OptionInfo):
                note.rich_help_panel = panel
        return Annotated[hint.__origin__, *notes]

    def made(self, given: Mapping[str, Any]) -> Any:
        return self.kind(**given)


@dataclass(frozen=True)
class _Valued(_Taker):
    """One value, or one of several that a flag chooses; what several share is one flag."""

    kinds: tuple[Any, ...]
    chosen: Chosen | None
    only: Only

    def flags(self) -> list[inspect.Parameter]:
        found = {} if self.chosen is None else {"chosen": self._chooser(self.chosen)}
        for kind in self.kinds:
            for name in self.only or field_kinds(kind):
                found.setdefault(name, self._field(kind, name))
        return [flag.replace(name=_name(key, self.chosen)) for key, flag in found.items()]

    def made(self, given: Mapping[str, Any]) -> Any:
        kind = self._kind(given)
        known = field_kinds(kind)
        some = {
            name: value
            for name, value in given.items()
            if value not in (None, [], ()) and name != _name("chosen", self.chosen)
        }
        for name in some:
            if name not in known:
                raise ValueError(self._stray(kind, name))
        for name in some:
            spelled = _note(known[name][1], Spelled)
            if spelled is not None:
                try:
                    some[name] = spelled.read(some[name])
                except ValueError as error:
                    raise ValueError(f"{flag_of(name, known[name][1])}: {error}") from None
        try:
            return kind(**some)
        except ValueError as error:
            name, _, rest = str(error).partition(":")
            if name in known:
                # "exactly one of nats and success" are flags here
                before, one_of, listed = rest.partition("exactly one of ")
                for other, (_, notes) in known.items():
                    spelled = flag_of(other, notes)
                    before = re.sub(rf"(?<= beside ){other}(?!\w)", spelled, before)
                    listed = re.sub(rf"(?<![\w-]){other}(?!\w)", spelled, listed)
                flag = flag_of(name, known[name][1])
                raise ValueError(f"{flag}:{before}{one_of}{listed}") from None
            raise

    def _kind(self, given: Mapping[str, Any]) -> Any:
        if self.chosen is None:
            return self.kinds[0]
        word = given[_name("chosen", self.chosen)]
        named = {kind.word: kind for kind in self.kinds}
        if word not in named:
            from tacit._ground.checks import choice

            # refuses, and names the word that is nearest
            choice(self.chosen.flag, word, list(named))
        return named[word]

    def _stray(self, kind: Any, name: str) -> str:
        owner = next(one for one in self.kinds if name in field_kinds(one))
        has = ", ".join(flag_of(one, notes) for one, (_, notes) in field_kinds(kind).items())
        where = "" if self.chosen is None else f"{self.chosen.flag} {kind.word} "
        flag = flag_of(name, field_kinds(owner)[name][1])
        return f"{flag}: {where}has none ({_first_line(kind)}); it has {has}"

    def _chooser(self, chosen: Chosen) -> inspect.Parameter:
        each = "; ".join(f"{kind.word}: {_first_line(kind)}" for kind in self.kinds)
        words = [kind.word for kind in self.kinds]
        option = typer.Option(
            chosen.flag,
            help=f"{chosen.help} {each}.",
            metavar="|".join(words),
            autocompletion=lambda: words,
            rich_help_panel=self.panel,
        )
        return _flag("chosen", chosen.default, Annotated[str, option])

    def _field(self, kind: Any, name: str) -> inspect.Parameter:
        base, notes = field_kinds(kind)[name]
        spelled = _note(notes, Spelled)
        own = next(field for field in fields(kind) if field.name == name)
        # of one kind a field without a default must be given; of several it may be another's
        needed = self.chosen is None and own.default is own.default_factory is MISSING
        every = _words_of_all(self.kinds, name) if words_of(base) else ()
        metavar = "|".join(every) if every else None if spelled is None else spelled.metavar
        repeated = " May be repeated." if spelled is not None and spelled.repeated else ""
        option = typer.Option(
            *([flag_of(name, notes)] if base is not bool or _note(notes, Flag) else []),
            help=f"{self._help(name)}{repeated}",
            show_default=False,
            metavar=metavar,
            autocompletion=(lambda: list(every)) if every else None,
            rich_help_panel=self.panel,
        )
        kind_of_flag: Any = base if base in (int, float, bool) and spelled is None else str
        if spelled is not None and spelled.repeated:
            return _flag(name, None, Annotated[list[str] | None, option])
        if needed:
            return _flag(name, inspect.Parameter.empty, Annotated[kind_of_flag, option])
        return _flag(name, None, Annotated[kind_of_flag | None, option])

    def _help(self, name: str) -> str:
        """Return what the values say of a field, by their words where not all say the same."""
        said: dict[str, list[str]] = {}
        owners = [kind for kind in self.kinds if name in field_kinds(kind)]
        for kind in owners:
            text = _spelled(told(kind)[name], kind)
            said.setdefault(text, []).append("" if self.chosen is None else kind.word)
        if len(said) == 1 and len(owners) == len(self.kinds):
            return next(iter(said))
        # rows and table; rows, table and draw
        named = {
            text: " and ".join([", ".join(words[:-1]), words[-1]][len(words) < 2 :])
            for text, words in said.items()
        }
        return " ".join(f"{words}: {text}" for text, words in named.items())

    @property
    def panel(self) -> str | None:
        """The group of help in which the flags stand."""
        return getattr(self.kinds[0], "panel", None) or (
            "Promise" if self.chosen is not None else self.kinds[0].__name__
        )


def _spelled(text: str, kind: Any) -> str:
    """Return what is said of a field with the flags of others in place of their names."""
    for name, (_, notes) in field_kinds(kind).items():
        # a word of one part is one of the language too, but for what stands beside something
        where = r"(?<![\w-])" if "_" in name else r"(?:(?<= with )|(?<= beside ))"
        text = re.sub(rf"{where}{name}(?![\w-])", flag_of(name, notes), text)
    return text


def _taker(kind: Any) -> _Taker | None:
    notes: tuple[Any, ...] = ()
    if get_origin(kind) is Annotated:
        kind, notes = kind.__origin__, kind.__metadata__
    chosen = _note(notes, Chosen)
    parts = (kind,) if chosen is None else chosen.kinds or get_args(kind)
    if parts and all(isinstance(part, type) and is_value(part) for part in parts):
        return _Valued(tuple(parts), chosen, _note(notes, Only) or Only())
    return _Plain(kind) if is_dataclass(kind) else None


def _name(key: str, chosen: Chosen | None) -> str:
    if key != "chosen" or chosen is None:
        return key
    return chosen.flag.removeprefix("--").replace("-", "_")


def _note(notes: Sequence[Any], kind: type[Any]) -> Any:
    return next((note for note in notes if isinstance(note, kind)), None)


def _words_of_all(kinds: Sequence[Any], name: str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for kind in kinds:
        if name in field_kinds(kind):
            found |= dict.fromkeys(words_of(field_kinds(kind)[name][0]) or ())
    return tuple(found)


def _first_line(kind: Any) -> str:
    line = (inspect.getdoc(kind) or "").splitlines()[0].rstrip(".")
    return line[0].lower() + line[1:]


def _flag(name: str, default: Any, kind: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
