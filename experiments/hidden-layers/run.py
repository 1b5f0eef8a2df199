"""Every layer: noise at equal measured KL, codebooks, and what the hidden-state paper says."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from pathlib import Path

from tacit.hidden_states import Bench, Sizes
from tacit.models import Prefixes, docstring_corpus, load, read_text
from tacit_lab.studies.hidden import figure, verdicts
from tacit_lab.studies.hidden.measure import LayerScale, geometry_facts, kept_facts, measure_layer
from tacit_lab.studies.hidden.results import write_result
from tacit_lab.studies.hidden.rows import packed
from tacit_lab.studies.places import RESULTS
from tacit_lab.studies.reproductions.page import render

LENGTH, SEED = 32, 0
FULL = LayerScale(
    bank=2000,
    calibration=6000,
    sizes=Sizes(
        geometry=2000, pairs=1000, prompts=600, generated=0, queries=600, trained=2000, least_cell=1
    ),
    budgets=(0.25, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
    coarse=(0.25, 2.0, 16.0),
    targets=(0.5, 1.0, 2.0),
    exponents=(0.25, 0.5, 0.75, 1.5, 2.0),
    epsilons=(3.0, 16.0),
    codewords=(1024,),
    books=("codebook-euclidean", "codebook-decision", "argmax"),
)
FAST = LayerScale(
    bank=400,
    calibration=600,
    sizes=Sizes(
        geometry=200, pairs=100, prompts=100, generated=0, queries=100, trained=100, least_cell=1
    ),
    budgets=(0.5, 2.0, 8.0),
    coarse=(0.5, 8.0),
    targets=(0.5,),
    exponents=(0.5, 2.0),
    epsilons=(16.0,),
    codewords=(32,),
    books=("codebook-euclidean", "argmax"),
)
FAST_CHARACTERS = 400_000


def main() -> int:
    """Measure all layers, write rows and figure, and print the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="two layers, in a minute")
    parser.add_argument("--model", default="tacit/small", help="a folder or a name")
    parser.add_argument("--texts", type=Path, help="where prompts come from; docstrings if not")
    parser.add_argument("--layers", type=int, nargs="+", help="of the model, all if not given")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    arguments = parser.parse_args()
    scale, name = (FAST, "hidden-layers-fast") if arguments.fast else (FULL, "hidden-layers")
    start = time.perf_counter()
    model = load(arguments.model)
    layers = arguments.layers or (
        [1, model.layers] if arguments.fast else range(1, model.layers + 1)
    )
    text = read_text(arguments.texts) if arguments.texts else docstring_corpus()
    prefixes = Prefixes.draw(
        model.stream(text[:FAST_CHARACTERS] if arguments.fast else text),
        bank=scale.bank,
        calibration=scale.calibration,
        held_out=scale.sizes.prompts,
        length=LENGTH,
        rng=SEED,
    )
    arguments.out.mkdir(parents=True, exist_ok=True)
    bench = Bench(model, prefixes, scale.sizes, SEED, tuple(layers))
    key = hashlib.sha256(prefixes.calibration.numpy().tobytes()).hexdigest()[:16]
    rows, facts = [], []
    for layer in layers:
        facts.append(
            kept_facts(
                arguments.out / f"{name}-geometry.jsonl",
                f"{model.name} {key} {scale.sizes} {layer}",
                lambda layer=layer: geometry_facts(bench.at(layer), scale.exponents),
            )
        )
        rows += measure_layer(
            layer, scale, bench,
            out=arguments.out / f"{name}.jsonl",
            progress=lambda label: print(
                f"{time.perf_counter() - start:6.0f} s  {label}", flush=True
            ),
        )  # fmt: skip
    result = {
        "experiment": name,
        "model": model.name,
        "recipe": model.recipe,
        "texts": arguments.texts.name if arguments.texts else "docstrings of this installation",
        "length": LENGTH,
        "bank": scale.bank,
        "calibration": scale.calibration,
        "prompts": scale.sizes.prompts,
        "queries": scale.sizes.queries,
        "targets": list(scale.targets),
        "epsilons": list(scale.epsilons),
        "layers": facts,
        **packed(rows),
        "seconds": round(time.perf_counter() - start, 1),
    }
    target = arguments.out / f"{name}.json"
    write_result(target, result, "rows")
    published = arguments.out == RESULTS and not arguments.fast
    figure.draw(result, (figure.IMAGES if published else arguments.out) / f"{name}.svg")
    if published:
        render()
    for verdict in verdicts.verdicts(result):
        print(f"{verdict.word}: {verdict.claim}\n    {verdict.found}")
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
