"""Render docs/explanation/reproductions.md from the results that are there."""

from __future__ import annotations

import sys

from tacit_lab.studies.reproductions import page


def main() -> int:
    """Write the page."""
    page.render()
    print(page.PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
