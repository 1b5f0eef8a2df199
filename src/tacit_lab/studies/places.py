"""Where a checkout has its pages, pictures and results."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
IMAGES = DOCS / "images"
PAGE = DOCS / "explanation" / "reproductions.md"
RESULTS = ROOT / "experiments" / "results"
# What was computed once and is not kept by git.
CACHE = ROOT / "build" / "experiments"
