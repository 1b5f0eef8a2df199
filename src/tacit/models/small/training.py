"""Tacit's own small language model: trained where it is used, from any text, in minutes."""

from __future__ import annotations

import copy
import os
import platform
from collections.abc import Sequence
from contextlib import ExitStack
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
from tacit.models.small.optimisation import (
    OPTIMIZER,
    TrainingOutcome,
    TrainingWindows,
    fit,
    perplexity,
)
from tacit.models.small.settings import ModelSettings
from tacit.models.small.storage import check_new_folder, save_model
from tacit.models.texts.corpus import block_groups, digest, hold_out, line_blocks, read_text
from tacit.runs.folder import RunFolder
from tacit.runs.loop import STATE_FIELDS
from tacit.runs.precision import native_precision
from tacit.runs.run import Run, check_run

END = "<|end|>"
HELD_OUT_TOKENS = 100_000
RECIPE_FORMAT = 1
# What of a run a training of a model reads.
READ = ("steps", "minutes", "precision", "checkpoint")
# settings that count for a model that goes on from another
GOING_ON = ("context", "batch", "minutes", "steps", "seed", "precision")
AS_PRESET, DEFAULTS = Run(), ModelSettings()


def train(
    text: str | os.PathLike[str],
    run: Run = AS_PRESET,
    settings: ModelSettings = DEFAULTS,
    *,
    penalties: Sequence[Penalty] = (),
    start: LanguageModel | None = None,
    device: str = "cpu",
    out: str | os.PathLike[str] | None = None,
) -> LanguageModel:
    """Train a GPT-2-type model, or one of split states, with its own byte-level BPE on a text.

    Args:
        text: the text itself, or a path (not a str) to a .txt or .txt.gz file or a folder of them.
        run: steps, for a result that can be repeated, or minutes of the optimization alone, three
            and a half where the settings have no preset; the precision of products in training,
            ``"auto"`` when left out (weights and all that follows are float32); the folder that
            survives a crash, removed at the end.
        settings: sizes, architecture and seed.
        penalties: what is added to the cross-entropy, such as ``JacobianPenalty``.
        start: a model to go on from, with its tokenizer; sizes, ``architecture`` and
            ``vocabulary`` are its own then, and ``context`` at most its.
        device: where it trains and stays.
        out: folder to write, which may not exist yet; written whole at the end or not at all.

    Returns:
        The model; ``recipe`` has its digest of the text, settings, held-out perplexity per token
        (of every fiftieth block of the text, which it never saw), time and versions.

    Raises:
        ValueError: a bad setting, or a text too short to learn from.

    Example:
        >>> settings = ModelSettings(width=16, layers=2, heads=2, context=8, vocabulary=270, batch=4)
        >>> model = train("To be, or not to be. " * 200, Run(steps=2, precision="float32"), settings)
        >>> model.width, model.layers, model.decode(model.encode("not to be"))
        (16, 2, 'not to be')
    """  # noqa: E501
    if not isinstance(settings, ModelSettings):
        raise ValueError(f"settings: expected ModelSettings, got {type(settings).__name__}")
    # as long as asked for, or as the preset says
    lasting = settings.run(check_run(run, READ))
    for value in penalties:
        if not callable(getattr(value, "measure", None)):
            raise ValueError(f"penalties: expected values such as JacobianPenalty, got {value!r}")
    place = check_device(device)
    # a folder that cannot be written is told before the training
    target = None if out is None else check_new_folder("out", out)
    content = read_text(text) if isinstance(text, os.PathLike) else text
    begun = None if start is None else _check_start(start, settings)
    return _train(content, lasting, settings, penalties, begun, place, target)


def _check_start(start: LanguageModel, settings: ModelSettings) -> LanguageModel:
    if not isinstance(start, LanguageModel) or start.tokenizer is None:
        raise ValueError(f"start: expected a language model with its tokenizer, got {start!r}")
    context = settings.sizes()["context"]
    if context > start.context:
        raise ValueError(f"context: expected at most the {start.context} of start, got {context}")
    return start


