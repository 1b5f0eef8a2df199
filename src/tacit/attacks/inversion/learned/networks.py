"""Networks that read a prompt from one vector or one a position: in either order, or at once."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from tacit.attacks.inversion.learned.presets import NetworkShape

TRUNK_LAYERS = 3
NAMES = {
    "right-to-left": "learned decoder of {}, last token first",
    "forward": "learned decoder of {}, first token first",
    "at-once": "learned network of {}, all tokens at once",
}


class Whitening(nn.Module):
    """``(x − mean) W`` with the principal directions of public releases at variance one.

    Args:
        examples: public releases, (m, d), or None for what a checkpoint will fill in.
        width: d.
    """

    mean: Tensor
    map: Tensor

    def __init__(self, examples: Tensor | None, width: int) -> None:
        super().__init__()
        mean, turn = torch.zeros(width), torch.eye(width)
        if examples is not None:
            rows = examples.double().cpu()
            mean = rows.mean(dim=0)
            values, vectors = torch.linalg.eigh((rows - mean).T @ (rows - mean) / len(rows))
            # directions without variance would be amplified rounding
            scales = values.clamp(min=1e-7 * float(values.max()) + 1e-30).rsqrt()
            turn = vectors * scales
        self.register_buffer("mean", mean.float())
        self.register_buffer("map", turn.float())

    def forward(self, rows: Tensor) -> Tensor:
        """Return whitened rows, of the shape given."""
        # half precision's rounding, amplified, would be learnt and then be missing in single
        with torch.autocast(rows.device.type, enabled=False):
            return (rows - self.mean) @ self.map


class DecoderBlock(nn.Module):
    """Attention to the tokens so far, attention to the memory, and a perceptron."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.qkv = nn.Linear(width, 3 * width)
        self.own = nn.Linear(width, width)
        self.query = nn.Linear(width, width)
        self.memory = nn.Linear(width, 2 * width)
        self.other = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        for last in (self.own, self.other, self.down):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def _split(self, rows: Tensor, parts: int) -> list[Tensor]:
        """Cut (n, t, parts·w) into parts of (n, heads, t, w / heads)."""
        shaped = rows.view(*rows.shape[:2], parts, self.heads, -1).permute(2, 0, 3, 1, 4)
        return list(shaped.unbind(0))

    def remember(self, memory: Tensor) -> list[Tensor]:
        """Return keys and values of the memory."""
        return self._split(self.memory(memory), 2)

    def forward(
        self,
        rows: Tensor,
        memory: list[Tensor],
        past: list[Tensor] | None,
        *,
        later_too: bool = False,
    ) -> Any:
        """Return the rows after the block and the keys and values so far."""
        query, *held = self._split(self.qkv(self.norms[0](rows)), 3)
        causal = past is None and not later_too
        if past is not None:
            held = [torch.cat(pair, dim=2) for pair in zip(past, held, strict=True)]
        seen = attended(query, held, causal=causal)
        rows = rows + self.own(seen.transpose(1, 2).flatten(2))
        (asked,) = self._split(self.query(self.norms[1](rows)), 1)
        told = attended(asked, memory, causal=False)
        rows = rows + self.other(told.transpose(1, 2).flatten(2))
        inner = nn.functional.gelu(self.up(self.norms[2](rows)), approximate="tanh")
        return rows + self.down(inner), held


