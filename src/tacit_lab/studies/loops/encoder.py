"""A small encoder of texts, trained on public ones, and a classifier that adapts it by LoRA."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit_lab.studies.stores.encoder import WordMeans, words_of

PADDING, UNKNOWN, MASKED, FIRST = 0, 1, 2, 3
HIDDEN_SHARE = 0.15


@dataclass(frozen=True)
class EncoderRecipe:
    """All that decides the encoder.

    Attributes:
        texts: public ones that are read.
        words: how many have a vector.
        length: words of a text that are read.
        width: numbers of a vector.
        heads: of its attention.
        steps: of training on public texts.
        batch: texts of a step.
        rate: of Adam.
    """

    texts: int = 60_000
    words: int = 8_000
    length: int = 16
    width: int = 64
    heads: int = 4
    steps: int = 400
    batch: int = 128
    rate: float = 2e-3


class NewsEncoder(nn.Module):
    """One block of a transformer over word vectors; a text is the mean of its words."""

    def __init__(self, recipe: EncoderRecipe) -> None:
        super().__init__()
        width = recipe.width
        self.heads = recipe.heads
        self.table = nn.Embedding(recipe.words + FIRST, width, padding_idx=PADDING)
        self.place = nn.Parameter(torch.zeros(recipe.length, width))
        self.before, self.between, self.last = (nn.LayerNorm(width) for _ in range(3))
        self.query, self.key, self.value, self.mixed = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def words(self, tokens: Tensor) -> Tensor:
        """Return vectors of words in their text (n, T, d)."""
        here = (tokens != PADDING)[:, None, None]
        held = self.table(tokens) + self.place[: tokens.shape[1]]
        seen = self.before(held)
        query, key, value = (
            layer(seen).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        found = functional.scaled_dot_product_attention(query, key, value, attn_mask=here)
        held = held + self.mixed(found.transpose(1, 2).flatten(2))
        held = held + self.down(functional.gelu(self.up(self.between(held))))
        return self.last(held)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return vectors of texts (n, d)."""
        here = (tokens != PADDING)[..., None]
        return (self.words(tokens) * here).sum(1) / here.sum(1)


class WordNumbers:
    """Words as numbers.

    Args:
        words: those that have a number of their own.
        length: words of a text that are read.
    """

    def __init__(self, words: Sequence[str], length: int) -> None:
        self.places = {word: FIRST + place for place, word in enumerate(words)}
        self.length = length

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Return tokens (n, T), padded at their ends."""
        tokens = torch.full((len(texts), self.length), PADDING)
        for row, text in zip(tokens, texts, strict=True):
            found = [self.places.get(word, UNKNOWN) for word in words_of(text)] or [UNKNOWN]
            row[: len(found)] = torch.tensor(found[: self.length])
        return tokens


def fitted(texts: Sequence[str], recipe: EncoderRecipe) -> tuple[WordNumbers, NewsEncoder]:
    """Train an encoder to name hidden words of public texts, from vectors of what stands near."""
    means = WordMeans(texts, vocabulary=recipe.words, width=recipe.width)
    reader = WordNumbers(means.words, recipe.length)
    torch.manual_seed(0)
    encoder = NewsEncoder(recipe)
    with torch.no_grad():
        encoder.table.weight[FIRST:] = torch.from_numpy(means(means.words))
        encoder.mixed.weight.mul_(0.1), encoder.down.weight.mul_(0.1)
    tokens = reader(texts)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=recipe.rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.rate, recipe.steps)
    for _ in range(recipe.steps):
        rows = tokens[torch.randint(len(tokens), (recipe.batch,))]
        hidden = (torch.rand(rows.shape) < HIDDEN_SHARE) & (rows >= FIRST)
        found = encoder.words(rows.masked_fill(hidden, MASKED))[hidden]
        loss = functional.cross_entropy(found @ encoder.table.weight.T, rows[hidden])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return reader, encoder


class NewsClassifier(nn.Module):
    """A frozen encoder with low-rank adapters on its linear layers, and a head that is learned.

    Args:
        encoder: trained on public texts.
        known: vectors of texts that are not protected: their centre and scale are taken off.
        classes: that are named.
        rank: of the adapters.
    """

    def __init__(self, encoder: NewsEncoder, known: Tensor, classes: int, rank: int) -> None:
        super().__init__()
        from peft import LoraConfig, get_peft_model

        adapted = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
        self.encoder: Any = get_peft_model(deepcopy(encoder), adapted)
        self.register_buffer("centre", known.mean(0))
        self.register_buffer("scale", known.std(0))
        self.head = nn.Linear(encoder.table.embedding_dim, classes)
        nn.init.zeros_(self.head.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (n, classes)."""
        found: Tensor = self.head((self.encoder(tokens) - self.centre) / self.scale)
        return found
