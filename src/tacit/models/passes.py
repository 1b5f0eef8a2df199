"""What a model makes of many prompts: states after several layers and predictions, in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.models.behaviours import Behaviours
from tacit.models.language import LanguageModel
from tacit.models.texts.prefixes import Prefixes


@dataclass(frozen=True, eq=False)
class Pass:
    """The last position of n prompts.

    Predictions are stored in half precision and measure nothing: codebooks are fitted on them.

    Attributes:
        states: by layer, (n, d) float32.
        behaviours: what the model predicts.
    """

    states: Mapping[int, Tensor]
    behaviours: Behaviours

    @classmethod
    def of(cls, model: LanguageModel, tokens: Tensor, layers: Iterable[int]) -> Pass:
        """Run every prompt once."""
        count, levels = len(tokens), sorted(set(layers))
        states = {layer: torch.empty(count, model.width) for layer in levels}
        logs = torch.empty(count, model.vocabulary, dtype=torch.float16)
        start = 0
        for found, logits in model.passes(tokens, levels):
            rows = slice(start, start + len(logits))
            logs[rows] = logits.log_softmax(dim=-1)
            for layer in levels:
                states[layer][rows] = found[layer]
            start = rows.stop
        return cls({layer: rows.to(model.device) for layer, rows in states.items()},
                   Behaviours(logs))  # fmt: skip


@dataclass(frozen=True, eq=False)
class Passes:
    """Disjoint sets of prompts read at the layers that are going to be measured."""

    bank: Pass
    calibration: Pass
    held_out: Pass

    @classmethod
    def of(cls, model: LanguageModel, prefixes: Prefixes, layers: Iterable[int]) -> Passes:
        """Run every prompt of all three once."""
        levels = tuple(layers)
        sets = (prefixes.bank, prefixes.calibration, prefixes.held_out)
        return cls(*(Pass.of(model, tokens, levels) for tokens in sets))