def _train(
    text: str,
    run: Run,
    settings: ModelSettings,
    penalties: Sequence[Penalty],
    start: LanguageModel | None,
    device: torch.device,
    out: Path | None,
) -> LanguageModel:
    # every fiftieth block is never learned from
    learned, held_out = hold_out(text)
    sizes = settings.sizes()
    context, batch = sizes["context"], sizes["batch"]
    if start is None:
        # of the learned text alone: a held-out word names no token
        tokenizer = _byte_pairs(learned, sizes["vocabulary"])
        stream, unseen = _tokens(tokenizer, learned), _tokens(tokenizer, held_out)
        wrapped = _wrap(tokenizer, context)
        network = _network(settings, tokenizer.get_vocab_size())
    else:
        # a model that goes on keeps its tokens
        stream, unseen, wrapped = start.stream(learned), start.stream(held_out), start.tokenizer
        network = copy.deepcopy(start.network).requires_grad_(True)
    unseen = unseen[:HELD_OUT_TOKENS]
    # one batch of windows and their next tokens
    needed = (context + 1) * batch
    if len(stream) < needed or len(unseen) < 2:
        raise ValueError(
            f"text: expected at least {needed} tokens, one batch of windows of "
            f"{context + 1}, got {len(stream)}"
        )
    network = network.to(device)
    told = {
        "settings": {
            **sizes,
            "minutes": run.minutes,
            "steps": run.steps,
            "precision": run.precision or "auto",
        },
        "penalties": [penalty.describe() for penalty in penalties],
        "start": None if start is None else weights_digest(start),
    }
    with ExitStack() as stack:
        folder = None
        if run.checkpoint is not None:
            # by the machine: a run does not go on in another precision
            precision = native_precision(run.precision or "auto", device)
            declared = {"run": "model", "text": digest(text), "precision": precision, **told}
            folder = RunFolder(run.checkpoint, declared, fields=STATE_FIELDS)
            stack.enter_context(folder.alone())
        outcome = fit(
            network,
            stream,
            run,
            TrainingWindows(context=context, batch=batch, seed=settings.seed),
            penalties=penalties,
            folder=folder,
        )
        # of the text that was never seen
        score = perplexity(network, unseen, context)
        recipe = _recipe(text, outcome, len(stream), len(unseen), score, told)
        if start is not None:
            # its sizes are its own
            recipe["settings"] = {name: recipe["settings"][name] for name in GOING_ON}
        if out is not None:
            save_model(out, network, wrapped, recipe)
    if folder is not None:
        folder.remove()
    # what messages call it
    name = "trained" if out is None else str(out)
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


def _wrap(tokenizer: Tokenizer, context: int) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END,
        eos_token=END,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )


def _network(settings: ModelSettings, vocabulary: int) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return _ARCHITECTURES[settings.architecture](settings, vocabulary)


def _gpt(settings: ModelSettings, vocabulary: int) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = settings.sizes()
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=vocabulary,
            n_positions=sizes["context"],
            n_embd=sizes["width"],
            n_layer=sizes["layers"],
            n_head=sizes["heads"],
            activation_function="gelu_pytorch_tanh",
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def _split_memory(settings: ModelSettings, vocabulary: int) -> Any:
    from tacit.models.split_memory.configuration import SplitMemoryConfig
    from tacit.models.split_memory.network import SplitMemoryForCausalLM

    sizes, (trunk, memory) = settings.sizes(), settings.split
    return SplitMemoryForCausalLM(
        SplitMemoryConfig(
            vocab_size=vocabulary,
            n_positions=sizes["context"],
            trunk_width=trunk,
            memory_width=memory,
            n_layer=sizes["layers"],
            trunk_heads=sizes["heads"],
            memory_heads=sizes["heads"],
            bos_token_id=0,
            eos_token_id=0,
        )
    )


_ARCHITECTURES = {"gpt": _gpt, "split-memory": _split_memory}


def _recipe(
    text: str,
    outcome: TrainingOutcome,
    tokens: int,
    unseen: int,
    score: float,
    told: dict[str, Any],
) -> dict[str, Any]:
    import tokenizers
    import transformers

    return {
        "format": RECIPE_FORMAT,
        "text_sha256": digest(text),
        "text_characters": len(text),
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
        **told,
    }
