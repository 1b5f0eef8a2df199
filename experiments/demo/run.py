"""The demo: audit layer 3 of tacit/small and write one report."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from tacit.compute import progress_reports
from tacit.hidden_states import Audit, Sizes, SweepRequest, SweepRun, Wish, audit_layer
from tacit.hidden_states.audit.page.words import audit_verdict
from tacit.models import Prefixes, docstring_corpus, load
from tacit.releases import Provenance, Release
from tacit.report import write_report
from tacit.text import percent_up

LAYER = 3
LENGTH = 12
CHARACTERS = 1_500_000
BANK, CALIBRATION = 2000, 4000
# A share of 1,000 prompts or queries is known to 3 points, one of 100 guesses to 10, at 95% each.
SIZES = Sizes(geometry=1000, pairs=500, prompts=1000, generated=60, queries=1000, trained=1000)
ASKED = SweepRequest(
    mechanisms=(
        "isotropic",
        "mahalanobis-optimal",
        "codebook-euclidean",
        "codebook-decision",
        "argmax",
    ),
    kl_budgets=(0.5, 4.0),
    codewords=(64,),
)
# among how many prompts the largest success is printed
CANDIDATES = (10, 1000, 100_000)
WISH = Wish(max_attack=0.25, min_agreement=0.5)
SEED = 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("demo"), help="where to write")
    parser.add_argument("--bank", type=int, default=BANK, help="prompts to choose among")
    parser.add_argument("--calibration", type=int, default=CALIBRATION, help="public prompts")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    model = load("tacit/small")
    stream = model.stream(docstring_corpus()[:CHARACTERS])
    prefixes = Prefixes.draw(
        stream,
        bank=arguments.bank,
        calibration=arguments.calibration,
        held_out=SIZES.prompts,
        length=LENGTH,
        rng=SEED,
    )
    with progress_reports("preparing") as progress:
        found = audit_layer(
            model,
            LAYER,
            WISH,
            ASKED,
            prefixes=prefixes,
            sizes=SIZES,
            run=SweepRun(progress=progress),
            rng=SEED,
        )
    provenance = Provenance(
        command="make demo", data_name="docstrings of this installation", data_rows=arguments.bank
    )
    found = replace(found, provenance=provenance)
    text = json.dumps(found.to_dict(), allow_nan=False)
    (folder / "audit.json").write_text(text + "\n", encoding="utf-8")
    print(write_report(found, folder / "audit.html"))
    print(*summary(found, time.perf_counter() - start), sep="\n")
    return 0


def summary(found: Release[Audit], seconds: float) -> tuple[str, ...]:
    """Return the verdict, the reasons and how long it took, a line each."""
    points = found.details.points
    raw = [p for p in points if p.family == "gaussian" and p.reading == "raw"]
    middle = sum(point.in_middle for point in points)
    return (
        audit_verdict(found).sentence,
        *found.details.recommendation.reasons,
        *curve(found),
        f"{len(points)} releases, {middle} of them in the middle that is said to be empty "
        f"({sum(p.in_middle for p in raw)} of {len(raw)} noisy states read as they come), "
        f"in {seconds:.0f} s.",
    )


def curve(found: Release[Audit]) -> tuple[str, ...]:
    """Say what the factor is as a percentage, for several numbers of candidates."""
    leakage = found.leakage
    if leakage is None:
        return ()
    told = ", ".join(
        f"{percent_up(success, 2)} among {size:,}"
        for size, success in leakage.success_by_candidates(CANDIDATES)
    )
    return (f"Named at most, by an attacker to whom N prompts are equally likely: {told}.",)


if __name__ == "__main__":
    sys.exit(main())
