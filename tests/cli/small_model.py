"""A small random model and texts on disk, for commands on hidden states."""

from __future__ import annotations

from pathlib import Path

WORDS = [f"w{i}" for i in range(30)]
CUT = ("--length", "6", "--seed", "1")


def write_model(folder: Path, *, seed: int) -> None:
    """Write a model of two layers of width 16 whose tokens are words."""
    import tokenizers
    import torch
    import transformers

    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="w0")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    torch.manual_seed(seed)
    network = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=30, n_embd=16, n_layer=2, n_head=2, n_positions=16)
    )
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim == 2:
                parameter.mul_(6.0)
    network.save_pretrained(folder)


def write_texts(path: Path, *, seed: int) -> None:
    """Write 300 lines of 20 words."""
    import torch

    draws = torch.randint(30, (6000,), generator=torch.Generator().manual_seed(seed))
    lines = [" ".join(WORDS[i] for i in row) for row in draws.reshape(-1, 20).tolist()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
