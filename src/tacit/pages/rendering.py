"""Templates of the pages, what all are rendered with, and the field's word beside ours in them."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup, escape

# Ours as the glossary has it, where it is found in text, and the field's word.
TERMS = (
    ("pool", re.compile(r"\bthe pool\b"), "data set"),
    ("law", re.compile(r"\blaw(?= of the noise\b)|\buniform law\b"), "distribution"),
    ("bank", re.compile(r"\bthe bank\b"), "candidate set"),
    ("factor", re.compile(r"\b[Tt]he factor\b"), "multiplicative leakage"),
    ("drawn", re.compile(r"\b(?:was|were) drawn\b"), "sampled"),
    ("record", re.compile(r"\bOne record(?= is\b)"), "the unit of privacy"),
    ("neighbours", re.compile(r"\b[Nn]eighbouring\b|\bneighbours\b"), "adjacent"),
    ("guessing blind", re.compile(r"\b[Gg]uessing blind\b"), "from the prior alone"),
    ("coins", re.compile(r"\bcoins(?= of the release\b)"), "randomness"),
)
PROSE = re.compile(
    r"(<(?:p|li|figcaption)\b(?![^>]*\bkicker)[^>]*>)(.*?)(</(?:p|li|figcaption)>)", re.S
)
# Names, commands and tags are no text.
MARKUP = re.compile(r"(<code\b.*?</code>|<[^>]*>)", re.S)


def rendered(package: str, name: str, **content: Any) -> str:
    """Return a page, filled in.

    Args:
        package: where its template stands, such as ``"tacit.report"``.
        name: of the template, without ``.html.j2``.
        content: what the template needs, but for ``style``.
    """
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["breakable"] = breakable
    text = (resources.files(package) / f"{name}.html.j2").read_text("utf-8")
    style = (resources.files("tacit.pages") / "page.css").read_text("utf-8")
    return bracketed(environment.from_string(text).render(style=Markup(style), **content))


def breakable(name: str) -> Markup:
    """Let a long label break after a comma or an underscore."""
    text = escape(name)
    for character in ",_":
        text = text.replace(character, character + Markup("<wbr>"))
    return text


def bracketed(page: str) -> str:
    """Return a page that has the field's word in brackets after the first of each word of ours.

    Example:
        >>> bracketed("<h1>the pool</h1><p>rows of the pool, not <code>the pool</code></p>")
        '<h1>the pool</h1><p>rows of the pool (data set), not <code>the pool</code></p>'
    """
    left = list(TERMS)

    def told(text: str) -> str:
        for term in tuple(left):
            _, pattern, word = term
            text, found = pattern.subn(rf"\g<0> ({word})", text, count=1)
            if found:
                left.remove(term)
        return text

    def paragraph(found: re.Match[str]) -> str:
        # every second piece is markup
        pieces = MARKUP.split(found[2])
        pieces[::2] = [told(piece) for piece in pieces[::2]]
        return found[1] + "".join(pieces) + found[3]

    return PROSE.sub(paragraph, page)
