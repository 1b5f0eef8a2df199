"""Fisher information of a layer against plain forward-backward passes of as many prompts.

The model has the shape of ``tacit/small`` with random weights, which cost what trained ones do.
"plain" runs the whole network on the same batches and takes the gradient of the last position's
loss with respect to the embeddings, no parameter's gradient included: the cheapest pass that could
give a state's gradient. "training" takes the parameters' gradients of the loss at all positions.
Rounds alternate and the least time of each counts.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from tacit.hidden_states.geometry.fisher import fisher_information
from tacit.hidden_states.geometry.methods import FisherFit
from tacit.models.language import TOKENS_PER_BATCH, LanguageModel
from tacit.models.loading import load

LENGTH = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prefixes", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layer", type=int, default=3)
    parser.add_argument(
        "--exact", type=int, default=64, help="prompts of the exact one, 0 for none"
    )
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=4096, n_positions=64, n_embd=256, n_layer=6, n_head=4,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = load(GPT2LMHeadModel(config))
    tokens = torch.randint(model.vocabulary, (options.prefixes, LENGTH + 1))
    prompts, followers = tokens[:, :-1], tokens[:, -1]

    def measure(count: int | None = None, **choices: object) -> Callable[[], object]:
        part = prompts[:count]
        return lambda: fisher_information(model, options.layer, part, FisherFit(**choices), rng=0)

    runs: dict[str, Callable[[], object]] = {
        "plain": lambda: plain(model, prompts, followers),
        "training": lambda: training(model, tokens),
        "true": measure(label_source="true", next_tokens=followers),
        "model-sampled": measure(),
        "model-sampled, 4 draws": measure(draws=4),
        "diagonal, model-sampled": measure(diagonal=True),
        "top-k, k = 32": measure(label_source="top-k"),
    }
    seconds = least_times(runs, options.rounds)
    scale = dict.fromkeys(seconds, 1.0)
    if options.exact:
        name = f"model-exact (from {options.exact} prompts)"
        run = measure(options.exact, label_source="model-exact")
        seconds |= least_times({name: run}, 1)
        scale[name] = options.prefixes / options.exact
    rows = [
        {
            "run": name,
            "seconds": taken * scale[name],
            "times_plain": taken * scale[name] / seconds["plain"],
        }
        for name, taken in seconds.items()
    ]
    console = Console()
    console.print(f"{options.prefixes} prompts of {LENGTH} tokens, layer {options.layer} of 6")
    for row in rows:
        console.print(
            f"{row['run']:36}{row['seconds']:9.2f} s{row['times_plain']:9.2f} × plain",
            highlight=False,
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def least_times(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    found = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            found[name] = min(found[name], time.perf_counter() - start)
    return found


def batches(tokens: Tensor) -> tuple[Tensor, ...]:
    return torch.split(tokens, TOKENS_PER_BATCH // LENGTH)


def plain(model: LanguageModel, prompts: Tensor, followers: Tensor) -> None:
    network = model.network
    for batch, label in zip(batches(prompts), batches(followers), strict=True):
        inputs = network.get_input_embeddings()(batch).requires_grad_()
        final = network.base_model(inputs_embeds=inputs, use_cache=False).last_hidden_state[:, -1]
        loss = torch.nn.functional.cross_entropy(network.lm_head(final), label, reduction="sum")
        torch.autograd.grad(loss, inputs)


def training(model: LanguageModel, tokens: Tensor) -> None:
    network = model.network.requires_grad_(True)
    for batch in batches(tokens):
        logits = network(batch[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        network.zero_grad()
    network.requires_grad_(False)


if __name__ == "__main__":
    main()
