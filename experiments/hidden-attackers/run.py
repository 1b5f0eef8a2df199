"""Attackers who know all earlier tokens, know one, or guess an attribute, at equal KL."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from pathlib import Path

from tacit.hidden_states import Bench, Sizes
from tacit.models import Prefixes, docstring_corpus, load, read_text
from tacit_lab.studies.hidden import attackers_page
from tacit_lab.studies.hidden.attackers import AttackerScale, clean_facts, measure_layer, packed
from tacit_lab.studies.hidden.measure import kept_facts
from tacit_lab.studies.hidden.results import write_result
from tacit_lab.studies.places import RESULTS

LENGTH, SEED = 16, 0
CHARACTERS = 2_500_000
FULL = AttackerScale(
    bank=3000,
    calibration=4000,
    sizes=Sizes(
        geometry=1000, pairs=500, prompts=600, generated=0, queries=600, trained=2000, least_cell=1
    ),
    grid=(0.25, 1.0, 4.0, 16.0, 64.0),
    codewords=(64, 1024),
    books=("codebook-euclidean", "argmax"),
    prompts=300,
    candidates=256,
    topics=12,
)
FAST = AttackerScale(
    bank=400,
    calibration=600,
    sizes=Sizes(
        geometry=200, pairs=100, prompts=100, generated=0, queries=100, trained=100, least_cell=1
    ),
    grid=(0.25, 1.0, 4.0, 16.0, 64.0),
    codewords=(8, 32),
    books=("codebook-euclidean", "argmax"),
    prompts=40,
    candidates=32,
    topics=4,
)


def main() -> int:
    """Measure the layers, write rows and page, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="one layer, in a minute or two")
    parser.add_argument("--model", default="tacit/small", help="a folder or a name")
    parser.add_argument("--texts", type=Path, help="where prompts come from; docstrings if not")
    parser.add_argument("--layers", type=int, nargs="+", default=None, help="three, if not given")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    arguments = parser.parse_args()
    scale, name = (FAST, "hidden-attackers-fast") if arguments.fast else (FULL, "hidden-attackers")
    start = time.perf_counter()
    model = load(arguments.model)
    middle = (model.layers + 1) // 2
    three = [middle] if arguments.fast else sorted({1, middle, model.layers - 1})
    layers = arguments.layers or three
    text = read_text(arguments.texts) if arguments.texts else docstring_corpus()
    prefixes = Prefixes.draw(
        model.stream(text[:CHARACTERS]),
        bank=scale.bank, calibration=scale.calibration, held_out=scale.sizes.prompts,
        length=LENGTH, rng=SEED,
    )  # fmt: skip
    arguments.out.mkdir(parents=True, exist_ok=True)
    bench = Bench(model, prefixes, scale.sizes, SEED, tuple(layers))
    key = hashlib.sha256(prefixes.bank.numpy().tobytes()).hexdigest()[:16]
    points, clean = [], []
    for layer in layers:
        points += measure_layer(
            layer, scale, bench,
            out=arguments.out / f"{name}.jsonl",
            progress=lambda label: print(
                f"{time.perf_counter() - start:6.0f} s  {label}", flush=True
            ),
        )  # fmt: skip
        clean.append(
            kept_facts(
                arguments.out / f"{name}-clean.jsonl",
                f"{model.name} {key} {scale} {layer}",
                lambda layer=layer: clean_facts(bench, layer, scale),
            )
        )
    result = {
        "experiment": name,
        "model": model.name,
        "texts": arguments.texts.name if arguments.texts else "docstrings of this installation",
        "length": LENGTH,
        "bank": scale.bank,
        "calibration": scale.calibration,
        "held_out": len(prefixes.held_out),
        "prompts": scale.prompts,
        "candidates": scale.candidates,
        "topics": scale.topics,
        "clean": clean,
        "rows": packed(points),
        "seconds": round(time.perf_counter() - start, 1),
    }
    target = arguments.out / f"{name}.json"
    write_result(target, result, "rows")
    if arguments.out == RESULTS and not arguments.fast:
        attackers_page.render()
    print("\n".join(attackers_page.findings(result)))
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
