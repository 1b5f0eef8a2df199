"""Parts of a page: paragraphs, lists, tables and figures, and the sections that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

Text = str | Markup
# Of a cell in a column of words.
WORDS = Markup(' class="text"')


@dataclass(frozen=True)
class Section:
    """A part of a page under a heading of its own.

    Attributes:
        title: the heading.
        body: what stands under it.
        across: whether it may be wider than the text.
    """

    title: str
    body: Markup
    across: bool = False


@dataclass(frozen=True, kw_only=True)
class Sections:
    """What a kind of release shows on its page beside what all releases show.

    Attributes:
        parts: its sections, in order.
        lead: what to do, below the title; the conditions that all releases have when empty.
        rest: what follows it.
        instead: whether the parts stand in place of the figures, numbers, use and attacks that
            all releases show.
        style: CSS of its parts.
        randomness: where that of a measurement comes from, which draws nothing that is released.
    """

    parts: tuple[Section, ...] = ()
    lead: str = ""
    rest: str = ""
    instead: bool = False
    style: Text = ""
    randomness: str = ""


def joined(*parts: Markup | None) -> Markup:
    """Return parts one after the other; None is left out."""
    return Markup("\n").join(part for part in parts if part is not None)


def paragraph(text: Text, kind: str = "") -> Markup:
    """Return a paragraph; ``kind`` is its class, such as ``"aside"``."""
    if not kind:
        return Markup("<p>{}</p>").format(text)
    return Markup('<p class="{}">{}</p>').format(kind, text)


def bullets(lines: Sequence[Text]) -> Markup:
    """Return a list."""
    return (
        Markup("<ul>")
        + Markup("").join(Markup("<li>{}</li>").format(line) for line in lines)
        + Markup("</ul>")
    )


def figure(wide: Markup, narrow: Markup, caption: Text) -> Markup:
    """Return a figure: one drawing for screens that are wide, one for those that are not."""
    return Markup(
        '<figure><div class="wide">{}</div><div class="narrow">{}</div>'
        "<figcaption>{}</figcaption></figure>"
    ).format(wide, narrow, caption)


def table(
    name: str, head: Sequence[Text], rows: Sequence[Sequence[Text]], kind: str = ""
) -> Markup:
    """Return a table that scrolls by itself where it is wider than the screen.

    Args:
        name: what it shows, for who cannot see it.
        head: headings of the columns; none for a table of two columns that needs none.
        rows: cells, the first of each row its heading.
        kind: its class: ``"numbers"`` folds into blocks on a narrow screen.

    A column of words starts at the left, one of numbers ends at the right.
    """
    top, wordy = Markup(""), [_words([row[place] for row in rows]) for place in range(len(head))]
    if head:
        cells = Markup("").join(
            Markup('<th scope="col"{}>{}</th>').format(WORDS if in_words else "", one)
            for one, in_words in zip(head, wordy, strict=True)
        )
        top = Markup("<thead><tr>{}</tr></thead>").format(cells)
    width = max(map(len, rows), default=0)
    labels = [*head[1:], *[""] * width]
    marks = [WORDS if in_words else Markup("") for in_words in [*wordy[1:], *[False] * width]]
    body = Markup("").join(
        Markup('<tr><th scope="row">{}</th>{}</tr>').format(
            row[0],
            Markup("").join(
                Markup('<td{} data-label="{}">{}</td>').format(mark, label, cell)
                for mark, label, cell in zip(marks, labels, row[1:], strict=False)
            ),
        )
        for row in rows
    )
    return Markup(
        '<div class="scroll" tabindex="0" role="region" aria-label="table: {}">'
        '<table class="{}">{}<tbody>{}</tbody></table></div>'
    ).format(name, kind, top, body)


def _words(cells: Sequence[Text]) -> bool:
    """Whether a column is of words: every cell starts with a letter, or holds nothing."""
    starts = [Markup(cell).striptags()[:1] for cell in cells]
    return any(starts) and all(not one or one.isalpha() for one in starts)


def folded(summary: str, body: Markup) -> Markup:
    """Return what is shown when its summary is opened."""
    return Markup("<details><summary>{}</summary>{}</details>").format(summary, body)
