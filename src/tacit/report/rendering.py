"""Templates of the pages, and what all of them are rendered with."""

from __future__ import annotations

from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup, escape


def rendered(folder: str, **content: Any) -> str:
    """Return the page of a folder of ``tacit.report``, filled in.

    Args:
        folder: where its ``page.html.j2`` stands.
        content: what the template needs, but for ``style``.
    """
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["breakable"] = breakable
    place = resources.files("tacit.report")
    template = environment.from_string((place / folder / "page.html.j2").read_text("utf-8"))
    style = Markup((place / "page.css").read_text(encoding="utf-8"))
    return template.render(style=style, **content)


def breakable(name: str) -> Markup:
    """Let a long label break after a comma or an underscore."""
    text = escape(name)
    for character in ",_":
        text = text.replace(character, character + Markup("<wbr>"))
    return text
