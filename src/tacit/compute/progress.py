"""Progress on standard error: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

SECONDS_BETWEEN_LINES = 10.0
LINE = "{desc}: {n_fmt}/{total_fmt}, {elapsed} gone, {remaining} left"


class _Lines(tqdm):  # type: ignore[misc]
    """The same progress as lines, for logs and pipes; none for work shorter than the interval."""

    # every update is looked at here, so nothing has to watch for slow ones
    monitor_interval = 0

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Print one line; clearing prints nothing."""
        if msg is None:
            print(self, file=self.fp, flush=True)
        return False


def _bar(total: int | None, description: str, *, shown: bool) -> Any:
    # without the argument, TQDM_DISABLE decides
    silenced: dict[str, Any] = {} if shown else {"disable": True}
    if sys.stderr.isatty():
        return tqdm(
            total=total,
            desc=description,
            **silenced,
            leave=False,
            dynamic_ncols=True,
            file=sys.stderr,
        )
    return _Lines(
        total=total,
        desc=description,
        **silenced,
        leave=False,
        delay=SECONDS_BETWEEN_LINES,
        mininterval=SECONDS_BETWEEN_LINES,
        miniters=1,
        bar_format=LINE,
        file=sys.stderr,
    )


@contextmanager
def progress_bar(total: int, description: str, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """Give a function that counts steps done, shown on standard error.

    On a terminal there is a bar with the remaining time, gone at the end. Elsewhere there is a
    line every ten seconds. ``TQDM_DISABLE=1`` in the environment shows nothing anywhere.

    Args:
        total: number of steps.
        description: what is being done, in a few words.
        shown: False shows nothing.

    Example:
        >>> with progress_bar(2, "counting", shown=False) as advance:
        ...     advance(2)
    """
    with _bar(total, description, shown=shown and total > 0) as bar:
        yield bar.update


@contextmanager
def progress_reports(
    description: str, *, shown: bool = True
) -> Iterator[Callable[[str, int, int], None]]:
    """Give a function of a label, the steps done and the steps in all; shown as `progress_bar` is.

    Args:
        description: what is being done until the first report.
        shown: False shows nothing.

    Example:
        >>> with progress_reports("preparing", shown=False) as report:
        ...     report("first of two", 1, 2)
    """
    with _bar(None, description, shown=shown) as bar:

        def report(label: str, done: int, total: int) -> None:
            bar.total = total
            bar.set_description_str(label, refresh=not isinstance(bar, _Lines))
            bar.update(done - bar.n)

        yield report
