"""What a thief of a vector store gets and what a search finds, by the bits of a code."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tacit.models import docstring_corpus, read_text
from tacit_lab.studies.hidden.results import write_result
from tacit_lab.studies.places import RESULTS
from tacit_lab.studies.stores import page
from tacit_lab.studies.stores.measure import TheftScale, measured, texts_of

ASKED = ((1, 16), (1, 256), (2, 256), (3, 256), (4, 256), (8, 256))
READ = ("1 × 16", "1 × 256", "2 × 256", "float32")
FULL = TheftScale(public=12_000, stored=20_000, queries=250, asked=ASKED, known=48, read=READ)
FAST = TheftScale(
    public=2500, stored=400, queries=40, asked=((1, 16), (2, 64)), known=16, digits=1000
)


def main() -> int:
    """Measure, write rows, figure and page, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="two codes of few texts, in seconds")
    parser.add_argument("--texts", type=Path, help="a text a line; docstrings if not given")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result")
    arguments = parser.parse_args()
    scale, name = (FAST, page.NAME + "-fast") if arguments.fast else (FULL, page.NAME)
    start = time.perf_counter()
    corpus = read_text(arguments.texts) if arguments.texts else docstring_corpus()
    rows = []
    for row in measured(texts_of(corpus, scale.public + scale.stored + scale.queries), scale):
        print(f"{time.perf_counter() - start:6.0f} s  {row['asked']}", flush=True)
        rows.append(row)
    result = {
        "experiment": name,
        "texts": arguments.texts.name if arguments.texts else "docstrings of this installation",
        "public": scale.public,
        "stored": scale.stored,
        "queries": scale.queries,
        "known": scale.known,
        "rows": rows,
        "seconds": round(time.perf_counter() - start, 1),
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    target = arguments.out / f"{name}.json"
    write_result(target, result, "rows")
    if arguments.out == RESULTS and not arguments.fast:
        page.render()
    print("\n".join(page.findings(result)))
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
