"""The card of a learnware: Markdown below a YAML head, read without running or expanding it."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tacit._ground.lazy import install_with
from tacit.documents import dumps
from tacit_dock.errors import RefusedError
from tacit_dock.texts import check_text, check_texts

FENCE = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.S | re.M)
MOST_EVENTS, DEEPEST = 2000, 8
LONGEST_TITLE, LONGEST_WORD, MOST_TAGS = 200, 100, 64
WORD = re.compile(r"[\w][\w .+:/-]*")
# The signs that may close a heading are taken off afterwards: no sign can be read in two ways.
HEADING = re.compile(r"^#[ \t]+(\S.*)$", re.M)
# What a card says beside its tags, kept among them as NAME=VALUE, which no tag is.
MARKS, MARK = ("license", "language", "task"), "="
MODALITIES = ("image", "text", "audio", "video", "tabular")


@dataclass(frozen=True)
class Card:
    """What a developer says of a learnware.

    Attributes:
        title: one line.
        modality: such as ``"image"`` or ``"text"``; empty where the head says none.
        tags: words to filter by.
        marks: license, languages and task, each as NAME=VALUE.
        head: the whole YAML head, JSON-able.
        text: the Markdown below it.
        source: all of it, as it came.
    """

    title: str
    modality: str
    tags: tuple[str, ...]
    marks: tuple[str, ...]
    head: Mapping[str, Any]
    text: str
    source: str


def read_card(content: bytes) -> Card:
    """Return the card of a file's bytes.

    Args:
        content: UTF-8 text: a head between two lines ``---``, and Markdown. A card of Hugging Face
            is one: where there is no ``title``, that is the name in its ``model-index`` or its
            first heading; ``modality`` is then that of its ``pipeline_tag``.

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
    text = source[found.end() :]
    title = _line("title", head.get("title", _named(head, text)), LONGEST_TITLE)
    task = head.get("task", head.get("pipeline_tag")) or ""
    modality = head.get("modality", _modality_of(task))
    tags = head.get("tags") or []
    if not isinstance(tags, list) or len(tags) > MOST_TAGS:
        raise RefusedError(422, f"card: expected tags as a list of at most {MOST_TAGS} words")
    return Card(
        title=title,
        modality=_word("modality", modality) if modality else "",
        tags=tuple(dict.fromkeys(_word("tags", tag) for tag in tags)),
        marks=tuple(dict.fromkeys(_marks(head, task))),
        head=head,
        text=text,
        source=source,
    )


def mark(kind: str, value: str) -> str:
    """Return a license, language or task as it is kept among the tags."""
    return f"{kind}{MARK}{value.lower()}"


def unmarked(kind: str, tags: Iterable[str]) -> tuple[str, ...]:
    """Return the values of one kind among tags and marks."""
    start = mark(kind, "")
    return tuple(tag.removeprefix(start) for tag in tags if tag.startswith(start))


def _marks(head: Mapping[str, Any], task: Any) -> Iterator[str]:
    for kind, value in (("license", head.get("license")), ("language", head.get("language")),
                        ("task", task)):  # fmt: skip
        values = value if isinstance(value, list) else [value]
        if len(values) > MOST_TAGS:
            raise RefusedError(422, f"card: expected {kind} as at most {MOST_TAGS} words")
        # YAML reads the language no as a truth value
        words = ["no" if one is False and kind == "language" else one for one in values]
        yield from (mark(kind, _word(kind, word)) for word in words if word)


def _named(head: Mapping[str, Any], text: str) -> Any:
    """Return the name of the first model in a head of Hugging Face, or the first heading."""
    index = head.get("model-index")
    first = index[0] if isinstance(index, list) and index else None
    name = first.get("name") if isinstance(first, Mapping) else None
    if name:
        return name
    heading = HEADING.search(text)
    return None if heading is None else heading[1].rstrip(" \t\r#")[:LONGEST_TITLE]


def _modality_of(task: Any) -> str:
    """Return the modality that a task begins with, such as that of image-classification."""
    words = str(task).lower().split("-")
    return next((word for word in words if word in MODALITIES), "")


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
