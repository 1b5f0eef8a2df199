"""What the MLP of a block is given and what it adds to the residual stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tacit._ground.checks import integer
from tacit.hidden_states.features.transcoder import Transcoder
from tacit.models.anatomy import ReachedError, watched, whole
from tacit.models.language import LanguageModel
from tacit.models.padding import PADDING, trimmed

NAMES = ("mlp", "feed_forward", "ffn", "block_sparse_moe")
PROBE, TOKENS_TOGETHER = 4, 8192
# what rounding may lose between a state and the sum it is made of
ADDS = 1e-2
# what rounding alone may make equal rows differ by, of their length
ROUNDING = 8 * torch.finfo(torch.float32).eps


@dataclass(frozen=True, eq=False)
class Site:
    """Rows of one place of a model.

    Attributes:
        inputs: x, (n, d_in).
        outputs: y, (n, d).
        states: the residual stream after the block, (n, d).
    """

    inputs: Tensor
    outputs: Tensor
    states: Tensor


def check_site(model: LanguageModel, layer: int, transcoder: Transcoder) -> int:
    """Return ``layer`` where the features fit what is there; else say what does not."""
    if not isinstance(transcoder, Transcoder):
        raise ValueError(f"transcoder: expected a Transcoder, got {type(transcoder).__name__}")
    level = integer("layer", layer, minimum=1, maximum=model.layers)
    given = site_width(model, level, transcoder.reads)
    found = (transcoder.encoder.shape[1], transcoder.decoder.shape[1])
    if found != (given, model.width):
        raise ValueError(
            f"transcoder: expected features from {given} to {model.width} numbers, got {found[0]} "
            f"to {found[1]}"
        )
    return level


def site_width(model: LanguageModel, layer: int, reads: str) -> int:
    """Return d_in; refuse a block whose MLP's output is not added to the stream as it is."""
    if reads == "stream":
        return model.width
    block = _mlp(model, layer)
    count = min(PROBE, model.context, model.anatomy.embedded)
    tokens = torch.arange(count, device=model.device)[None]
    before = read_site(model, layer, tokens, reads)
    moved = torch.full_like(before.outputs[0], float(before.outputs.abs().mean()) or 1.0)
    handle = block.register_forward_hook(lambda _, __, output: _added(output, moved))
    try:
        after = read_site(model, layer, tokens, reads)
    finally:
        handle.remove()
    apart = (after.states - before.states - moved).abs().max()
    if float(apart) > ADDS * float(moved.abs().max() + before.states.abs().max()):
        raise ValueError(
            f"layer: expected a block that adds its MLP's output to the stream as it is, got one "
            f"of {model.name} that does not: use features of the stream"
        )
    return before.inputs.shape[1]


@torch.no_grad()
def read_site(
    model: LanguageModel, layer: int, tokens: Tensor, reads: str, *, every: bool = False
) -> Site:
    """Read a block's MLP at the last position of every prompt, or at every position but the first.

    Args:
        model: the language model.
        layer: 1 … L.
        tokens: (n, T), −1 where padded.
        reads: as ``Transcoder.reads``.
        every: whether all positions are read, those of the padding aside.
    """
    parts = []
    for part in torch.split(tokens, max(1, TOKENS_TOGETHER // tokens.shape[1])):
        batch = trimmed(part)
        kept = torch.zeros_like(batch, dtype=torch.bool)
        kept[:, -1] = True
        if every:
            kept = batch != PADDING
            # the first position of a prompt is an outlier in most models
            kept[:, 1:] &= batch[:, :-1] != PADDING
            kept[:, 0] &= batch.shape[1] == 1
        parts.append([whole(rows[kept]) for rows in _passed(model, layer, batch, reads)])
    return Site(*(torch.cat(rows) for rows in zip(*parts, strict=True)))


def variation(rows: Tensor) -> float:
    """Return Σ‖y − ȳ‖² of rows (n, d): 0 where they differ by rounding alone."""
    held = rows.double()
    found = float((held - held.mean(dim=0)).square().sum())
    return found if found > ROUNDING**2 * float(held.square().sum()) else 0.0


def _passed(
    model: LanguageModel, layer: int, tokens: Tensor, reads: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs, outputs and states of all positions, (n, T, ·); nothing above is computed."""
    seen: list[Tensor] = []
    states: list[Tensor] = []

    def stop(_: int, found: Tensor) -> None:
        states.append(found)
        raise ReachedError

    anatomy = model.anatomy
    try:
        with _watching(model, layer, reads, seen), watched(anatomy, [layer], stop):
            anatomy.forward(anatomy.inputs(tokens))
    except ReachedError:
        pass
    inputs, outputs = seen if reads == "mlp" else (states[0], states[0])
    shape = states[0].shape
    return inputs.reshape(*shape[:2], -1), outputs.reshape(shape), states[0]


@contextmanager
def _watching(model: LanguageModel, layer: int, reads: str, seen: list[Tensor]) -> Iterator[None]:
    def keep(_: nn.Module, positional: Any, named: dict[str, Any], output: Any) -> None:
        given = positional[0] if positional else named["hidden_states"]
        seen.extend([given, output[0] if isinstance(output, tuple) else output])

    with ExitStack() as stack:
        if reads == "mlp":
            # before the probe's own hook would be seen: hooks run in the order they were set
            handle = _mlp(model, layer).register_forward_hook(keep, with_kwargs=True)
            stack.callback(handle.remove)
        yield


def _mlp(model: LanguageModel, layer: int) -> nn.Module:
    block = model.anatomy.blocks[integer("layer", layer, minimum=1, maximum=model.layers) - 1]
    for name in NAMES:
        found = getattr(block, name, None)
        if isinstance(found, nn.Module):
            return found
    children = sorted(name for name, _ in block.named_children())
    raise ValueError(
        f"layer: expected a block with an MLP named {' or '.join(NAMES)}, got {children}: use "
        "features of the stream"
    )


def _added(output: Any, moved: Tensor) -> Any:
    if isinstance(output, tuple):
        return (output[0] + moved.to(output[0]), *output[1:])
    return output + moved.to(output)
