"""A tiny language model of letters, for what memorisation measures."""

from __future__ import annotations

import torch
import transformers

from tacit.models import LanguageModel

ALPHABET = " 0123456789'abcdefghijklmnopqrstuvwxyz"
LENGTH = 40


class Letters:
    """A tokenizer with one token a letter."""

    def __call__(self, text, **options):
        return {"input_ids": [ALPHABET.index(letter) for letter in text]}


def network(*, sharp=1.0, seed=0):
    """A random model of about 2,000 parameters; the sharper, the surer it is of the next letter."""
    torch.manual_seed(seed)
    sizes = {"n_embd": 12, "n_layer": 1, "n_head": 2, "n_positions": LENGTH}
    found = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=len(ALPHABET), **sizes))
    with torch.no_grad():
        found.transformer.wte.weight.mul_(20.0 * sharp)
    return found.eval()


def model(**options):
    return LanguageModel(network(**options), Letters())


def texts(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(11, len(ALPHABET), (count, LENGTH), generator=generator)
