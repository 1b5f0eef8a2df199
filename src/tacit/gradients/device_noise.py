"""Released normal numbers, drawn where the sums are: on a GPU, without a byte from its host's core.

The operating system gives a key of 256 bits for every draw and nothing else; ChaCha20 in whole
numbers of 32 bits makes the stream of it, as `tacit._ground.bits` does on a processor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from tacit._ground.bits import fresh_key

# "expand 32-byte k"
CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
# 20 rounds, by columns and diagonals in turn
DOUBLE_ROUNDS = 10
# Words of a block, and the blocks of one draw: far below the 2³² after which a counter repeats.
BLOCK = 16
# Normal numbers that are made together: 32 MB of words beside what the rounds hold.
TOGETHER = 2**22
# From here on a tail's second word changes nothing, as in `tacit._ground.random`.
ENOUGH = 2**54
LOWER_BITS = 2**63 - 1


def device_normal(shape: Sequence[int], device: torch.device) -> Tensor:
    """Draw independent N(0, 1) values of a shape for a release, in float64, on a device.

    Of each the sign and 127 bits of one tail are drawn, as `tacit._ground.random.released_normal`
    does. Nothing of them passes through the host, and the host waits for nothing.

    Args:
        shape: of the values.
        device: with numbers of 64 bits.

    Example:
        >>> device_normal((2, 3), torch.device("cpu")).shape
        torch.Size([2, 3])

    Source: RFC 8439, section 2.3.
    """
    count = math.prod(shape)
    values = torch.empty(count, dtype=torch.float64, device=device)
    for start in range(0, count, TOGETHER):
        part = values[start : start + TOGETHER]
        # under a key of its own: no counter is kept from draw to draw
        part.copy_(_normals(_words(part.numel() + _spare(part.numel()), device), part.numel()))
    return values.reshape(tuple(shape))


def _spare(count: int) -> int:
    """Return how many second words are drawn for so many first ones.

    One first word in 512 needs one, by itself. That more than K = 2 m + 512 of them do, of m that
    are expected, has a chance of at most exp(−(K ln(K/m) − K + m)) < exp(−600), whatever m.
    """
    return count // 256 + 512


def _words(count: int, device: torch.device) -> Tensor:
    """Return fresh words of 64 bits, (count,) int64: the two halves of each from one block."""
    halves = key_stream(fresh_key(), -(-2 * count // BLOCK), device)
    # low half first, as bytes in memory are on every processor that torch runs on
    return halves.view(torch.int64)[:count]


def _normals(words: Tensor, count: int) -> Tensor:
    """Return N(0, 1) of the first words, their rare second words taken from those behind."""
    high, low = words[:count], words[count:]
    upper = high & LOWER_BITS
    # (k + ½) 2⁻¹²⁸ of 127 bits k: the upper 63 of them …
    tail = upper.double() * 2.0**-64
    short = upper < ENOUGH
    # … and the n-th value that needs 64 more has the n-th word; no index is read by the host
    place = (torch.cumsum(short, dim=0) - 1).clamp(0, len(low) - 1)
    second = low[place]
    # an int64 read as one of 0 … 2⁶⁴ − 1: two halves, each exact
    exact = ((second >> 32) & 0xFFFFFFFF).double() * 2.0**32 + (second & 0xFFFFFFFF).double()
    tail = torch.where(short, tail + (exact + 0.5) * 2.0**-128, tail)
    # Φ⁻¹ of a tail of at most ½ is −|z|; the sign bit turns it around, exactly
    found = torch.special.ndtri(tail)
    return torch.where(high < 0, found, -found)


def key_stream(
    key: bytes, blocks: int, device: torch.device, *, nonce: bytes = bytes(12), first: int = 0
) -> Tensor:
    """Return blocks of ChaCha20's stream, (16 · blocks,) int32: words of 32 bits, bit by bit.

    Args:
        key: 32 bytes.
        blocks: how many.
        device: where they are computed.
        nonce: 12 bytes; 0 where no two draws have one key.
        first: counter of the first block.

    Source: RFC 8439, sections 2.1 to 2.4.
    """
    given = np.frombuffer(key, "<i4").tolist(), np.frombuffer(nonce, "<i4").tolist()
    # one copy to the device, which no one waits for
    fixed = torch.tensor([*CONSTANTS, *given[0], 0, *given[1]], dtype=torch.int32)
    start = fixed.to(device, non_blocking=True)[:, None].expand(BLOCK, blocks).clone()
    counter = torch.arange(first, first + blocks, device=device)
    # of 32 bits, counted modulo 2³²
    start[12] = counter.to(torch.int32)
    # rows a, b, c, d of the 4 × 4 state: four quarter rounds are one on whole rows
    rows = start.reshape(4, 4, blocks).unbind()
    for _ in range(DOUBLE_ROUNDS):
        rows = _round(*rows)
        # diagonals are columns of turned rows
        turned = _round(rows[0], *_turned(rows[1:], (-1, -2, -3)))
        rows = (turned[0], *_turned(turned[1:], (1, 2, 3)))
    # the state that a block began with is added, word by word, modulo 2³²
    ended = torch.cat(rows) + start
    return ended.T.reshape(-1)


def _turned(rows: Sequence[Tensor], by: Sequence[int]) -> Iterator[Tensor]:
    return (torch.roll(row, shift, dims=0) for row, shift in zip(rows, by, strict=True))


def _round(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return four quarter rounds; sums of int32 wrap as those of words do."""
    a = a + b
    d = _rotated(d ^ a, 16)
    c = c + d
    b = _rotated(b ^ c, 12)
    a = a + b
    d = _rotated(d ^ a, 8)
    c = c + d
    b = _rotated(b ^ c, 7)
    return a, b, c, d


def _rotated(words: Tensor, by: int) -> Tensor:
    # a shift to the right of an int32 keeps its sign: the bits that it brings are cleared
    return (words << by) | ((words >> (32 - by)) & ((1 << by) - 1))
