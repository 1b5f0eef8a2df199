"""A release where it is printed, shown in a notebook, drawn, or made a data frame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit._ground.axes import new_axes
from tacit._ground.checks import choice
from tacit.releases.numbers import Number, Numbers
from tacit.text import beside, half_width, whole_beside

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Of more numbers a printed release tells the first.
PRINTED, SHOWN = 6, 20
LONGEST_NAME, LONGEST_TITLE = 40, 90
Rows = Sequence[tuple[str, str]]
FRAMES = ("pandas", "polars")
HALF = "± is a 95% half-width, of the noise unless said"
# Where an interval ends at what is possible, its ends stand in the place of ±.
ENDS = "; in brackets a 95% interval that ends at what is possible"


def printed(kind: str, title: str, numbers: Numbers | None, standing: str) -> str:
    """Return a release in a few lines: what it is, its numbers and what is guaranteed."""
    head = f"<Release {kind}: {_cut(title, LONGEST_TITLE)}"
    told = [
        f"  {_cut(one.name, LONGEST_NAME)} = {number_words(one)}"
        for one in _first(numbers, PRINTED)
    ]
    if told:
        told.append(f"  ({_more(numbers, PRINTED)}{said_once(told)})")
    return "\n".join([head, *told, f"  {standing}>"])


def html(kind: str, title: str, numbers: Numbers | None, standing: str) -> str:
    """Return the same as HTML that stands in a notebook, light or dark: all text escaped."""
    rows = _html_rows([(one.name, number_words(one)) for one in _first(numbers, SHOWN)])
    table = (
        f'<table><thead><tr><th scope="col">number</th><th scope="col">released</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
        f"<p><small>{_more(numbers, SHOWN)}{said_once([rows])}</small></p>"
    )
    return (
        f"<div><p><b>{escape(title)}</b> <small>({escape(kind)})</small></p>"
        f"{table if rows else ''}<p>{escape(standing)}</p></div>"
    )


def prepared_printed(description: str, awaited: Rows, standing: str) -> str:
    """Return a prepared release in a few lines: the error of each number, and the guarantee."""
    told = [f"  {_cut(name, LONGEST_NAME)} {half}" for name, half in awaited[:PRINTED]]
    if told:
        more = _left(len(awaited), PRINTED)
        told.append(f"  ({more}± is the 95% half-width that the noise will have)")
    head = f"<Prepared {_cut(description, LONGEST_TITLE)}: not drawn"
    return "\n".join([head, *told, f"  {standing}>"])


def prepared_html(description: str, awaited: Rows, standing: str) -> str:
    """Return the same as HTML that stands in a notebook, light or dark: all text escaped."""
    rows = _html_rows(awaited[:SHOWN])
    table = (
        f'<table><thead><tr><th scope="col">number</th><th scope="col">95% half-width of the noise'
        f"</th></tr></thead><tbody>{rows}</tbody></table><p><small>{_left(len(awaited), SHOWN)}"
        "</small></p>"
    )
    return (
        f"<div><p><b>{escape(description)}</b> <small>(prepared, not drawn)</small></p>"
        f"{table if rows else ''}<p>{escape(standing)}</p></div>"
    )


def to_frame(numbers: Numbers, kind: str | None) -> Any:
    """Return the numbers as a data frame: see ``Release.to_frame``."""
    asked = FRAMES if kind is None else (choice("kind", kind, FRAMES),)
    name = next((one for one in asked if find_spec(one) is not None), None)
    if name is None:
        wanted = " or ".join(asked)
        raise ValueError(f"kind: expected {wanted} to be installed: pip install {asked[0]}")
    ends = numbers.intervals()
    columns: dict[str, Any] = {
        "name": list(numbers.names),
        "value": numbers.values.copy(),
        "half_width": np.array([one.half_width() for one in numbers]),
        "low": ends[:, 0],
        "high": ends[:, 1],
    }
    if numbers.sampling is not None:
        # ± is a 95% half-width here as everywhere; NaN where the sampling error is not known
        columns["half_width_with_sampling"] = np.array(
            [math.nan if one.sampling is None else one.half_width(sampling=True) for one in numbers]
        )
    return import_module(name).DataFrame(columns)


def plot(numbers: Numbers, ax: Axes | None) -> Axes:
    """Draw the numbers with their intervals: see ``Release.plot``."""
    if ax is None:
        ax = new_axes(6.4, 1.2 + 0.3 * len(numbers))
    ends, places = numbers.intervals(), np.arange(len(numbers))[::-1]
    ax.hlines(places, ends[:, 0], ends[:, 1], color="#0B6E99", linewidth=2)
    ax.plot(numbers.values, places, "o", color="#0B6E99", markersize=5)
    ax.set_yticks(places, numbers.names)
    ax.set_xlabel("released value, with the 95% interval of the noise")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _first(numbers: Numbers | None, count: int) -> list[Number]:
    return [one for one, _ in zip(numbers or (), range(count), strict=False)]


def _more(numbers: Numbers | None, count: int) -> str:
    return _left(len(numbers or ()), count)


def _left(total: int, shown: int) -> str:
    return f"{total - shown:,} more; " if total > shown else ""


def _html_rows(rows: Rows) -> str:
    return "".join(
        f'<tr><th scope="row" style="text-align:left">{escape(name)}</th>'
        f"<td>{escape(words)}</td></tr>"
        for name, words in rows
    )


def said_once(words: Sequence[str]) -> str:
    """Return what the marks beside numbers mean, by those that stand in these words."""
    return HALF + (ENDS if any(" [" in one for one in words) else "")


def number_words(number: Number) -> str:
    """Return the value of a number with its 95% half-widths: of the noise, and with sampling."""
    if number.error:
        value = whole_beside(number.value, number.half_width())
        words = f"{value} {_interval_words(number)}"
    else:
        # what has no noise and is whole, such as how many keys were found, has no decimals
        exact = float(number.value)
        told = f"{exact:,.0f}" if exact.is_integer() else beside(number.value, number.error)
        words = f"{told} exactly"
    if number.sampling is None:
        return words
    return f"{words} (with sampling {_interval_words(number, sampling=True)})"


def _interval_words(number: Number, *, sampling: bool = False) -> str:
    """Return an interval as its half-width, or as its ends where it ends at what is possible."""
    half = number.half_width(sampling=sampling)
    low, high = number.interval(sampling=sampling)
    if low > number.value - half or high < number.value + half:
        return f"[{whole_beside(low, half)}, {whole_beside(high, half)}]"
    return f"± {half_width(half)}"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
