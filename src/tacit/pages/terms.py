"""The field's word beside ours, in brackets, where ours stands first in the text of a page."""

from __future__ import annotations

import re

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
