"""How far one text more moves what the other texts of a batch add, by rounding alone.

‖S(D + t) − S(D) − S(t)‖ / C of a small Llama, where S is the sum of gradients of single texts, each
clipped to C, D are random texts of 5 to 14 tokens and t is one of 60: in float32 and under autocast
to bfloat16, padded to the longest text of the batch and to 60 tokens in every batch.
"""

from __future__ import annotations

import argparse

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from tacit.gradients.model import ModelGradients

LENGTH, VOCABULARY, CLIP = 60, 60, 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=256)
    options = parser.parse_args()
    source = torch.Generator().manual_seed(1)
    lengths = torch.randint(5, 15, (options.texts,), generator=source).tolist()
    texts = [torch.randint(3, VOCABULARY, (n,), generator=source) for n in lengths]
    more = torch.randint(3, VOCABULARY, (LENGTH,), generator=source)
    table = Table("passes", "padded to the longest", f"padded to {LENGTH}")
    for half in (False, True):
        moved = [f"{_moved(texts, more, half, least):.2g} C" for least in (0, LENGTH)]
        table.add_row("bfloat16" if half else "float32", *moved)
    Console().print(table)


def _moved(texts: list[Tensor], more: Tensor, half: bool, least: int) -> float:
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2,
        )
    )  # fmt: skip
    both, others, alone = (
        _clipped(model, chosen, half, least) for chosen in ([*texts, more], texts, [more])
    )
    return float((both - others - alone).norm()) / CLIP


def _clipped(model: nn.Module, texts: list[Tensor], half: bool, least: int) -> Tensor:
    """Return the sum of the texts' clipped gradients, all parameters in a row."""
    longest = max(least, *(len(text) for text in texts))
    tokens = torch.stack([functional.pad(text, (0, longest - len(text))) for text in texts])
    mask = torch.stack(
        [functional.pad(torch.ones(len(text)), (0, longest - len(text))) for text in texts]
    )
    gradients = ModelGradients(model, dict(model.named_parameters()))
    gradients.attach()
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            logits = model(input_ids=tokens, attention_mask=mask).logits[:, :-1].float()
        each = functional.cross_entropy(
            logits.transpose(1, 2), tokens[:, 1:], reduction="none"
        ) * mask[:, 1:]  # fmt: skip
        gradients.backward(each.sum(1) / mask[:, 1:].sum(1))
        squared = sum(gradients.squared_norms().values())
        factors = (CLIP / torch.as_tensor(squared).sqrt()).clamp(max=1.0)
        sums = gradients.sums(dict.fromkeys(gradients.parameters, factors))
    finally:
        gradients.detach()
    return torch.cat([sums[name].double().flatten() for name in sorted(sums)])


if __name__ == "__main__":
    main()
