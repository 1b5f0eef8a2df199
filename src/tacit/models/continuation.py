"""The rest of the forward pass from one layer's last state, the earlier positions kept clean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from tacit._ground.checks import integer
from tacit._ground.reprs import short_repr
from tacit.models.anatomy import Anatomy

STATES_PER_BATCH = 1024


@dataclass(frozen=True)
class LayerCall:
    """How the family's own body calls one decoder layer for a token that follows the prefix."""

    positional: tuple[Any, ...]
    named: Mapping[str, Any]


class _Past:
    """Keys and values of the earlier positions of one layer, read by its attention, never grown."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self._keys, self._values = keys, values

    def update(
        self, keys: Tensor, values: Tensor, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        return torch.cat([self._keys, keys], dim=-2), torch.cat([self._values, values], dim=-2)


_PAST = object()


@short_repr
@dataclass(frozen=True, eq=False)
class Continuation:
    """What the layers above ``layer`` need of n prompts to read another state at the last position.

    ``logits(h) = head(norm(layer_L(… layer_{l+1}(h; keys, values of the earlier positions))))``:
    consumer protocol A, in which the earlier positions stay clean. Only the last position is
    computed, by the model's own layers.

    Attributes:
        layer: l, the layer whose last state is replaced.
        clean_states: the states the model itself has there, (n, d).
        clean_logits: what the model itself predicts, (n, V).
        keys: per upper layer, (n, heads, T − 1, head width) or the part its window still sees.
        values: as ``keys``.

    Source:
        hidden-state, App. A.1, injection hook. (The paper letters ways to measure, of which this
        is B; consumer protocol A says what the consumer holds besides the state.)
    """

    layer: int
    clean_states: Tensor
    clean_logits: Tensor
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    anatomy: Anatomy
    calls: tuple[LayerCall, ...]

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
            Logits of the next token, (n, V).

        Raises:
            ValueError: ``states`` is not finite or not of shape (n, d).
        """
        checked = check_states("states", states, self.clean_states)
        size = batch_rows(batch_size, STATES_PER_BATCH)
        starts = range(0, len(self), size)
        return torch.cat([self._logits(checked, slice(at, at + size)) for at in starts])

    def _logits(self, states: Tensor, rows: slice) -> Tensor:
        hidden = states[rows, None]
        *layers, norm = self.anatomy.stages[self.layer :]
        for layer, call, keys, values in zip(
            layers, self.calls, self.keys, self.values, strict=True
        ):
            past = _Past(keys[rows], values[rows])
            hidden = layer(
                hidden,
                *(_filled(value, past) for value in call.positional),
                **{name: _filled(value, past) for name, value in call.named.items()},
            )
        logits: Tensor = self.anatomy.head(norm(hidden)[:, -1])
        return logits

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
            self.anatomy,
            self.calls,
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
    kept: list[Tensor] = []
    calls: tuple[LayerCall, ...] = ()
    for start in range(0, len(tokens), batch_size):
        rows = slice(start, start + batch_size)
        parts, calls = _clean_run(anatomy, tokens[rows], layer)
        if not kept:
            kept = [part.new_empty(len(tokens), *part.shape[1:]) for part in parts]
        for whole, part in zip(kept, parts, strict=True):
            whole[rows] = part
    states, logits, *past = kept
    return Continuation(layer, states, logits, tuple(past[::2]), tuple(past[1::2]), anatomy, calls)


@torch.no_grad()
def _clean_run(
    anatomy: Anatomy, tokens: Tensor, layer: int
) -> tuple[list[Tensor], tuple[LayerCall, ...]]:
    """Return clean states, clean logits, each upper layer's keys and values, and the calls."""
    config: Any = anatomy.body.config
    cache = DynamicCache(config=config)
    if tokens.shape[1] > 1:
        anatomy.body(input_ids=tokens[:, :-1], past_key_values=cache, use_cache=True)
        past = _kept(cache, layer)
    with _recorded(anatomy, layer) as record:
        output = anatomy.body(input_ids=tokens[:, -1:], past_key_values=cache, use_cache=True)
    if tokens.shape[1] == 1:
        past = [part[..., :0, :] for part in _kept(cache, layer)]
    logits = anatomy.head(output.last_hidden_state[:, -1])
    calls = tuple(_call(positional, named, cache) for positional, named in record[:-1])
    return [record[0][0][0][:, -1], logits, *past], calls


def _kept(cache: Any, layer: int) -> list[Tensor]:
    return [part for kept in cache.layers[layer:] for part in (kept.keys, kept.values)]


@contextmanager
def _recorded(
    anatomy: Anatomy, layer: int
) -> Iterator[list[tuple[tuple[Any, ...], dict[str, Any]]]]:
    """Record with which arguments the body calls each stage from ``layer`` on."""
    record: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def note(_: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        record.append((positional, named))

    handles = [
        stage.register_forward_pre_hook(note, with_kwargs=True) for stage in anatomy.stages[layer:]
    ]
    try:
        yield record
    finally:
        for handle in handles:
            handle.remove()


def _call(positional: tuple[Any, ...], named: dict[str, Any], cache: object) -> LayerCall:
    """Keep a call without its states and its cache; all prompts share masks and positions."""

    def general(value: Any) -> Any:
        if value is cache:
            return _PAST
        if isinstance(value, tuple):
            return tuple(general(part) for part in value)
        return value[:1] if isinstance(value, Tensor) else value

    return LayerCall(
        tuple(general(value) for value in positional[1:]),
        {name: general(value) for name, value in named.items()},
    )


def _filled(value: Any, past: _Past) -> Any:
    return past if value is _PAST else value


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
