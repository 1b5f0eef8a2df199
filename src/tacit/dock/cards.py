"""The card of a learnware: Markdown below a YAML head, read without running or expanding it."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit._ground.lazy import install_with
from tacit.dock.errors import RefusedError
from tacit.dock.texts import check_text, check_texts
from tacit.documents import dumps

FENCE = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.S | re.M)
MOST_EVENTS, DEEPEST = 2000, 8
LONGEST_TITLE, LONGEST_WORD, MOST_TAGS = 200, 40, 20
WORD = re.compile(r"[\w][\w .+-]*")


@dataclass(frozen=True)
class Card:
    """What a developer says of a learnware.

    Attributes:
        title: one line.
        modality: such as ``"image"`` or ``"text"``; empty where the head says none.
        tags: words to filter by.
        head: the whole YAML head, JSON-able.
        text: the Markdown below it.
        source: all of it, as it came.
    """

    title: str
    modality: str
    tags: tuple[str, ...]
    head: Mapping[str, Any]
    text: str
    source: str


def read_card(content: bytes) -> Card:
    """Return the card of a file's bytes.

    Args:
        content: UTF-8 text: a head between two lines ``---`` with a ``title``, and Markdown.

    Raises:
        RefusedError: it is no such text, or the head holds aliases, tags of YAML, more than 8
            levels or a name twice (422).

    Example:
        >>> read_card(b"---\\ntitle: Digits\\ntags: [mnist]\\n---\\nTells digits apart.\\n").tags
        ('mnist',)
    """
    try:
        source = content.decode("utf-8")
    except UnicodeDecodeError:
        raise RefusedError(422, "card: expected UTF-8 text") from None
    check_text("card", source)
    found = FENCE.match(source)
    if found is None:
        raise RefusedError(422, "card: expected a YAML head between two lines of ---, got none")
    head = _head(found[1])
    check_texts("card", head)
    title = _line("title", head.get("title"), LONGEST_TITLE)
    modality = head.get("modality", "")
    tags = head.get("tags", [])
    if not isinstance(tags, list) or len(tags) > MOST_TAGS:
        raise RefusedError(422, f"card: expected tags as a list of at most {MOST_TAGS} words")
    return Card(
        title=title,
        modality=_word("modality", modality) if modality else "",
        tags=tuple(dict.fromkeys(_word("tags", tag) for tag in tags)),
        head=head,
        text=source[found.end() :],
        source=source,
    )


def _head(text: str) -> dict[str, Any]:
    try:
        import yaml
    except ModuleNotFoundError:
        raise ImportError(f"reading cards needs pyyaml: {install_with('dock')}") from None
    try:
        _check_events(yaml, text)
        head = yaml.load(text, Loader=_loader(yaml))
        if not isinstance(head, dict):
            raise RefusedError(422, "card: expected a head of names and values")
        # what JSON cannot hold, such as not-a-number, is refused; dates become text
        dumps(plain := _plain(head))
    except RefusedError:
        raise
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = "" if where is None else f" in line {where.line + 2}"
        raise RefusedError(422, f"card: the head is not plain YAML{line}") from None
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise RefusedError(422, "card: the head holds a value that JSON cannot hold") from None
    return dict(plain)


def _check_events(yaml: Any, text: str) -> None:
    """Refuse aliases, which multiply, tags, depth and length before anything is built."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise RefusedError(422, "card: expected a head without anchors and aliases")
        if getattr(event, "tag", None):
            raise RefusedError(422, "card: expected a head without tags of YAML")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST or count > MOST_EVENTS:
            raise RefusedError(
                422, f"card: expected a head of at most {DEEPEST} levels and {MOST_EVENTS} parts"
            )


def _loader(yaml: Any) -> Any:
    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            names = [self.construct_object(key, deep=True) for key, _ in node.value]
            if not all(isinstance(name, str) for name in names):
                raise RefusedError(422, "card: expected a head whose names are text")
            if len(set(names)) < len(names):
                raise RefusedError(422, "card: expected a head that has every name once")
            return super().construct_mapping(node, deep=deep)

    return Loader


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_plain(held) for held in value]
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise TypeError


def _line(name: str, value: Any, longest: int) -> str:
    if not isinstance(value, str) or not value.strip() or len(value.splitlines()) > 1:
        raise RefusedError(422, f"card: expected {name} in the head as one line of text")
    return check_text(f"card: {name}", value.strip(), longest=longest)


def _word(name: str, value: Any) -> str:
    if not isinstance(value, str) or not WORD.fullmatch(value) or len(value) > LONGEST_WORD:
        raise RefusedError(
            422, f"card: expected {name} of letters and digits, at most {LONGEST_WORD} characters"
        )
    return value.strip().lower()
