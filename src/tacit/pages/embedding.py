"""The JSON of a release inside its page."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from tacit.documents import dumps


def embedded_json(content: Any) -> Markup:
    """Return strict JSON that is safe inside a script element.

    Example:
        >>> str(embedded_json({"name": "</script>"}))
        '{"name": "\\\\u003c/script\\\\u003e"}'
    """
    text = dumps(content)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
