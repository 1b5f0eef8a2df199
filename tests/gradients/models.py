"""Tiny models with low-rank adapters, and their gradients one example at a time."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY, WIDTH, LENGTH, EXAMPLES = 13, 8, 6, 4
Batch = dict[str, Tensor]
Adapted = tuple[nn.Module, dict[str, nn.Module]]


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=WIDTH, n_layer=2, n_head=2,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
            bos_token_id=0, eos_token_id=0, initializer_range=0.2,
        )
    )  # fmt: skip


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=12, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=LENGTH,
            use_cache=False, pad_token_id=0,
        )
    )  # fmt: skip


def bert() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(
        BertConfig(
            vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=12, num_hidden_layers=2,
            num_attention_heads=2, max_position_embeddings=LENGTH, num_labels=3,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
    )  # fmt: skip


FAMILIES: dict[str, tuple[Callable[[], nn.Module], list[str]]] = {
    "gpt2": (gpt2, ["c_attn", "c_proj", "c_fc"]),
    "llama": (llama, ["q_proj", "v_proj", "o_proj", "down_proj"]),
    "bert": (bert, ["query", "value", "dense"]),
}


@functools.cache
def _base(family: str) -> nn.Module:
    torch.manual_seed(0)
    return FAMILIES[family][0]()


def adapted(family: str, dtype: torch.dtype = torch.float32) -> Adapted:
    """A model with adapters of rank 2 whose B is not zero, and its layers B by name."""
    from peft import LoraConfig, get_peft_model

    base = copy.deepcopy(_base(family))
    torch.manual_seed(1)
    config = LoraConfig(
        r=2, lora_alpha=6, target_modules=FAMILIES[family][1], fan_in_fan_out=family == "gpt2"
    )
    model = get_peft_model(base, config)
    layers = {}
    for name, module in model.named_modules():
        if name.endswith("lora_A.default"):
            module.weight.requires_grad_(False)
        if name.endswith("lora_B.default"):
            nn.init.normal_(module.weight, std=0.1)
            layers[name] = module
    return model.to(dtype), layers


def batch(family: str, *, padded: bool = False) -> Batch:
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(1, VOCABULARY, (EXAMPLES, LENGTH), generator=generator)
    mask = torch.ones_like(tokens)
    if padded:
        for row, length in enumerate((LENGTH, 4, 3, 5)):
            mask[row, length:] = 0
    found = {"input_ids": tokens, "attention_mask": mask}
    if family == "bert":
        found["labels"] = torch.randint(0, 3, (EXAMPLES,), generator=generator)
    return found


def losses(model: nn.Module, data: Batch) -> Tensor:
    """One loss per example: of its label, or the mean over its tokens that are not padding."""
    mask = data["attention_mask"]
    logits = model(input_ids=data["input_ids"], attention_mask=mask).logits
    if "labels" in data:
        return functional.cross_entropy(logits, data["labels"], reduction="none")
    targets = data["input_ids"][:, 1:]
    each = functional.cross_entropy(logits[:, :-1].mT, targets, reduction="none")
    kept = mask[:, 1:]
    return (each * kept).sum(dim=1) / kept.sum(dim=1)


def one_by_one(
    layers: Mapping[str, nn.Module], run: Callable[[int], Tensor], count: int
) -> dict[str, Tensor]:
    """Weight gradients (B, …) of one example at a time by plain autograd.

    Args:
        layers: of the model that ``run`` runs, in float64.
        run: gives the loss of one example, alone in its batch.
        count: B.
    """
    weights = {name: layer.weight for name, layer in layers.items()}
    weights |= {
        f"{name}.bias": layer.bias
        for name, layer in layers.items()
        if layer.bias is not None and layer.bias.requires_grad
    }
    states = [one.requires_grad for one in weights.values()]
    for one in weights.values():
        one.requires_grad_(True)
    rows = [torch.autograd.grad(run(index), list(weights.values())) for index in range(count)]
    for one, state in zip(weights.values(), states, strict=True):
        one.requires_grad_(state)
    return {name: torch.stack([row[index] for row in rows]) for index, name in enumerate(weights)}


def reference(family: str, data: Batch) -> dict[str, Tensor]:
    """Gradients of an adapted model in float64, one example at a time."""
    model, layers = adapted(family, torch.float64)

    def run(index: int) -> Tensor:
        return losses(model, {name: one[index : index + 1] for name, one in data.items()})[0]

    return one_by_one(layers, run, EXAMPLES)


def largest_error(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """The largest ‖G_i − G'_i‖/‖G'_i‖ over examples, of the gradients of all layers."""
    assert list(found) == list(expected)
    wrong = torch.cat(
        [(found[name].double() - one).flatten(1) for name, one in expected.items()], 1
    )
    right = torch.cat([one.flatten(1) for one in expected.values()], 1)
    return float((wrong.norm(dim=1) / right.norm(dim=1)).max())
