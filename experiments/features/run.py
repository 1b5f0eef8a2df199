"""Features of a transcoder: which the prediction reads, and what they tell of a prompt."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from tacit import codec
from tacit._ground.files import write_text_atomic
from tacit.hidden_states import (
    FeatureStudy,
    Scoring,
    Transcoder,
    TranscoderFit,
    measure_features,
    train_transcoder,
)
from tacit.models import LanguageModel, Prefixes, docstring_corpus, load
from tacit_lab.studies.features import features_page
from tacit_lab.studies.hidden.results import write_result
from tacit_lab.studies.places import RESULTS
from tacit_lab.studies.reproductions.page import render

LENGTH, SEED, LAYER, THRESHOLD = 32, 0, 3, 1e-3
THRESHOLDS = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
FULL: dict[str, Any] = {
    "bank": 1000, "scored": 2000, "trained": 4000, "edited": 200, "each": 100,
    "rows": (("mlp", 600), ("stream", 300)),
}  # fmt: skip
FAST: dict[str, Any] = {
    "bank": 100, "scored": 100, "trained": 300, "edited": 20, "each": 5,
    "rows": (("mlp", 20),),
}  # fmt: skip
FAST_CHARACTERS = 400_000


def main() -> int:
    """Measure what is missing, write the rows, and print the page's section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="few prompts, in half a minute")
    parser.add_argument("--model", default="tacit/small", help="a folder or a name")
    parser.add_argument("--device", default="cpu", help="where it computes")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    given = parser.parse_args()
    scale, name = (FAST, "features-fast") if given.fast else (FULL, "features")
    given.out.mkdir(parents=True, exist_ok=True)
    model = load(given.model, device=given.device)
    text = docstring_corpus()
    prefixes = Prefixes.draw(
        model.stream(text[:FAST_CHARACTERS] if given.fast else text), bank=scale["bank"],
        held_out=scale["scored"], calibration=scale["trained"], length=LENGTH, rng=SEED,
    )  # fmt: skip
    kept = given.out / f"{name}.jsonl"
    about = {"model": model.name, "scale": json.loads(json.dumps(scale))}
    rows = _kept(kept, about)
    for reads, steps in scale["rows"]:
        if reads not in {row["reads"] for row in rows}:
            rows.append(_row(model, prefixes, reads, steps, scale))
            lines = [json.dumps(about), *(json.dumps(row) for row in rows)]
            write_text_atomic("out", kept, "\n".join(lines) + "\n")
    result = {
        "experiment": name, "model": model.name, "layer": LAYER, "length": LENGTH,
        "threshold": THRESHOLD,
        **{key: scale[key] for key in ("bank", "scored", "trained", "edited", "each")},
        "rows": rows,
    }  # fmt: skip
    target = given.out / f"{name}.json"
    write_result(target, result, "rows")
    if given.out == RESULTS and not given.fast:
        render()
    print("\n".join(features_page.lines(result)))
    print(target)
    return 0


def _kept(path: Path, about: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of an interrupted run of the same size."""
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    held = [json.loads(line) for line in lines]
    return held[1:] if held and held[0] == about else []


def _row(
    model: LanguageModel, prefixes: Prefixes, reads: str, steps: int, scale: dict[str, Any]
) -> dict[str, Any]:
    """Train features of one place, and measure them."""
    start = time.perf_counter()
    coder: Transcoder = train_transcoder(
        model, LAYER, prefixes.calibration, TranscoderFit(reads=reads, steps=steps), seed=SEED
    )
    print(f"{time.perf_counter() - start:.0f} s  {coder}  {coder.trained}", flush=True)
    found = measure_features(
        model, LAYER, coder, prefixes.bank, prefixes.held_out,
        Scoring(threshold=THRESHOLD, each=scale["each"]), edited=scale["edited"], rng=SEED,
    )  # fmt: skip
    # the details as they are stored, with the digests of what they are about
    told = {**codec.write(FeatureStudy, found.details), "digests": [*map(list, found.digests)]}
    scores = found.details.scores
    scored = scores.score[scores.measured > 0]
    del told["scores"]
    return {
        **told,
        "features": coder.size,
        "summary": scores.summary(),
        "least": float(scored.min()),
        "most": float(scored.max()),
        "scaffold_at": [[tau, float((scored <= tau).mean())] for tau in THRESHOLDS],
        "seconds": time.perf_counter() - start,
    }


if __name__ == "__main__":
    sys.exit(main())
