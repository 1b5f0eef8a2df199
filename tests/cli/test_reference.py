"""The page of the commands says what they say, and every option that a text names exists."""

import ast
import re
import runpy
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.test_docs import OWN_WORDS, words_of_the_field

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/command-line.md"
WRITER = runpy.run_path(str(ROOT / "docs/commands.py"))
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
# Options that every command has, and those of other programs.
OTHERS = {"--help", "--version", "--install-completion", "--show-completion"}
FOREIGN = {
    "--thorough": "pytest",
    "--no-deps": "pip",
    "--index-url": "pip",
    "--extra-index-url": "pip",
    "--engine": "benchmarks",
    "--learnwares": "benchmarks",
    "--fast": "experiments",
    "--path": "chroma",
}


@cache
def options() -> dict[str, set[str]]:
    """Return the options of every command by its path, as its help spells them."""
    return {
        command.path: set(OPTION.findall(" ".join(flag.name for flag in command.flags)))
        for command in WRITER["commands"]()
    }


def known_to(words: list[str]) -> set[str]:
    """Return the options of the command that words name, or of all of the group they name."""
    every = options()
    for count in range(min(len(words), 3), -1, -1):
        path = " ".join(words[:count])
        below = [own for name, own in every.items() if name == path or name.startswith(f"{path} ")]
        if count and path in every:
            return every[path] | OTHERS
        if count and below:
            return set().union(*below) | OTHERS
    return set().union(*every.values()) | OTHERS


def shown(text: str) -> list[str]:
    """Return every call of tacit in code, continued lines joined and comments left out."""
    joined = re.sub(r"\\\n\s*", " ", text)
    spans = re.findall(r"(?<!`)`(tacit [^`]+)`(?!`)", joined)
    blocks = re.findall(r"```[^\n]*\n(.*?)```", joined, flags=re.S)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    calls = [*spans, *(line.removeprefix("$ ").removeprefix("- run: ") for line in lines)]
    return [re.split(r"\s#|&&|\|", call)[0] for call in calls if call.startswith("tacit ")]


def strays(text: str) -> list[str]:
    """Return the calls in a text with an option that their command has not."""
    found = []
    for call in shown(text):
        words = call.split()[1:]
        named = [word for word in words if re.fullmatch(r"[a-z][a-z-]*", word)]
        unknown = set(OPTION.findall(call)) - known_to(named)
        if unknown:
            found.append(f"{call}: {sorted(unknown)}")
    return found


def test_the_page_says_what_help_says():
    """``make reference`` writes it again."""
    assert PAGE.read_text("utf-8") == WRITER["page"]()


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.name)
def test_every_option_of_a_page_exists_on_the_command_it_is_shown_with(page):
    text = page.read_text("utf-8")
    assert strays(text) == []
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    spans = [span for span in re.findall(r"`([^`]+)`", prose) if span.startswith("--")]
    named = {option for span in spans for option in OPTION.findall(span)}
    assert named - known_to([]) - set(FOREIGN) == set()


def test_every_option_that_the_library_names_exists():
    """Messages such as "use --epsilon", and calls of tacit that a message shows whole."""
    unknown = []
    sources = {path: path.read_text("utf-8") for path in (ROOT / "src").glob("tacit*/**/*.py")}
    for path in sorted(path for path, text in sources.items() if OPTION.search(text)):
        for node in ast.walk(ast.parse(sources[path])):
            if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
                continue
            named = set(OPTION.findall(node.value)) - known_to([]) - set(FOREIGN)
            unknown += [(path.name, node.lineno, sorted(named))] if named else []
            calls = re.findall(r"tacit [a-z]+ [a-z]+[^`'\"\n:;,]*", node.value)
            unknown += [
                (path.name, node.lineno, stray) for stray in strays(f"`{'`  `'.join(calls)}`")
            ]
    assert unknown == []


def test_an_own_word_in_help_has_the_word_of_the_field_at_its_first_use():
    bare = []
    for command in WRITER["commands"]():
        told = " ".join(
            [command.text, *(flag.text for flag in (*command.arguments, *command.flags))]
        )
        for own, forms in OWN_WORDS.items():
            first = re.search(rf"(?<![\w-])(?:{forms})(?![\w'’-])", told)
            if first and not told[first.end() :].startswith(f" ({words_of_the_field()[own]}"):
                bare.append((command.path, own))
    assert bare == []


def test_an_option_of_another_command_is_found():
    assert strays("`tacit gate x.json --max-success 1`") == []
    assert strays("`tacit dock serve --max-success 1`")
    assert strays("```\ntacit statistic x.csv \\\n  --max-success 1\n```")


def test_every_extra_that_a_page_names_exists():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = set(project["optional-dependencies"])
    for page in TEXTS:
        text = page.read_text("utf-8")
        named = re.findall(r"(?:the\s+)?extras?\s+`([\w-]+)`", text)
        named += [
            name
            for group in re.findall(r"(?:tacit-privacy|\.)\[([\w,-]+)\]'", text)
            for name in group.split(",")
        ]
        assert set(named) <= extras, page
