"""The rest of the forward pass from one layer's last state, the earlier positions kept clean."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from tacit._ground.checks import integer
from tacit._ground.reprs import short_repr
from tacit.models.anatomy import Anatomy, ReachedError, entered, watched, whole
from tacit.models.padding import before_last, last_of, trimmed

STATES_PER_BATCH = 1024
# Rounding of a norm computed twice, relative to the largest entry of a state.
SAME = 1e-2


@short_repr
@dataclass(frozen=True, eq=False)
class Continuation:
    """What the layers above ``layer`` need of n prompts to read another state at the last position.

    ``logits(h) = tail(block_L(… block_{l+1}(h; keys, values of the earlier positions)))``:
    consumer protocol A, in which the earlier positions stay clean. Only the last position is
    computed, by the model's own forward pass with the lower blocks skipped.

    Attributes:
        layer: l, the layer whose last state is replaced.
        clean_states: the states the model itself has there, (n, d) of float32.
        clean_logits: what the model itself predicts, (n, V) of float32.
        keys: per upper layer, (n, heads, T − 1, head width) or the part its window still sees.
        values: as ``keys``.
        last: the inputs of the last position, (n, 1); with a mask (n, T) where prompts are padded.
        caches: a layer of the model's cache each, emptied: how long the earlier positions are.

    Source:
        hidden-state, App. A.1, injection hook. (The paper letters ways to measure, of which this
        is B; consumer protocol A says what the consumer holds besides the state.)
    """

    layer: int
    clean_states: Tensor
    clean_logits: Tensor
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    last: dict[str, Tensor]
    caches: tuple[Any, ...]
    anatomy: Anatomy

    def __len__(self) -> int:
        return len(self.clean_states)

    @property
    def nbytes(self) -> int:
        """Bytes of the kept keys and values."""
        return sum(part.nbytes for part in (*self.keys, *self.values))

    def logits(self, states: Tensor, *, batch_size: int | None = None) -> Tensor:
        """Predict the next token of every prompt from ``states`` at its last position.

        Args:
            states: (n, d), one row a prompt; gradients flow to it.
            batch_size: rows computed at a time.

        Returns:
            Logits of the next token, (n, V) of float32.

        Raises:
            ValueError: ``states`` is not finite or not of shape (n, d).

        Warns:
            UserWarning: ``states`` are the clean ones after the final norm, which is what
                ``transformers`` lists as ``hidden_states[-1]``: layer L is before it.
        """
        checked = check_states("states", states, self.clean_states)
        self._warn_of_normed(checked.detach())
        size = batch_rows(batch_size, STATES_PER_BATCH)
        starts = range(0, len(self), size)
        return torch.cat([self._logits(checked, slice(at, at + size)) for at in starts])

    def _logits(self, states: Tensor, rows: slice) -> Tensor:
        inputs = {name: value[rows] for name, value in self.last.items()}
        with entered(self.anatomy, self.layer, states[rows]):
            return self.anatomy.forward(inputs, self._past(rows))

    def _past(self, rows: slice) -> Any:
        """Return a cache of the earlier positions of some prompts, to be read and thrown away."""
        past = resumed(self.anatomy, self.caches)
        upper = past.layers[self.layer :] if self.caches else ()
        for layer, keys, values in zip(upper, self.keys, self.values, strict=True):
            layer.keys, layer.values = keys[rows], values[rows]
        return past

    def _warn_of_normed(self, states: Tensor) -> None:
        """Say that states after the final norm came where those before it belong."""
        norm = self.anatomy.norm
        if norm is None or self.layer < self.anatomy.layers or states is self.clean_states:
            return
        with torch.no_grad():
            normed = norm(self.clean_states[:, None].to(self.anatomy.dtype))[:, 0].to(states)
        bound = SAME * normed.abs().amax(dim=1)
        near = (states - normed).abs().amax(dim=1) <= bound
        if bool((near & ((normed - self.clean_states).abs().amax(dim=1) > bound)).all()):
            warnings.warn(
                f"states: these are after the final norm, as transformers' hidden_states[-1]; "
                f"layer {self.layer} is before it: read states(tokens, {self.layer})",
                UserWarning,
                stacklevel=3,
            )

    def select(self, index: Tensor | list[int] | slice) -> Continuation:
        """Return the continuation of the prompts at ``index``, repeated where it repeats.

        Args:
            index: integers in 0 … n − 1, a boolean mask of n, or a slice.

        Raises:
            ValueError: an entry lies outside 0 … n − 1, or none is left.
        """
        rows = self._rows(index)
        return Continuation(
            self.layer,
            self.clean_states[rows],
            self.clean_logits[rows],
            tuple(keys[rows] for keys in self.keys),
            tuple(values[rows] for values in self.values),
            {name: value[rows] for name, value in self.last.items()},
            self.caches,
            self.anatomy,
        )

    def _rows(self, index: Tensor | list[int] | slice) -> Tensor | slice:
        count = len(self)
        if isinstance(index, slice):
            chosen = range(count)[index]
            if len(chosen) == 0:
                raise ValueError(f"index: expected at least one of {count} prompts, got {index}")
            return index if chosen.step > 0 else torch.tensor(list(chosen))
        rows = torch.as_tensor(index, device=self.clean_states.device)
        if rows.dtype == torch.bool and rows.shape == (count,):
            rows = rows.nonzero()[:, 0]
        countable = not rows.is_floating_point() and rows.dtype != torch.bool
        if rows.ndim != 1 or rows.numel() == 0 or not countable:
            raise ValueError(
                f"index: expected a vector of prompt numbers, got shape {tuple(rows.shape)} "
                f"of {rows.dtype}"
            )
        if int(rows.min()) < 0 or int(rows.max()) >= count:
            raise ValueError(
                f"index: expected integers in 0 … {count - 1}, got {int(rows.min())} "
                f"… {int(rows.max())}"
            )
        return rows.long()


def continue_from(anatomy: Anatomy, tokens: Tensor, layer: int, batch_size: int) -> Continuation:
    """Run the clean prompts once and keep what the layers above ``layer`` need of them."""
    inputs = anatomy.inputs(trimmed(tokens))
    length = inputs["input_ids"].shape[1] - 1
    kept: list[Tensor] = []
    caches: tuple[Any, ...] = ()
    start = 0
    for states, logits, earlier in clean_runs(anatomy, tokens, [layer], batch_size):
        past = [part for held in earlier[layer:] for part in (held.keys, held.values)]
        parts = [states[layer], logits, *past]
        if not kept:
            kept = [part.new_empty(len(tokens), *part.shape[1:]) for part in parts]
            caches = tuple(_emptied(held, length) for held in earlier)
        for every, part in zip(kept, parts, strict=True):
            every[start : start + len(logits)] = part
        start += len(logits)
    clean, predicted, *held = kept
    return Continuation(
        layer, clean, predicted, tuple(held[::2]), tuple(held[1::2]), last_of(inputs), caches,
        anatomy,
    )  # fmt: skip


@torch.no_grad()
def clean_runs(
    anatomy: Anatomy, tokens: Tensor, layers: Sequence[int], batch_size: int
) -> Iterator[tuple[dict[int, Tensor], Tensor, list[Any]]]:
    """Run the clean prompts, their last token after all that is before it.

    What two readers of the same prompts see has the same bits, whichever layers they ask for and
    whether they keep the cache.

    Yields:
        For some prompts at a time, the last states (b, d) by layer, the logits (b, V), and the
        layers of the cache of the positions before the last.
    """
    inputs = anatomy.inputs(trimmed(tokens))
    for start in range(0, len(tokens), batch_size):
        part = {name: value[start : start + batch_size] for name, value in inputs.items()}
        earlier = prefilled(anatomy, part)
        found: dict[int, Tensor] = {}

        def keep(layer: int, states: Tensor, found: dict[int, Tensor] = found) -> None:
            found[layer] = whole(states[:, -1])

        with watched(anatomy, layers, keep):
            logits = anatomy.forward(last_of(part), resumed(anatomy, earlier))
        yield found, logits, earlier


def prefilled(anatomy: Anatomy, inputs: dict[str, Tensor]) -> list[Any]:
    """Run all positions but the last; return the layers of the cache, none for one position."""
    if inputs["input_ids"].shape[1] == 1:
        return []
    cache = _Filling(anatomy.network.config)
    with suppress(ReachedError):
        anatomy.forward(before_last(inputs), cache)
    layers: list[Any] = cache.layers
    return layers


class _Filling(DynamicCache):  # type: ignore[misc]
    """A cache that ends the forward pass that fills it once its last layer is full.

    What the last block makes of its keys and values, and all after it, is read by nobody. Where
    the last layer keeps something else too, or is made as the pass comes to it, the pass goes on.
    """

    def __init__(self, config: Any) -> None:
        super().__init__(config=config)
        plain = self.layers and type(self.layers[-1]) in (DynamicLayer, DynamicSlidingWindowLayer)
        self.last = len(self.layers) - 1 if plain else None

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *others: Any, **named: Any
    ) -> Any:
        """Keep the keys and values of one layer, and end the pass at the last."""
        found = super().update(key_states, value_states, layer_idx, *others, **named)
        if layer_idx == self.last:
            raise ReachedError
        return found


def resumed(anatomy: Anatomy, earlier: Sequence[Any]) -> Any:
    """Return a cache that goes on from layers of another and leaves them as they are."""
    cache = DynamicCache(config=anatomy.network.config)
    if earlier:
        # an update puts new tensors into these copies, and writes into none that is kept
        cache.layers = [copy.copy(layer) for layer in earlier]
    return cache


def _emptied(layer: Any, length: int) -> Any:
    """Return a copy of a cache's layer that says how long it is and holds next to nothing."""
    empty = copy.copy(layer)
    if layer.keys is not None:
        place = layer.keys.new_zeros(1, 1, 1, 1).expand(1, 1, length, 1)
        empty.keys = empty.values = place
    return empty


def check_states(name: str, states: Any, like: Tensor) -> Tensor:
    """Return ``states`` as finite floating numbers of the shape, type and device of ``like``."""
    if not isinstance(states, Tensor) or not states.is_floating_point():
        found = str(states.dtype) if isinstance(states, Tensor) else type(states).__name__
        raise ValueError(f"{name}: expected a tensor of floating-point numbers, got {found}")
    if states.shape != like.shape:
        raise ValueError(f"{name}: expected shape {tuple(like.shape)}, got {tuple(states.shape)}")
    finite = torch.isfinite(states.detach())
    if not bool(finite.all()):
        row = int((~finite).any(dim=-1).nonzero()[0, 0])
        raise ValueError(f"{name}: expected finite numbers, got NaN or infinity in row {row}")
    return states.to(like)


def batch_rows(batch_size: int | None, default: int) -> int:
    """Return the rows computed at a time."""
    return default if batch_size is None else integer("batch_size", batch_size, minimum=1)
