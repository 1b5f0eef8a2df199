"""Templates of the pages, and what all of them are rendered with."""

from __future__ import annotations

from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup, escape

from tacit.pages.terms import bracketed


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
