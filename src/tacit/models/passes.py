"""What a model makes of many prompts: states after several layers and predictions, in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from tacit.models.behaviours import Behaviours
from tacit.models.continuation import Continuation
from tacit.models.language import LanguageModel
from tacit.models.texts.prefixes import Prefixes

Runs = Iterable[tuple[Mapping[int, Tensor], Tensor]]


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
        levels = sorted(set(layers))
        return cls._stored(model, len(tokens), levels, model.passes(tokens, levels))

    @classmethod
    def continued(
        cls, model: LanguageModel, runs: Sequence[Continuation], others: Tensor | None = None
    ) -> Pass:
        """Take what prompts that are ready to be continued showed, and run the others once."""
        level, count = runs[0].layer, sum(map(len, runs))
        seen = (({level: run.clean_states}, run.clean_logits) for run in runs)
        return cls._of_both(model, count, [level], seen, others)

    @classmethod
    def _of_both(cls, model: LanguageModel, count: int, levels: Sequence[int], seen: Runs,
                 others: Tensor | None) -> Pass:  # fmt: skip
        """Store what was seen of some prompts, and run the others once."""
        if others is None or len(others) == 0:
            return cls._stored(model, count, levels, seen)
        whole = count + len(others)
        return cls._stored(model, whole, levels, chain(seen, model.passes(others, levels)))

    @classmethod
    def _stored(
        cls,
        model: LanguageModel,
        count: int,
        levels: Sequence[int],
        parts: Runs,
    ) -> Pass:
        """Store states and logits that come some prompts at a time."""
        states = {layer: torch.empty(count, model.width) for layer in levels}
        logs = torch.empty(count, model.vocabulary, dtype=torch.float16)
        start = 0
        for found, logits in parts:
            rows = slice(start, start + len(logits))
            logs[rows] = logits.log_softmax(dim=-1)
            for layer in levels:
                states[layer][rows] = found[layer]
            start = rows.stop
        return cls({layer: rows.to(model.device) for layer, rows in states.items()},
                   Behaviours(logs))  # fmt: skip


@dataclass(frozen=True, eq=False)
class Passes:
    """Disjoint sets of prompts read at the layers that are going to be measured.

    Attributes:
        bank: the secrets.
        calibration: public prompts.
        learnt: the first of these, ready to be continued, where one layer's codewords are trained
            through the layers above it.
    """

    bank: Pass
    calibration: Pass
    learnt: Continuation | None = None

    @classmethod
    def of(
        cls,
        model: LanguageModel,
        prefixes: Prefixes,
        layers: Iterable[int],
        trained: int,
        *,
        continues: bool = False,
    ) -> Passes:
        """Run every prompt of both once.

        Args:
            model: the language model.
            prefixes: bank and calibration prompts.
            layers: each 1 … L.
            trained: calibration prompts, the first, that codewords may be trained on.
            continues: whether these are kept ready, where it is one layer; the bits that are read
                are the same.
        """
        levels = sorted(set(layers))
        bank, public = Pass.of(model, prefixes.bank, levels), prefixes.calibration
        first, others = public[:trained], public[trained:]
        if continues and len(levels) == 1:
            learnt = model.continuation(first, levels[0])
            return cls(bank, Pass.continued(model, [learnt], others), learnt)
        seen = model.clean_runs(first, levels)
        return cls(bank, Pass._of_both(model, len(first), levels, seen, others))
