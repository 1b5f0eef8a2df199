"""What a page owes to readers who do not see it, or do not use a mouse, looked at in its HTML."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise

from tacit.pages.terms import TERMS

VOID = {"meta", "link", "input", "br", "hr", "img", "col", "source", "wbr"}
LABELLED = ("aria-labelledby", "aria-describedby", "for")
# Pixels of a letter of a figure, on average.
LETTER = 6.5
# Contrast that WCAG 2.1 asks of text, and of parts of a figure.
TEXT, PARTS = 4.5, 3.0


class Page(HTMLParser):
    """The elements of a page in order, with their attributes and the words in them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str], list[str]]] = []
        self._open: list[int] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attributes}, []))
        if tag not in VOID:
            self._open.append(len(self.found) - 1)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self.found[self._open.pop()][0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        for place in self._open:
            self.found[place][2].append(data)

    def of(self, *tags: str) -> list[tuple[dict[str, str], str]]:
        """Return attributes and words of every element of these tags."""
        return [(held, " ".join("".join(w).split())) for tag, held, w in self.found if tag in tags]


def faults(html: str) -> list[str]:
    """Return what is missing on a page, a sentence each."""
    page = Page(html)
    told: list[str] = []
    if not page.of("html")[0][0].get("lang"):
        told.append("no language")
    if not any(words for _, words in page.of("title")[:1]):
        told.append("no title")
    if len(page.of("main")) != 1:
        told.append("not one main")
    levels = [int(tag[1]) for tag, _, _ in page.found if re.fullmatch("h[1-6]", tag)]
    if levels.count(1) != 1 or levels[0] != 1:
        told.append(f"headings: {levels}")
    if any(later > level + 1 for level, later in pairwise(levels)):
        told.append(f"headings leave one out: {levels}")
    ids = [held["id"] for _, held, _ in page.found if "id" in held]
    told += [f"id {one!r} stands twice" for one in {one for one in ids if ids.count(one) > 1}]
    for tag, held, _ in page.found:
        for name in LABELLED:
            told += [
                f"{tag} {name}: no {one!r}" for one in held.get(name, "").split() if one not in ids
            ]
    for held, words in page.of("a", "button", "summary", "th", "h1", "h2", "h3"):
        if not (words or held.get("aria-label") or held.get("hidden")):
            told.append(f"an element without words: {held}")
    for held, _ in page.of("th"):
        if "scope" not in held:
            told.append("a heading of a table without scope")
    for held, _ in page.of("img"):
        if "alt" not in held:
            told.append("a picture without words")
    for held, words in page.of("svg"):
        named = held.get("aria-label") or held.get("aria-labelledby") or "title" in words
        if held.get("aria-hidden") != "true" and not (held.get("role") == "img" and named):
            told.append(f"a figure without a name: {sorted(held)}")
    labels = {held.get("for") for held, _ in page.of("label")}
    for held, _ in page.of("input", "select", "textarea"):
        if held.get("type") not in ("hidden", "submit") and not (
            held.get("id") in labels or held.get("aria-label")
        ):
            told.append(f"a field without a label: {held.get('name')}")
    # what scrolls by itself is reached by the keyboard, and has a name
    for tag, held, _ in page.found:
        scrolls = held.get("class") in ("scroll", "copy")
        if scrolls and not (held.get("tabindex") == "0" and held.get("aria-label")):
            told.append(f"{tag}.{held['class']} is not reached by the keyboard")
    return told


def cut_off(html: str) -> list[str]:
    """Return the labels of figures that stand out of their drawing, where paper cuts them."""
    told, width = [], 0.0
    for tag, held, words in Page(html).found:
        if tag == "svg" and "viewbox" in held:
            width = float(held["viewbox"].split()[2])
        if tag == "text":
            label, x = "".join(words), float(held["x"])
            shift = {"start": 0.0, "middle": 0.5, "end": 1.0}[held["text-anchor"]]
            start = x - shift * LETTER * len(label)
            if start < 0 or start + LETTER * len(label) > width:
                told.append(label)
    return told


def unbracketed(page: str) -> str:
    """Return a page without the field's words that stand in brackets after ours."""
    for _, _, word in TERMS:
        page = page.replace(f" ({word})", "")
    return page


def contrasts(css: str) -> dict[tuple[str, str], float]:
    """Return the contrast of every colour of text with its page, by scheme and name."""
    found: dict[tuple[str, str], float] = {}
    for number, block in enumerate(re.findall(r":root\s*\{(.*?)\}", css, re.DOTALL)):
        colours = dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{3,8})\b", block))
        page = colours.get("page")
        for name, colour in colours.items():
            if page is not None and name in COLOURS and len(colour) in (4, 7):
                found[f"block {number}", name] = _contrast(colour, page)
    return found


COLOURS = {"ink": TEXT, "quiet": TEXT, "bound": TEXT, "alarm": TEXT, "measured-text": TEXT}
COLOURS |= {"measured": PARTS}


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * one for one in colour[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