def attended(query: Tensor, held: list[Tensor], *, causal: bool) -> Tensor:
    """Return ``softmax(QKᵀ/√w) V``; the fused one is slower both ways for so few tokens."""
    scores = query @ held[0].transpose(2, 3) * query.shape[-1] ** -0.5
    if causal:
        later = torch.ones(scores.shape[2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    found: Tensor = scores.softmax(dim=-1) @ held[1]
    return found


class ReleaseReader(nn.Module):
    """What every network has: whitening, and tokens tied to the head.

    Args:
        shape: sizes and order.
        length: T.
        embeddings: the model's own, (V, d'), from which tokens start.
        examples: public releases, (m, d), or None.
        width: d, numbers of a release.
        everywhere: whether every position has a release of its own.
    """

    def __init__(
        self,
        shape: NetworkShape,
        length: int,
        embeddings: Tensor,
        examples: Tensor | None,
        width: int,
        everywhere: bool = False,
    ) -> None:
        super().__init__()
        self.shape, self.length, self.everywhere = shape, length, everywhere
        self.whitening = Whitening(examples, width)
        self.tokens = nn.Parameter(started(embeddings, shape.width))
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.bias = nn.Parameter(torch.zeros(len(embeddings)))
        self.last = nn.LayerNorm(shape.width)
        inner = 4 * shape.width
        sizes = [width] + [inner] * (1 if everywhere else TRUNK_LAYERS)
        self.hidden = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(sizes))
        self.spread = nn.Linear(inner, (1 if everywhere else length) * shape.width)

    def trunk(self, releases: Tensor) -> Tensor:
        """Return features of releases, (n, 4w), or (n, t, 4w) of one a position."""
        rows: Tensor = self.whitening(releases)
        for place, layer in enumerate(self.hidden):
            moved = nn.functional.gelu(layer(rows), approximate="tanh")
            rows = moved if place == 0 else rows + moved
        return rows

    def places_of(self, trunk: Tensor) -> Tensor:
        """Return what the release alone says of every position, (n, t, w)."""
        found: Tensor = self.spread(trunk)
        return found.view(len(found), -1, self.shape.width)

    def head(self, rows: Tensor) -> Tensor:
        """Return logits over the vocabulary."""
        found: Tensor = self.scale * (self.last(rows) @ self.tokens.T) + self.bias
        return found


class MemoryDecoder(ReleaseReader):
    """Decodes token by token, attending to M memory tokens made from the release, or one of each.

    ``kind`` of the shape says in which order: ``"right-to-left"`` starts at the last token, which
    the state tells best; ``"forward"`` is the paper's.
    """

    def __init__(
        self,
        shape: NetworkShape,
        length: int,
        embeddings: Tensor,
        examples: Tensor | None,
        width: int,
        everywhere: bool = False,
    ) -> None:
        super().__init__(shape, length, embeddings, examples, width, everywhere)
        wide = shape.width
        self.encode = nn.Linear(4 * wide, (1 if everywhere else shape.memory) * wide)
        self.norm = nn.LayerNorm(wide)
        self.start = nn.Parameter(torch.zeros(wide))
        self.places = nn.Parameter(0.02 * torch.randn(length, wide))
        self.blocks = nn.ModuleList(DecoderBlock(wide, shape.heads) for _ in range(shape.layers))

    def _heard(self, releases: Tensor) -> tuple[list[list[Tensor]], Tensor]:
        """Keys and values of the memory tokens in every block, and what is said of each place."""
        trunk = self.trunk(releases)
        memory = self.norm(self.encode(trunk).view(len(trunk), -1, self.shape.width))
        said = self.places_of(trunk)
        places = self.places[: said.shape[1]]
        if self.everywhere:
            memory = memory + places
        kept = [block.remember(memory) for block in self.blocks]  # type: ignore[operator]
        return kept, said + places

    def forward(self, releases: Tensor, tokens: Tensor) -> Tensor:
        """Return logits of every token given those decoded before it, (n, t, V).

        Args:
            releases: (n, d), or (n, t, d) in the order of decoding.
            tokens: (n, t) in that order.
        """
        memory, places = self._heard(releases)
        first = self.start.expand(len(tokens), 1, -1)
        rows = torch.cat([first, self.tokens[tokens[:, :-1]]], dim=1) + places[:, : tokens.shape[1]]
        for block, held in zip(self.blocks, memory, strict=True):
            rows, _ = block(rows, held, None)
        return self.head(rows)

    @torch.no_grad()
    def decode(
        self,
        releases: Tensor,
        fixed: Tensor | None = None,
        source: torch.Generator | None = None,
    ) -> Tensor:
        """Return tokens in the order of decoding, (n, t): the likeliest, or drawn.

        Args:
            releases: (n, d) for T tokens, or (n, t, d) in that order.
            fixed: (n, t) with −1 where a token is to be decoded, and the others as they are.
            source: of the draws; None takes the likeliest token each step.
        """
        memory, places = self._heard(releases)
        past: list[Any] = [None] * len(self.blocks)
        row = self.start.expand(len(releases), 1, -1)
        found: list[Tensor] = []
        for step in range(places.shape[1]):
            row = row + places[:, step : step + 1]
            for place, block in enumerate(self.blocks):
                # one query sees all of the past, so that only the first step has none
                row, past[place] = block(row, memory[place], past[place])
            chosen = chosen_from(self.head(row[:, 0]).float(), source)
            if fixed is not None:
                chosen = torch.where(fixed[:, step] >= 0, fixed[:, step], chosen)
            found.append(chosen)
            row = self.tokens[chosen][:, None]
        return torch.stack(found, dim=1)


class AtOnce(ReleaseReader):
    """Reads all positions at once from the release, each by itself."""

    def forward(self, releases: Tensor, tokens: Tensor) -> Tensor:
        """Return logits of every token, the last first, (n, t, V)."""
        return self.head(self.places_of(self.trunk(releases))[:, : tokens.shape[1]])

    @torch.no_grad()
    def decode(
        self,
        releases: Tensor,
        fixed: Tensor | None = None,
        source: torch.Generator | None = None,
    ) -> Tensor:
        """As ``Decoder.decode``, every position by itself."""
        blank = torch.zeros(len(releases), self.length, dtype=torch.int64)
        logits = self(releases, blank).float()
        found = chosen_from(logits.flatten(0, 1), source).view(len(releases), self.length)
        return found if fixed is None else torch.where(fixed >= 0, fixed, found)


class Together(MemoryDecoder):
    """Reads all positions at once from a release of each, which attend to each other both ways."""

    def forward(self, releases: Tensor, tokens: Tensor) -> Tensor:
        """As ``Decoder.forward``, every position by itself."""
        memory, rows = self._heard(releases)
        for block, held in zip(self.blocks, memory, strict=True):
            rows, _ = block(rows, held, None, later_too=True)
        return self.head(rows)

    @torch.no_grad()
    def decode(
        self,
        releases: Tensor,
        fixed: Tensor | None = None,
        source: torch.Generator | None = None,
    ) -> Tensor:
        """As ``Decoder.decode``, every position by itself."""
        logits = self(releases, releases).float()
        found = chosen_from(logits.flatten(0, 1), source).view(logits.shape[:2])
        return found if fixed is None else torch.where(fixed >= 0, fixed, found)


def chosen_from(logits: Tensor, source: torch.Generator | None) -> Tensor:
    """Return the likeliest token of each row, or one drawn from the softmax."""
    if source is None:
        return logits.argmax(dim=-1)
    # the largest of ln p + Gumbel noise is a draw from p
    level = torch.rand(logits.shape, generator=source).clamp_(min=1e-20).to(logits.device)
    return (logits - (-level.log()).log()).argmax(dim=-1)


def started(embeddings: Tensor, width: int) -> Tensor:
    """Return the principal directions of the embeddings at a mean square of 1 / width, (V, w)."""
    rows = embeddings.detach().float().cpu()
    rows = rows - rows.mean(dim=0)
    _, vectors = torch.linalg.eigh(rows.T @ rows)
    found = torch.zeros(len(rows), width)
    kept = min(width, rows.shape[1])
    found[:, :kept] = rows @ vectors[:, -kept:]
    size = float(found.pow(2).mean().sqrt())
    return found / float(max(size, 1e-12) * width**0.5)


def build(
    shape: NetworkShape,
    length: int,
    embeddings: Tensor,
    examples: Tensor | None,
    width: int,
    seed: int,
    everywhere: bool = False,
) -> MemoryDecoder | AtOnce:
    """Return a network at its start, the same for one seed."""
    at_once = shape.kind == "at-once"
    kind = MemoryDecoder if not at_once else Together if everywhere else AtOnce
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(shape, length, embeddings, examples, width, everywhere)
