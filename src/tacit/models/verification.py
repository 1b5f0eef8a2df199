"""Whether states, logits and continuations of a model are those of its plain forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tacit.models.anatomy import replaced
from tacit.models.padding import PADDING

if TYPE_CHECKING:
    from tacit.models.language import LanguageModel

PROMPTS, POSITIONS = 4, 8
# Largest error relative to the largest entry of what is compared: of all prompts in float32, of the
# median one in less, where rounding sends a token to another expert now and then.
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 4e-2, torch.float16: 1e-2}


@torch.no_grad()
def verify(model: LanguageModel) -> None:
    """Compare what is read, replaced and continued with plain forward passes of the model.

    Raises:
        ValueError: something does not agree, which is named.
    """
    source = torch.Generator().manual_seed(0)
    shape = (PROMPTS, min(POSITIONS, model.context))
    tokens = torch.randint(model.anatomy.embedded, shape, generator=source).to(model.device)
    output = model.network(tokens, output_hidden_states=True, use_cache=False)
    check = _Check(model.name, type(model.network).__name__, model.anatomy.dtype)
    ((found, logits),) = model.passes(tokens, range(model.layers + 1))
    check("logits", logits, output.logits[:, -1])
    check("logits of the last layer's states", model.anatomy.read_out(found[model.layers]), logits)
    listed = output.hidden_states or ()
    for layer in range(model.layers):
        # the last entry that transformers lists is after the final norm, and none of these
        plain = listed[layer][:, -1] if len(listed) == model.layers + 1 else logits[:, :0]
        check(f"states after layer {layer}", found[layer], plain)
    middle = (model.layers + 1) // 2
    for layer in sorted({0, 1, middle, model.layers}):
        states = _moved(found[layer], source)
        continued = model.continuation(tokens, layer)
        check(f"logits continued from layer {layer}", continued.logits(continued.clean_states),
              logits)  # fmt: skip
        plain = _replaced_run(model, tokens, layer, states)
        for time in ("replaced", "replaced again"):
            what = f"logits continued from the {time} state of layer {layer}"
            check(what, continued.logits(states), plain)
    _check_padding(model, check, tokens, middle, _moved(found[middle], source))


def _check_padding(
    model: LanguageModel, check: _Check, tokens: Tensor, layer: int, states: Tensor
) -> None:
    """Compare prompts of several lengths, run together, with each run alone."""
    shorter = [row[2 * place :] for place, row in enumerate(tokens) if 2 * place < len(row)]
    padded = torch.full_like(tokens[: len(shorter)], PADDING)
    for row, prompt in zip(padded, shorter, strict=True):
        row[-len(prompt) :] = prompt
    states = states[: len(shorter)]
    plain = [model.network(row[None], use_cache=False).logits[:, -1] for row in shorter]
    check("logits of padded prompts", model.logits(padded), torch.cat(plain))
    alone = [
        _replaced_run(model, row[None], layer, state[None])
        for row, state in zip(shorter, states, strict=True)
    ]
    continued = model.continuation(padded, layer).logits(states)
    check(f"logits of padded prompts continued from layer {layer}", continued, torch.cat(alone))


def _moved(states: Tensor, source: torch.Generator) -> Tensor:
    """Return states with normal noise of their own size added."""
    noise = torch.randn(states.shape, generator=source).to(states)
    return states + noise * states.square().mean().sqrt()


def _replaced_run(model: LanguageModel, tokens: Tensor, layer: int, states: Tensor) -> Tensor:
    """Run the whole network on whole prompts, their last state replaced on the way."""
    with replaced(model.anatomy, layer, states):
        logits: Tensor = model.network(tokens, use_cache=False).logits[:, -1]
    return logits


@dataclass(frozen=True)
class _Check:
    name: str
    kind: str
    dtype: torch.dtype

    def __call__(self, what: str, found: Tensor, plain: Tensor) -> None:
        """Raise unless two tensors agree to within rounding."""
        bound = TOLERANCES.get(self.dtype, TOLERANCES[torch.float32])
        error = float("nan")
        if found.shape == plain.shape:
            rows = (found.float() - plain.float()).abs().amax(dim=1)
            worst = rows.max() if self.dtype == torch.float32 else rows.median()
            error = float(worst / plain.float().abs().max())
        if not error <= bound:
            raise ValueError(
                f"name_or_path: cannot take {self.name!r}, a {self.kind}, apart: its {what} differ "
                f"from those of its plain forward pass by {error:.2g} of the largest, more than "
                f"{bound:g} in {self.dtype}"
            )
