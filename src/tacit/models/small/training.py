"""Tacit's own small language model: trained where it is used, from any text, in minutes."""

from __future__ import annotations

import copy
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

import tacit
from tacit.models.language import LanguageModel
from tacit.models.loading import check_device
from tacit.models.penalties.anchors import weights_digest
from tacit.models.penalties.step import Penalty
from tacit.models.small.checkpoints import Checkpoint
from tacit.models.small.optimisation import OPTIMIZER, Outcome, fit, perplexity
from tacit.models.small.settings import MINUTES, Settings
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
HELD_OUT_TOKENS = 100_000
RECIPE_FORMAT = 1
# settings that count for a model that goes on from another
GOING_ON = ("context", "batch", "minutes", "steps", "seed", "precision")


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
    architecture: str = "gpt",
    trunk_width: int | None = None,
    penalties: Sequence[Penalty] = (),
    start: LanguageModel | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    device: str = "cpu",
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> LanguageModel:
    """Train a GPT-2-type model, or one of split states, with its own byte-level BPE on a text.

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
        precision: of the products in training, ``"float32"``, the same on every machine,
            ``"bfloat16"``, or ``"auto"``: bfloat16 where the processor has instructions for it.
            Weights and everything after training are float32.
        architecture: ``"gpt"``, or ``"split-memory"``: states ``(u, v)``, logits read from u.
        trunk_width: r, numbers of u of the ``width`` of a split state; a quarter when left out.
        penalties: what is added to the cross-entropy, such as ``JacobianPenalty``.
        start: a model to go on from, with its tokenizer; sizes, ``architecture`` and
            ``vocabulary`` are its own then, and ``context`` at most its.
        checkpoint: file in which the training is kept every minute, and from which the same
            call goes on after an interruption; removed at the end.
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
        steps, seed, precision, architecture, trunk_width,
    ).checked()  # fmt: skip
    for value in penalties:
        if not callable(getattr(value, "measure", None)):
            raise ValueError(f"penalties: expected values such as JacobianPenalty, got {value!r}")
    place = check_device(device)
    target = None if out is None else check_new_folder("out", out)
    content = read_text(text) if isinstance(text, os.PathLike) else text
    name = "trained" if target is None else str(target)
    begun = None if start is None else _begun(start, settings)
    return _train(content, settings, penalties, begun, checkpoint, place, target, progress, name)


def _begun(start: LanguageModel, settings: Settings) -> LanguageModel:
    if not isinstance(start, LanguageModel) or start.tokenizer is None:
        raise ValueError(f"start: expected a language model with its tokenizer, got {start!r}")
    if settings.context > start.context:
        raise ValueError(
            f"context: expected at most the {start.context} of start, got {settings.context}"
        )
    return start


def _train(
    text: str,
    settings: Settings,
    penalties: Sequence[Penalty],
    start: LanguageModel | None,
    checkpoint: str | os.PathLike[str] | None,
    device: torch.device,
    out: Path | None,
    progress: bool | None,
    name: str,
) -> LanguageModel:
    learned, held_out = hold_out(text)
    if start is None:
        tokenizer = _byte_pairs(learned, settings.vocabulary)
        stream, unseen = _tokens(tokenizer, learned), _tokens(tokenizer, held_out)
        wrapped = _wrapped(tokenizer, settings.context)
        network = _network(settings, tokenizer.get_vocab_size())
    else:
        stream, unseen, wrapped = start.stream(learned), start.stream(held_out), start.tokenizer
        network = copy.deepcopy(start.network).requires_grad_(True)
    unseen = unseen[:HELD_OUT_TOKENS]
    needed = (settings.context + 1) * settings.batch
    if len(stream) < needed or len(unseen) < 2:
        raise ValueError(
            f"text: expected at least {needed} tokens, one batch of windows of "
            f"{settings.context + 1}, got {len(stream)}"
        )
    network = network.to(device)
    added = [penalty.describe() for penalty in penalties]
    about = {"text_sha256": digest(text), "settings": asdict(settings), "penalties": added,
             "start": None if start is None else weights_digest(start)}  # fmt: skip
    kept = None if checkpoint is None else Checkpoint(checkpoint, about)
    outcome = fit(
        network,
        stream,
        context=settings.context,
        batch=settings.batch,
        budget=settings.budget,
        seed=settings.seed,
        precision=settings.precision,
        progress=progress,
        penalties=penalties,
        checkpoint=kept,
    )
    score = perplexity(network, unseen, settings.context)
    recipe = _recipe(text, settings, outcome, len(stream), len(unseen), score)
    recipe = {**recipe, "penalties": added, "start": about["start"]}
    if start is not None:
        # its sizes are its own
        recipe["settings"] = {name: recipe["settings"][name] for name in GOING_ON}
    if out is not None:
        save_model(out, network, wrapped, recipe)
    if kept is not None:
        kept.remove()
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
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return _ARCHITECTURES[settings.architecture](settings, vocabulary)


def _gpt(settings: Settings, vocabulary: int) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
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
    )


def _split_memory(settings: Settings, vocabulary: int) -> Any:
    from tacit.models.split_memory.configuration import SplitMemoryConfig
    from tacit.models.split_memory.network import SplitMemoryForCausalLM

    trunk, memory = settings.split
    return SplitMemoryForCausalLM(
        SplitMemoryConfig(
            vocab_size=vocabulary,
            n_positions=settings.context,
            trunk_width=trunk,
            memory_width=memory,
            n_layer=settings.layers,
            trunk_heads=settings.heads,
            memory_heads=settings.heads,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


_ARCHITECTURES = {"gpt": _gpt, "split-memory": _split_memory}


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
