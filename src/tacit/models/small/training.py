"""Tacit's own small language model: trained where it is used, from any text, in minutes."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

import tacit
from tacit._ground.checks import choice, integer, positive
from tacit.models.language import LanguageModel
from tacit.models.loading import check_device
from tacit.models.small.optimisation import OPTIMIZER, Budget, Outcome, fit, perplexity
from tacit.models.small.storage import (
    check_new_folder,
    save_model,
)
from tacit.models.texts.corpus import (
    block_groups,
    digest,
    hold_out,
    line_blocks,
    read_text,
)

END = "<|end|>"
SMALLEST_VOCABULARY = 257
HELD_OUT_TOKENS = 100_000
MINUTES = 3.5
RECIPE_FORMAT = 1


@dataclass(frozen=True)
class Settings:
    """What determines a trained model besides its text."""

    width: int = 256
    layers: int = 6
    heads: int = 4
    context: int = 64
    vocabulary: int = 4096
    batch: int = 32
    minutes: float | None = MINUTES
    steps: int | None = None
    seed: int = 0
    precision: str = "auto"

    def checked(self) -> Settings:
        """Return these settings, or raise a ValueError that names the first bad one."""
        for name in ("width", "layers", "heads", "batch"):
            integer(name, getattr(self, name), minimum=1)
        integer("context", self.context, minimum=2)
        integer("vocabulary", self.vocabulary, minimum=SMALLEST_VOCABULARY)
        integer("seed", self.seed, minimum=0)
        if self.width % self.heads:
            raise ValueError(f"width: expected a multiple of heads={self.heads}, got {self.width}")
        if (self.minutes is None) == (self.steps is None):
            raise ValueError(
                f"steps: expected either steps or minutes, got steps={self.steps!r} and "
                f"minutes={self.minutes!r}"
            )
        if self.minutes is not None:
            positive("minutes", self.minutes)
        if self.steps is not None:
            integer("steps", self.steps, minimum=1)
        choice("precision", self.precision, ("auto", "float32", "bfloat16"))
        return self

    @property
    def budget(self) -> Budget:
        """The budget of the optimisation."""
        return Budget(None if self.minutes is None else 60.0 * self.minutes, self.steps)


def train(
    text: str | os.PathLike[str],
    *,
    minutes: float | None = None,
    steps: int | None = None,
    width: int = 256,
    layers: int = 6,
    heads: int = 4,
    context: int = 64,
    vocabulary: int = 4096,
    batch: int = 32,
    seed: int = 0,
    precision: str = "auto",
    device: str = "cpu",
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> LanguageModel:
    """Train a GPT-2-type model with its own byte-level BPE on a text.

    Args:
        text: the text itself, or a path (not a str) to a .txt or .txt.gz file or a folder of them.
        minutes: time of the optimisation alone, three and a half without ``steps``.
        steps: optimiser steps instead of a time, for a result that can be repeated.
        width: d, numbers in a state, a multiple of ``heads``.
        layers: L, decoder layers.
        heads: attention heads of a layer.
        context: the most tokens the model reads.
        vocabulary: V, tokens of the BPE at most, at least 257.
        batch: windows of ``context`` tokens per step.
        seed: of the initial weights and of the order of the text.
        precision: of the products in training, ``"float32"``, ``"bfloat16"`` or the faster one
            here; weights and everything after training are float32.
        device: where it trains and stays.
        out: folder to write, which may not exist yet; written whole at the end or not at all.
        progress: whether a bar is shown; None for when stderr is a terminal.

    Returns:
        The model; ``recipe`` has its digest of the text, settings, held-out perplexity per token
        (of every fiftieth block of the text, which it never saw), time and versions.

    Raises:
        ValueError: a bad setting, or a text too short to learn from.

    Example:
        >>> model = train("To be, or not to be. " * 200, steps=2, width=16, layers=2, heads=2,
        ...               context=8, vocabulary=270, batch=4, precision="float32")
        >>> model.width, model.layers, model.decode(model.encode("not to be"))
        (16, 2, 'not to be')
    """
    settings = Settings(
        width, layers, heads, context, vocabulary, batch,
        MINUTES if minutes is None and steps is None else minutes,
        steps, seed, precision,
    ).checked()  # fmt: skip
    place = check_device(device)
    target = None if out is None else check_new_folder("out", out)
    content = read_text(text) if isinstance(text, os.PathLike) else text
    name = "trained" if target is None else str(target)
    return _train(content, settings, place, target, progress, name)


def _train(
    text: str,
    settings: Settings,
    device: torch.device,
    out: Path | None,
    progress: bool | None,
    name: str,
) -> LanguageModel:
    learned, held_out = hold_out(text)
    tokenizer = _byte_pairs(learned, settings.vocabulary)
    stream, unseen = _tokens(tokenizer, learned), _tokens(tokenizer, held_out)[:HELD_OUT_TOKENS]
    needed = (settings.context + 1) * settings.batch
    if len(stream) < needed or len(unseen) < 2:
        raise ValueError(
            f"text: expected at least {needed} tokens, one batch of windows of "
            f"{settings.context + 1}, got {len(stream)}"
        )
    network = _network(settings, tokenizer.get_vocab_size()).to(device)
    outcome = fit(
        network,
        stream,
        context=settings.context,
        batch=settings.batch,
        budget=settings.budget,
        seed=settings.seed,
        precision=settings.precision,
        progress=progress,
    )
    score = perplexity(network, unseen, settings.context)
    recipe = _recipe(text, settings, outcome, len(stream), len(unseen), score)
    wrapped = _wrapped(tokenizer, settings.context)
    if out is not None:
        save_model(out, network, wrapped, recipe)
    return LanguageModel(network, wrapped, name=name, recipe=recipe)


def _byte_pairs(text: str, vocabulary: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(line_blocks(text), trainer)
    return tokenizer


def _tokens(tokenizer: Tokenizer, text: str) -> Tensor:
    parts = (
        torch.tensor(part.ids, dtype=torch.int64)
        for blocks in block_groups(text)
        for part in tokenizer.encode_batch_fast(blocks)
    )
    return torch.cat(list(parts))


def _wrapped(tokenizer: Tokenizer, context: int) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END,
        eos_token=END,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )


def _network(settings: Settings, vocabulary: int) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    configuration = GPT2Config(
        vocab_size=vocabulary,
        n_positions=settings.context,
        n_embd=settings.width,
        n_layer=settings.layers,
        n_head=settings.heads,
        activation_function="gelu_pytorch_tanh",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return GPT2LMHeadModel(configuration)


def _recipe(
    text: str, settings: Settings, outcome: Outcome, tokens: int, unseen: int, score: float
) -> dict[str, Any]:
    import tokenizers
    import transformers

    return {
        "format": RECIPE_FORMAT,
        "text_sha256": digest(text),
        "text_characters": len(text),
        "settings": asdict(settings),
        "optimizer": OPTIMIZER,
        "precision": outcome.precision,
        "steps": outcome.steps,
        "tokens_read": outcome.tokens,
        "tokens_of_text": tokens,
        "seconds": round(outcome.seconds, 1),
        "held_out_tokens": unseen,
        "held_out_perplexity": score,
        "versions": {
            "python": platform.python_version(),
            "tacit": tacit.__version__,
            "tokenizers": tokenizers.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
