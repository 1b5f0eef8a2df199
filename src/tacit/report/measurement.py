"""The page of a measurement: what was found, in a sentence, lines and tables, for its holder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import tacit
from tacit.pages import Section, rendered, table


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What a command measured; it guarantees nothing and nothing of it is published.

    Attributes:
        about: what was measured, in a few words.
        title: what was found, a sentence.
        lines: labels and what they say.
        parts: further sections, such as tables.
        keep: for whom it is.
    """

    about: str
    title: str
    lines: Sequence[tuple[str, str]]
    parts: Sequence[Section] = ()
    keep: str


def render_measurement(found: Measurement, command: str) -> str:
    """Return a measurement as one self-contained HTML page.

    Args:
        found: what was measured.
        command: how it was made.

    Example:
        >>> found = Measurement(about="a layer", title="7 of 9.", lines=(), keep="Yours.")
        >>> "<h1>7 of 9.</h1>" in render_measurement(found, "tacit")
        True
    """
    listed = table("what was measured", (), found.lines, "words")
    told = [Section("What was measured", listed)] if found.lines else []
    return rendered(
        "tacit.report",
        "measurement",
        about=found.about,
        title=found.title,
        parts=[*told, *found.parts],
        keep=found.keep,
        command=command,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=tacit.__version__,
    )
