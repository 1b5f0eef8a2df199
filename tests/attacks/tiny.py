"""A model of twelve tokens whose states tell them."""

from __future__ import annotations

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from tacit.models import LanguageModel

VOCABULARY, WIDTH = 12, 32


def tiny_model(massive: float = 0.0) -> LanguageModel:
    """Return it, with one coordinate of its states moved away from the others."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=2, n_head=2, n_positions=8,
        initializer_range=0.3, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    network = GPT2LMHeadModel(config).eval()
    network.transformer.h[0].mlp.c_proj.bias.data[0] += massive
    return LanguageModel(network)
