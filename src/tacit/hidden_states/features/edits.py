"""Edits of the surface of a prompt, and two that change what it says."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from tacit._ground.checks import RandomSource, generator
from tacit.models.language import LanguageModel
from tacit.models.padding import pad, unpadded

SURFACE: dict[str, Callable[[str], str]] = {
    "title case": lambda text: text.title(),
    "lower case": lambda text: text.lower(),
    "upper case": lambda text: text.upper(),
    "double space": lambda text: text.replace(" ", "  ", 1),
    "no commas": lambda text: text.replace(",", ""),
}
DEEPER = ("another word", "another end")


def surface_edits(
    model: LanguageModel, prompts: Tensor, *, rng: RandomSource = None
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return prompts before and after each kind of edit, for those that it changes.

    Case, spaces and commas are edited as text, which needs a tokenizer; ``"another word"`` puts
    another prompt's token in the place of one in the middle, ``"another end"`` of the last.

    Args:
        model: the language model.
        prompts: tokens, (n, T), −1 where padded.
        rng: source of the other tokens.

    Raises:
        ValueError: prompts that are none of the model's.

    Example:
        >>> import torch
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
        >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes)))
        >>> found = surface_edits(model, torch.arange(48).reshape(16, 3), rng=0)
        >>> sorted(found)
        ['another end', 'another word']
    """
    tokens = model.check_tokens(prompts, name="prompts")
    rows = [row.tolist() for row in unpadded(tokens.cpu())]
    found: dict[str, tuple[Tensor, Tensor]] = {}
    if model.tokenizer is not None:
        texts = [model.decode(row) for row in rows]
        for name, change in SURFACE.items():
            pairs = [(text, change(text)) for text in texts if text.strip()]
            read = [(model.encode(one), model.encode(two)) for one, two in pairs if two != one]
            _keep(found, name, [pair for pair in read if max(map(len, pair)) <= model.context])
    source = generator(rng)
    for name in DEEPER:
        changed = []
        for row in rows:
            place = len(row) - 1 if name == "another end" else len(row) // 2
            other = rows[int(source.integers(len(rows)))][-1]
            if row[place] != other:
                changed.append((row, [*row[:place], other, *row[place + 1 :]]))
        _keep(found, name, changed)
    device = tokens.device
    return {name: (one.to(device), two.to(device)) for name, (one, two) in found.items()}


def _keep(
    found: dict[str, tuple[Tensor, Tensor]], name: str, pairs: list[tuple[list[int], list[int]]]
) -> None:
    if len(pairs) > 1:
        found[name] = pad([one for one, _ in pairs]), pad([two for _, two in pairs])
