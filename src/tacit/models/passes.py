"""What a model makes of many prompts: states after several layers and predictions, in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from tacit.models.behaviours import Behaviours
from tacit.models.continuation import Continuation
from tacit.models.language import LanguageModel
from tacit.models.padding import Places, alike, prompt_lengths
from tacit.models.texts.prefixes import Prefixes

# predictions of a bank that are stored, half a gigabyte of them
KEPT_ENTRIES = 2**28

Runs = Iterable[tuple[Mapping[int, Tensor], Tensor]]


def lone_states(model: LanguageModel, layer: int, tokens: Tensor) -> Tensor:
    """Return the last state of every prompt, (n, d), no bit of which depends on another prompt.

    Args:
        model: the language model.
        layer: 1 … L, or 0 for the embeddings.
        tokens: (n, T), −1 before the first token of a shorter prompt.
    """
    ids = model.check_tokens(tokens)
    found = torch.empty(len(ids), model.width, device=ids.device)
    for kept, run in _lone(ids):
        found[kept] = model.states(run, layer)[: len(kept)].float()
    return found


def _lone(ids: Tensor) -> Iterator[tuple[Places, Tensor]]:
    """Yield which prompts are read in a pass, and its tokens: of one shape a length, unpadded."""
    lengths = prompt_lengths(ids).cpu().numpy()
    for kept, run in alike(lengths):
        yield kept, ids[torch.from_numpy(run).to(ids.device), -lengths[run[0]] :]


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
    def of(
        cls, model: LanguageModel, tokens: Tensor, layers: Iterable[int], *, most: int | None = None
    ) -> Pass:
        """Run every prompt once.

        Args:
            model: the language model.
            tokens: prompts, (n, T).
            layers: each 1 … L.
            most: entries n·V up to which predictions are stored; beyond it they are made anew
                where they are read. None for no end.
        """
        levels = sorted(set(layers))
        parts = model.clean_runs(tokens, levels)
        if most is None or len(tokens) * model.vocabulary <= most:
            return cls.stored(model, len(tokens), levels, parts)
        states = _empty(model, len(tokens), levels)
        likeliest = torch.empty(len(tokens), dtype=torch.int64)
        for rows, found, logits in _numbered(parts):
            likeliest[rows] = logits.log_softmax(dim=-1).half().argmax(dim=1).cpu()
            for layer in levels:
                states[layer][rows] = found[layer]
        return cls(_placed(model, states), Rerun(model, tokens, likeliest))

    @classmethod
    def alone(cls, model: LanguageModel, tokens: Tensor, layer: int) -> Pass:
        """Run every prompt so that no bit of what is read of it depends on another prompt.

        Args:
            model: the language model.
            tokens: prompts, (n, T).
            layer: 1 … L.
        """
        ids = model.check_tokens(tokens)
        states = _empty(model, len(ids), [layer])
        logs = torch.empty(len(ids), model.vocabulary, dtype=torch.float16)
        for kept, run in _lone(ids):
            ((found, logits),) = model.clean_runs(run, [layer])
            states[layer][kept] = found[layer][: len(kept)].float().cpu()
            logs[kept] = logits.log_softmax(dim=-1)[: len(kept)].half().cpu()
        return cls(_placed(model, states), Behaviours(logs))

    @classmethod
    def stored(cls, model: LanguageModel, count: int, levels: Sequence[int], parts: Runs) -> Pass:
        """Store states and logits that come some prompts at a time."""
        states = _empty(model, count, levels)
        logs = torch.empty(count, model.vocabulary, dtype=torch.float16)
        for rows, found, logits in _numbered(parts):
            logs[rows] = logits.log_softmax(dim=-1)
            for layer in levels:
                states[layer][rows] = found[layer]
        return cls(_placed(model, states), Behaviours(logs))


class Rerun(Behaviours):
    """What a model predicts after n prompts, run again for the rows that are read.

    Memory does not grow with n·V, and the numbers are those that are stored of fewer prompts.

    Args:
        model: the language model.
        tokens: prompts, (n, T).
        likeliest: the likeliest token after each, (n,).
    """

    def __init__(self, model: LanguageModel, tokens: Tensor, likeliest: Tensor) -> None:
        self.model, self.tokens, self.tops = model, tokens, likeliest
        self.count, self.vocabulary = len(tokens), model.vocabulary

    def probabilities(self, rows: slice | Tensor) -> Tensor:
        parts = [
            logits.log_softmax(dim=-1).half().cpu()
            for _, logits in self.model.clean_runs(self.tokens[rows], [self.model.layers])
        ]
        return torch.softmax(torch.cat(parts).float(), dim=1)

    def argmax(self) -> Tensor:
        return self.tops.clone()

    def select(self, rows: Tensor) -> Behaviours:
        return Rerun(self.model, self.tokens[rows], self.tops[rows])


def seen(runs: Iterable[Continuation]) -> Runs:
    """Yield what prompts that are ready to be continued showed."""
    return (({run.layer: run.clean_states}, run.clean_logits) for run in runs)


def _empty(model: LanguageModel, count: int, levels: Iterable[int]) -> dict[int, Tensor]:
    return {layer: torch.empty(count, model.width) for layer in levels}


def _placed(model: LanguageModel, states: Mapping[int, Tensor]) -> dict[int, Tensor]:
    return {layer: rows.to(model.device) for layer, rows in states.items()}


def _numbered(parts: Runs) -> Iterator[tuple[slice, Mapping[int, Tensor], Tensor]]:
    """Yield which rows the parts are, and the parts."""
    start = 0
    for found, logits in parts:
        rows = slice(start, start + len(logits))
        yield rows, found, logits
        start = rows.stop


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
        levels, public = sorted(set(layers)), prefixes.calibration
        first, others = public[:trained], public[trained:]
        learnt = None
        if continues and len(levels) == 1:
            learnt = model.continuation(first, levels[0])
        parts = model.clean_runs(first, levels) if learnt is None else seen([learnt])
        if len(others):
            parts = chain(parts, model.clean_runs(others, levels))
        bank = Pass.of(model, prefixes.bank, levels, most=KEPT_ENTRIES)
        return cls(bank, Pass.stored(model, len(public), levels, parts), learnt)
