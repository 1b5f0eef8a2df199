"""The attacker who knows all earlier tokens, timed: prompts × candidates on one layer of a model.

Every candidate is run through the layers below once more after its prefix, and through those above
where codes read predictions. Codebooks and designs are fitted before the clock starts.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from tacit.attacks import CandidateTokens, known_prefix
from tacit.attacks.exact.channels import Channel, CodeChannel, GaussianChannel
from tacit.hidden_states import Codebook, CodebookFit, designs_at_budget, measure_geometry
from tacit.models import LanguageModel, Prefixes, docstring_corpus, load

CHARACTERS, LENGTH, CODEWORDS, KL_BUDGET = 2_500_000, 16, 1024, 4.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tacit/small", help="a folder or a name")
    parser.add_argument("--layer", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=300)
    parser.add_argument("--candidates", type=int, default=256)
    parser.add_argument("--calibration", type=int, default=4000)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    model = load(options.model)
    sets = Prefixes.draw(
        model.stream(docstring_corpus()[:CHARACTERS]),
        bank=options.prompts, calibration=options.calibration, held_out=1, length=LENGTH, rng=0,
    )  # fmt: skip
    rows = []
    for name, (channel, released) in releases(model, options.layer, sets).items():
        start = time.perf_counter(), time.process_time()
        found = known_prefix(
            model,
            options.layer,
            sets.bank,
            released,
            channel,
            candidates=CandidateTokens(count=options.candidates),
        )
        rows.append(
            {
                "release": name,
                "seconds": time.perf_counter() - start[0],
                "processor_seconds": time.process_time() - start[1],
                "success": found.success,
                "interval": found.interval,
                "prior": found.prior,
            }
        )
    console = Console(soft_wrap=True)
    console.print(
        f"{options.prompts} prompts × {options.candidates} candidates, layer {options.layer} of "
        f"{model.layers}, {torch.get_num_threads()} threads; without the release "
        f"{rows[0]['prior']:.2f}"
    )
    for row in rows:
        low, high = row["interval"]
        console.print(
            f"{row['seconds']:6.1f} s, {row['processor_seconds']:5.1f} s of a processor  "
            f"{row['release']:30} right for {row['success']:.2f} "
            f"[{low:.2f}, {high:.2f}]"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def releases(model: LanguageModel, layer: int, sets: Prefixes) -> dict[str, tuple[Channel, Any]]:
    """Return how each release is drawn, and what was released of the prompts attacked."""
    public, seen = read(model, layer, sets.calibration), read(model, layer, sets.bank)
    ways = {
        "code by state": CodebookFit(size=CODEWORDS, least_cell=1),
        "code by behaviour": CodebookFit(
            size=CODEWORDS, metric="behaviour", decision_cost=4.0, least_cell=1
        ),
        "likeliest token": CodebookFit(metric="argmax", least_cell=1),
    }
    books = {
        name: Codebook.fit(
            public[0],
            how,
            behaviours=None if how.metric == "euclidean" else public[1],
            rng=0,
            progress=False,
        )
        for name, how in ways.items()
    }
    found: dict[str, tuple[Channel, Any]] = {}
    for name, book in books.items():
        channel = CodeChannel(
            lambda states, behaviours, book=book: book.assign(states, behaviours=behaviours),
            predicts=book.centres is None,
        )
        released = book.assign(seen[0], behaviours=seen[1])
        found[f"{name}, C = {book.size:,}"] = channel, released
    geometry = measure_geometry(model, layer, sets.calibration, rng=0)
    noise = designs_at_budget(geometry, KL_BUDGET)["isotropic"].covariance
    clean = seen[0].double().numpy()
    found[f"isotropic noise, K = {KL_BUDGET:g}"] = (
        GaussianChannel(noise), clean + noise.sample(len(clean), 0)
    )  # fmt: skip
    return found


def read(model: LanguageModel, layer: int, tokens: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """Return the states of prompts and what the model predicts after them."""
    parts = [(states[layer], logits) for states, logits in model.passes(tokens, [layer])]
    states, logits = (torch.cat(column).cpu() for column in zip(*parts, strict=True))
    return states, logits


if __name__ == "__main__":
    main()
