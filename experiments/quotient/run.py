"""Quotients, codebooks and noise at equal certified nats; DP-SGD and the states of new prompts."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tacit._ground.files import write_text_atomic
from tacit.hidden_states import Bench, Quotient, Sizes
from tacit.models import Prefixes, docstring_corpus, load, read_text, sample_prefixes
from tacit_lab.studies.hidden.results import write_result
from tacit_lab.studies.pac import data
from tacit_lab.studies.places import RESULTS
from tacit_lab.studies.quotient import figure, private, quotient_page
from tacit_lab.studies.quotient.clipped import ClippedState
from tacit_lab.studies.quotient.measure import estimated, rows_of
from tacit_lab.studies.reproductions.page import render

LENGTH, SEED, LAYER, NATS = 32, 0, 3, 6.93
TEXT = "text/tiny_shakespeare.txt.gz"
FULL: dict[str, Any] = {
    "bank": 4000, "calibration": 8_000, "epochs": 30,
    "sizes": Sizes(geometry=500, pairs=300, prompts=600, generated=0, queries=1500, trained=2000,
                   least_cell=1),
    "codewords": (256, 1024), "kl_budgets": (4.0, 16.0, 64.0),
    "levels": (5.5, NATS),
    "private": {"records": 2000, "bank": 1500, "public": 1500, "length": 32, "steps": 20,
                "batch": 64, "rate": 1e-3, "epsilons": [None, "inf", 8.0, 2.0],
                "ratios": [0.0, 2.0, 4.0, 6.0, 8.0], "inverted": 40, "inverted_length": 16,
                "inverted_ratio": 5.0},
}  # fmt: skip
FAST: dict[str, Any] = {
    **FULL, "bank": 300, "calibration": 600, "epochs": 2,
    "sizes": Sizes(geometry=100, pairs=50, prompts=100, generated=0, queries=100, trained=100,
                   least_cell=1),
    "codewords": (20,), "kl_budgets": (4.0,), "levels": (2.0, 2.996),
    "private": {**FULL["private"], "records": 100, "bank": 100, "public": 200, "steps": 2,
                "batch": 16, "epsilons": [None, 8.0], "inverted": 3},
}  # fmt: skip
FAST_CHARACTERS = 400_000


def main() -> int:
    """Measure what is missing, write rows and figure, and print the page's section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="few prompts, in two minutes")
    parser.add_argument("--model", default="tacit/small", help="a folder or a name")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    given = parser.parse_args()
    scale, name = (FAST, "quotient-fast") if given.fast else (FULL, "quotient")
    given.out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    model = load(given.model)
    text = docstring_corpus()
    prefixes = Prefixes.draw(
        model.stream(text[:FAST_CHARACTERS] if given.fast else text), bank=scale["bank"],
        calibration=scale["calibration"], held_out=scale["sizes"].prompts, length=LENGTH, rng=SEED,
    )  # fmt: skip
    bench = Bench(model, prefixes, scale["sizes"], SEED, (LAYER,))
    kept = _Kept(given.out / f"{name}-kept.jsonl", {"model": model.name, "scale": str(scale)})

    def progress(label: str, done: int, whole: int) -> None:
        print(f"{time.perf_counter() - start:6.0f} s  {done}/{whole}  {label}", flush=True)

    rows = rows_of(
        LAYER, {**scale, **mechanisms(scale)}, bench,
        given.out / f"{name}.jsonl", progress,
    )  # fmt: skip
    told = kept.made("estimates", lambda: estimated(bench.at(LAYER), bench.sizes, NATS, SEED))
    result = {
        "experiment": name, "model": model.name, "layer": LAYER, "length": LENGTH,
        "nats": scale["levels"][-1],
        **{key: scale[key] for key in ("bank", "calibration", "epochs")},
        "prompts": bench.sizes.prompts, "queries": bench.sizes.queries,
        "estimates": told, "private": _private(scale["private"], kept), "rows": rows,
    }  # fmt: skip
    target = given.out / f"{name}.json"
    write_result(target, result, "rows")
    published = given.out == RESULTS and not given.fast
    figure.draw(result, (figure.IMAGES if published else given.out) / f"{name}.svg")
    if published:
        render()
    print("\n".join(quotient_page.lines(result)))
    print(target)
    return 0


def mechanisms(scale: dict[str, Any]) -> dict[str, Any]:
    """Return the mechanisms: at equal nats, at equal factor, and levels to compare attacks at."""
    top, epochs = scale["levels"][-1], scale["epochs"]
    return {
        "codebooks": ["codebook-euclidean", "codebook-behaviour", "codebook-decision"],
        "noise": ["isotropic", "mahalanobis-optimal"],
        "quotients": [
            ClippedState(top),
            *(
                Quotient(size, nats, epochs=epochs, behaviour=behaviour, leakage=leakage)
                for behaviour in (False, True)
                for size, leakage in ((16, False), (4, True))
                for nats in scale["levels"]
            ),
            *(
                Quotient(16, top, epochs=epochs, behaviour=behaviour, quiet=True)
                for behaviour in (False, True)
            ),
            Quotient(2, top, epochs=epochs, behaviour=True, leakage=True),
            Quotient(16, top, epochs=epochs, penalty=0.05),
            Quotient(16, top, epochs=epochs, adversary=0.05),
        ],
    }


class _Kept:
    """Results of an interrupted run of the same size."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path, self.about = path, about
        held = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        self.held = held.get("held", {}) if held.get("about") == about else {}

    def made(self, key: str, compute: Callable[[], Any]) -> Any:
        """Return what is kept under a key, computed now where it is not."""
        if key not in self.held:
            self.held[key] = compute()
            content = json.dumps({"about": self.about, "held": self.held})
            write_text_atomic("out", self.path, content + "\n")
        return self.held[key]


def _private(sizes: dict[str, Any], kept: _Kept) -> dict[str, Any] | None:
    """Fine-tune, and attack states of prompts that no training saw; None without the text."""
    try:
        text = read_text(data.find(TEXT))
    except data.MissingDataError as missing:
        print(f"skipped: {missing}")
        return None
    base = load("tacit/small")
    counts = sizes["records"], sizes["bank"], sizes["public"]
    drawn = sample_prefixes(base.stream(text), count=sum(counts), length=sizes["length"], rng=SEED)
    records, bank, public = torch.split(drawn, counts)

    def row(epsilon: Any) -> dict[str, Any]:
        level = None if epsilon is None else float(epsilon)
        model, told = private.trained(records, bank, level, sizes)
        found = {**told, **private.attacked(model, LAYER, bank, public, sizes)}
        print(epsilon, found, flush=True)
        return {"epsilon": epsilon, **found}

    rows = [
        kept.made(f"epsilon {epsilon}", lambda e=epsilon: row(e)) for epsilon in sizes["epsilons"]
    ]
    return {**{key: sizes[key] for key in sizes if key != "epsilons"}, "rows": rows}


if __name__ == "__main__":
    sys.exit(main())
