"""A small random model and texts on disk, for commands on hidden states."""

from __future__ import annotations

from pathlib import Path

WORDS = [f"w{i}" for i in range(30)]
CUT = ("--length", "6", "--seed", "1")


def write_tokenizer(folder: Path, *, first: str | None, **special: str) -> None:
    """Write a tokenizer of words that begins every text with ``first``."""
    import tokenizers
    import transformers

    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="w0")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    if first is not None:
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single=f"{first} $A", special_tokens=[(first, WORDS.index(first))]
        )
    saved = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    saved.save_pretrained(folder)


def write_encoder(folder: Path, *, seed: int) -> None:
    """Write an encoder of one layer of width 16 whose tokens are words."""
    import torch
    import transformers

    write_tokenizer(folder, first=None, pad_token="w0")
    torch.manual_seed(seed)
    transformers.BertModel(
        transformers.BertConfig(
            vocab_size=30,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=32,
            pad_token_id=0,
        )
    ).save_pretrained(folder)


def write_model(folder: Path, *, seed: int, first: str | None = None) -> None:
    """Write a model of two layers of width 16 whose tokens are words."""
    import torch
    import transformers

    write_tokenizer(folder, first=first)
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


def small_inputs(folder: Path) -> tuple[str, ...]:
    """Write a model and texts, and return the flags that name them."""
    write_model(folder / "model", seed=0)
    write_texts(folder / "text.txt", seed=1)
    return ("--model", str(folder / "model"), "--texts", str(folder / "text.txt"), *CUT)
