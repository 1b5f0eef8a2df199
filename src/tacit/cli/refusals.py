"""What the parser of a command line refuses: the flag, what was expected, what came."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

# Flags of differential privacy, on commands whose promise is another one.
ELSEWHERE = {
    ("classifier", flag): "its promise is about the input: --success or --mi-budget bound it"
    for flag in ("--epsilon", "--delta", "--mu", "--rho")
} | {("session", "--report"): "its answers go to --json"}
# what the parser calls the values that are no number
NUMBERS = {"integer": "a whole number", "float": "a number"}


def parser_sentence(error: Exception, arguments: Sequence[str]) -> str:
    """Return what is wrong on a command line, from what the parser raised."""
    kind = type(error).__name__
    context: Any = getattr(error, "ctx", None)
    match kind:
        case "MissingParameter":
            return _missing(error, context, arguments)
        case "NoSuchOption":
            return _no_such_option(str(getattr(error, "option_name", "")), context, arguments)
        case "BadOptionUsage":
            flag = str(getattr(error, "option_name", ""))
            none = "does not take a value" in str(error)
            return f"{flag}: expected no value, got one" if none else _valueless(flag)
        case "BadParameter":
            return _bad_value(error, arguments)
    said = _said(error)
    if said.startswith("No such command") and hasattr(context.command, "list_commands"):
        return _no_such_command(said, context)
    if said.startswith("Got unexpected extra argument"):
        return _stray_words(said, context)
    return said


def _missing(error: Exception, context: Any, arguments: Sequence[str]) -> str:
    param: Any = getattr(error, "param", None)
    option = param.param_type_name == "option"
    name = param.opts[0] if option else (param.metavar or param.name).upper().strip("[].")
    told = _clause(getattr(param, "help", None))
    # a file that stands where this command takes flags alone is the one that is looked for
    words = arguments[len(context.command_path.split()) - 1 :]
    bare = words[0] if option and words and not words[0].startswith("-") else ""
    alone = bare and not any(one.param_type_name == "argument" for one in context.command.params)
    hint = f"; did you mean {name} {bare}?" if alone else ""
    return f"{name}: expected a value{f' ({told})' if told else ''}, got none{hint}"


def _valueless(flag: str) -> str:
    return f"{flag}: expected a value after it, got none"


def _no_such_option(flag: str, context: Any, arguments: Sequence[str]) -> str:
    from tacit._ground.checks import did_you_mean

    elsewhere = ELSEWHERE.get((arguments[0], flag)) if arguments else None
    if elsewhere is not None:
        return f"{flag}: {arguments[0]} has none; {elsewhere}"
    path, word = context.command_path.strip(), flag.lstrip("-")
    known = [option for param in context.command.params for option in param.opts]
    # a flag that begins so, where it is the only one, or one that is spelled nearly so
    begun = [option for option in known if option.startswith(flag)]
    near = f"; did you mean {begun[0]!r}?" if len(begun) == 1 else did_you_mean(flag, known)
    # compare stands beside statistic's flags, and is a command of its own
    group: Any = getattr(context.parent, "command", None)
    if hasattr(group, "list_commands") and word in group.list_commands(context.parent):
        near = f"; did you mean '{path} {word}'?"
    return f"{flag}: {path} has no such flag{near or f'; {path} --help lists what it has'}"


def _bad_value(error: Exception, arguments: Sequence[str]) -> str:
    from tacit._ground.checks import did_you_mean

    said = str(getattr(error, "message", error))
    flags = getattr(getattr(error, "param", None), "opts", ())
    flag, got = _given(flags, arguments)
    number = re.fullmatch(r".* is not a valid (integer|float)\.", said, re.DOTALL)
    if number is not None:
        return f"{flag}: expected {NUMBERS[number[1]]}, got {got!r}"
    choices = re.fullmatch(r"'(.*)' is not one of (.*)\.", said)
    if choices is None:
        # the message alone does not name the flag; format_message does
        return f"{_said(error)}, got {got!r}" if got else _said(error)
    options = re.findall("'([^']*)'", choices[2])
    near = did_you_mean(choices[1], options)
    return f"{flag}: expected one of {choices[2]}, got {choices[1]!r}{near}"


def _given(flags: Sequence[str], arguments: Sequence[str]) -> tuple[str, str]:
    """Return which of the spellings of a flag stands on the line, and the value beside it."""
    found = (flags[0] if flags else "ARGUMENT"), ""
    for place, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        # the last one counts where a flag stands twice
        if name in flags:
            found = name, value if equals else "".join(arguments[place + 1 : place + 2])
    return found


def _stray_words(said: str, context: Any) -> str:
    words = said.partition("(s) (")[2].removesuffix(")")
    taken = [one for one in context.command.params if one.param_type_name == "argument"]
    names = ", ".join((one.metavar or one.name).upper().strip("[].") for one in taken)
    expected = f"{names} alone beside flags" if names else "flags alone"
    several = "; quotes make one value of several words" if " " in words else ""
    return f"{context.command_path.strip()}: expected {expected}, got {words!r} too{several}"


def _no_such_command(said: str, context: Any) -> str:
    # of NumPy's floor: only where something is refused
    from tacit._ground.checks import did_you_mean

    names = context.command.list_commands(context)
    got = said.partition("'")[2].partition("'")[0]
    near = did_you_mean(got, names) or _in_a_group(context, got)
    return f"COMMAND: expected one of {', '.join(names)}, got {got!r}{near}"


def _in_a_group(context: Any, word: str) -> str:
    """Return the end of a sentence that names the commands called so in any group, or nothing."""
    root = context.find_root()
    found = []
    for name in root.command.list_commands(root):
        group = root.command.get_command(root, name)
        if hasattr(group, "list_commands") and word in group.list_commands(root):
            found.append(f"'tacit {name} {word}'")
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _clause(text: str | None) -> str:
    """Return the first sentence of a help text, as it stands within another sentence."""
    first = (text or "").partition(". ")[0].rstrip(".")
    return first[:1].lower() + first[1:] if first[1:2].islower() or first[1:2] == " " else first


def _said(error: Exception) -> str:
    """Return what a parser says of what it refuses."""
    return str(getattr(error, "format_message", error.__str__)())
