"""Templates of the pages, the Markdown of cards, and the words that stand beside numbers."""

from __future__ import annotations

from datetime import datetime
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import jinja2
from fastapi.responses import HTMLResponse
from markdown_it import MarkdownIt
from markupsafe import Markup

from tacit import __version__
from tacit_dock.promised import claim, law, rounded_up, title

# Bytes of a card as HTML, and letters of one that would be more: no page is above 300 kB.
HEAVIEST, LONGEST = 180_000, 30_000


def page(name: str, status: int = 200, **content: Any) -> HTMLResponse:
    """Return a page.

    Args:
        name: of its template.
        status: of HTTP.
        content: what the template needs.
    """
    text = _environment().get_template(f"{name}.html.j2").render(version=__version__, **content)
    return HTMLResponse(text, status)


@lru_cache(maxsize=64)
def markdown(text: str) -> Markup:
    """Return the HTML of a card: HTML in it is text, pictures are links, headings stand below ours.

    Of a hostile card that takes a second, so the last ones are kept. What would make a page heavy
    is shown as text, cut short; the record as JSON has all of it.

    Example:
        >>> markdown("<b>no</b> *yes*")
        Markup('<p>&lt;b&gt;no&lt;/b&gt; <em>yes</em></p>\\n')
    """
    found = _parser().render(text)
    if len(found.encode()) <= HEAVIEST:
        return Markup(found)
    told = Markup("<p>The first {:,} characters; the record as JSON has all.</p><pre>{}</pre>")
    return told.format(LONGEST, text[:LONGEST])


def reason(sentence: str) -> str:
    """Return what a verdict says after its first words, which are the heading.

    Example:
        >>> reason("No good match: there is nothing to compare with.")
        'There is nothing to compare with.'
    """
    told = sentence.partition(": ")[2] or sentence
    return told[:1].upper() + told[1:]


def date(time: str) -> Markup:
    """Return a moment as its day, with the moment itself for machines."""
    return day(time, clock=False)


def day(time: str, *, clock: bool = True) -> Markup:
    """Return a moment as its day and, unless told otherwise, its minute."""
    try:
        moment = datetime.fromisoformat(time)
        told = (
            f"{moment.day} {moment:%B %Y, %H:%M} UTC" if clock else f"{moment.day} {moment:%B %Y}"
        )
    except ValueError:
        told = time
    return Markup('<time datetime="{}">{}</time>').format(time, told)


def size(count: int) -> str:
    """Return a number of bytes with its unit."""
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(resources.files("tacit_dock.pages") / "templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        markdown=markdown, claim=claim, law=law, limit=rounded_up, day=day, date=date, size=size,
        reason=reason, title_line=title,
    )  # fmt: skip
    return environment


@cache
def _parser() -> MarkdownIt:
    # raw HTML is off, and so are pictures, which would be asked for elsewhere
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    parser.add_render_rule("link_open", _link)
    for rule in ("heading_open", "heading_close"):
        parser.add_render_rule(rule, _heading)
    return parser


def _link(self: Any, tokens: Any, at: int, options: Any, env: Any) -> str:
    tokens[at].attrSet("rel", "nofollow noopener noreferrer ugc")
    return str(self.renderToken(tokens, at, options, env))


def _heading(self: Any, tokens: Any, at: int, options: Any, env: Any) -> str:
    # the page has the first two levels
    tokens[at].tag = f"h{min(int(tokens[at].tag[1]) + 2, 6)}"
    return str(self.renderToken(tokens, at, options, env))
