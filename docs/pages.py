"""Draw docs/images/page-*.png: six kinds of pages, as a browser shows them. Needs Chromium."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
# What is drawn, by the name that the pages have, and how wide the window is.
DRAWN = {
    "report-rows": 900,
    "certificate-rows": 900,
    "report-audit": 390,
    "ledger": 900,
    "comparison": 390,
    "dock /": 900,
}
HEIGHTS = {900: 690, 390: 760}


def main() -> int:
    """Draw every picture from a page made now."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.accessibility import looked_at
    from tests.chromium import chromium

    with TemporaryDirectory() as folder, chromium() as browser:
        for name, address in looked_at(Path(folder), []):
            if name not in DRAWN:
                continue
            width = DRAWN[name]
            size = {"width": width, "height": HEIGHTS[width]}
            page = browser.new_page(viewport=size, color_scheme="light")
            page.goto(address)
            place = IMAGES / f"page-{name.replace(' /', '').replace('report-audit', 'audit')}.png"
            page.screenshot(path=str(place))
            page.close()
            print(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
