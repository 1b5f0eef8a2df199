"""A causal language model whose residual stream is read, replaced and continued at any layer."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from numpy.typing import ArrayLike
from safetensors import SafetensorError
from torch import Tensor
from transformers import DynamicCache

from tacit._ground.checks import choice, integer
from tacit.models.anatomy import (
    check_family,
    dissect,
    last_position_replaced,
    last_states,
    states_before,
)
from tacit.models.continuation import Continuation, batch_rows, check_states, continue_from
from tacit.models.texts.corpus import block_groups

SMALL = "tacit/small"
STORED = Path(__file__).parent / "small" / "stored"
TOKENS_PER_BATCH = 8192


class LanguageModel:
    """A frozen causal language model in evaluation mode, with its tokenizer.

    Attributes:
        name: what it was loaded from.
        network: the ``transformers`` model.
        tokenizer: its tokenizer, or None when a bare network was given.
        width: d, numbers in a state.
        layers: L, decoder layers.
        vocabulary: V, entries of a logit vector.
        context: the most tokens it reads.
        recipe: how Tacit trained it, empty for a model from elsewhere.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
        >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes)))
        >>> tokens = torch.arange(6).reshape(2, 3)
        >>> states = model.states(tokens, layer=1)
        >>> continued = model.continuation(tokens, layer=1)
        >>> torch.allclose(continued.logits(states), model.logits(tokens), atol=1e-5)
        True
        >>> model.generate(tokens, 1, states + torch.randn(2, 16), steps=4).shape
        torch.Size([2, 4])
    """

    def __init__(
        self,
        network: Any,
        tokenizer: Any = None,
        *,
        name: str | None = None,
        recipe: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = type(network).__name__ if name is None else name
        self._anatomy = dissect(network, self.name)
        self.network = network.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.width = int(network.config.hidden_size)
        self.layers = self._anatomy.layers
        self.vocabulary = int(network.config.vocab_size)
        self.context = int(network.config.max_position_embeddings)
        self.recipe = dict(recipe or {})

    def __repr__(self) -> str:
        return (
            f"LanguageModel({self.name!r}, layers={self.layers}, width={self.width}, "
            f"vocabulary={self.vocabulary}, context={self.context})"
        )

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return next(self.network.parameters()).device  # type: ignore[no-any-return]

    def encode(self, text: str) -> list[int]:
        """Return the tokens of ``text``, without special ones."""
        if not isinstance(text, str) or not text:
            raise ValueError(f"text: expected a text that is not empty, got {text!r}")
        return list(self._tokenizer()(text, add_special_tokens=False, verbose=False)["input_ids"])

    def stream(self, text: str) -> Tensor:
        """Return the tokens of a long text, tokenised in blocks of lines, (S,) of int64."""
        if not isinstance(text, str) or not text:
            raise ValueError(f"text: expected a text that is not empty, got {text!r}")
        tokenizer = self._tokenizer()
        options = {"add_special_tokens": False, "return_attention_mask": False, "verbose": False}
        parts = (
            torch.tensor(ids, dtype=torch.int64)
            for blocks in block_groups(text)
            for ids in tokenizer(blocks, **options)["input_ids"]
        )
        return torch.cat(list(parts))

    def decode(self, ids: Any) -> str:
        """Return the text of a sequence of tokens."""
        return str(self._tokenizer().decode([int(token) for token in ids]))

    def _tokenizer(self) -> Any:
        if self.tokenizer is None:
            raise ValueError(f"tokenizer: {self.name} was given without one")
        return self.tokenizer

    @torch.no_grad()
    def states(
        self,
        tokens: ArrayLike,
        layer: int,
        *,
        positions: str = "last",
        batch_size: int | None = None,
    ) -> Tensor:
        """Read the residual stream after a decoder layer; the layers above are not computed.

        Args:
            tokens: integers, (n, T) with T ≤ ``context``.
            layer: 1 … L, or 0 for the embeddings.
            positions: ``"last"`` or ``"all"``.
            batch_size: prompts run at a time.

        Returns:
            (n, d) for the last position, (n, T, d) for all of them.

        Raises:
            ValueError: tokens or layer outside the model.
        """
        ids, level = self.check_tokens(tokens), self.check_layer(layer)
        last = choice("positions", positions, ("last", "all")) == "last"
        parts = (
            states_before(self._anatomy, level, batch) for batch in self._batches(ids, batch_size)
        )
        return torch.cat([part[:, -1] if last else part for part in parts])

    @torch.no_grad()
    def logits(self, tokens: ArrayLike, *, batch_size: int | None = None) -> Tensor:
        """Predict the token after each prompt: logits at the last position, (n, V)."""
        anatomy = self._anatomy
        return torch.cat(
            [
                anatomy.head(
                    anatomy.body(input_ids=batch, use_cache=False).last_hidden_state[:, -1]
                )
                for batch in self._batches(self.check_tokens(tokens), batch_size)
            ]
        )

    @torch.no_grad()
    def passes(
        self, tokens: ArrayLike, layers: Iterable[int], *, batch_size: int | None = None
    ) -> Iterator[tuple[dict[int, Tensor], Tensor]]:
        """Read the last position after several layers, and what is predicted, in one pass.

        Args:
            tokens: integers, (n, T) with T ≤ ``context``.
            layers: each 1 … L, or 0 for the embeddings.
            batch_size: prompts run at a time.

        Yields:
            For a batch of prompts at a time, the states (b, d) by layer and the logits (b, V).

        Raises:
            ValueError: tokens or layer outside the model.
        """
        ids, levels = self.check_tokens(tokens), [self.check_layer(layer) for layer in layers]
        for batch in self._batches(ids, batch_size):
            yield last_states(self._anatomy, levels, batch)

    def continuation(
        self, tokens: ArrayLike, layer: int, *, batch_size: int | None = None
    ) -> Continuation:
        """Run the prompts once and keep what the layers above ``layer`` need of them.

        The kept keys and values take 2 (L − l)(T − 1) numbers per prompt and key-value head
        width: for many long prompts, make one continuation per batch of them.

        Args:
            tokens: integers, (n, T) with T ≤ ``context``.
            layer: 1 … L, or 0 for the embeddings.
            batch_size: prompts run at a time.

        Returns:
            What predicts the next token from any states at the last position (protocol A).

        Raises:
            ValueError: tokens or layer outside the model.
        """
        ids, level = self.check_tokens(tokens), self.check_layer(layer)
        return continue_from(self._anatomy, ids, level, self._rows(ids, batch_size))

    @torch.no_grad()
    def generate(
        self,
        tokens: ArrayLike,
        layer: int,
        states: Tensor | None,
        steps: int = 8,
        *,
        batch_size: int | None = None,
    ) -> Tensor:
        """Continue each prompt greedily after its last position's state was replaced.

        As with a hook on the layer, what the layers up to ``layer`` keep of the last position is
        clean, and what those above keep comes from the replaced state.

        Args:
            tokens: integers, (n, T) with T + steps − 1 ≤ ``context``.
            layer: 1 … L, or 0 for the embeddings.
            states: (n, d), or None for the model's own.
            steps: tokens generated.
            batch_size: prompts run at a time.

        Returns:
            The tokens that follow, (n, steps); the end-of-text token is one like any other.

        Raises:
            ValueError: tokens, layer or states outside the model, or a result beyond its context.
        """
        count = integer("steps", steps, minimum=1)
        ids = self.check_tokens(tokens, room=count - 1)
        level = self.check_layer(layer)
        if states is not None:
            states = check_states(
                "states", states, self._parameter().new_empty(len(ids), self.width)
            )
        size = self._rows(ids, batch_size)
        return torch.cat(
            [
                self._generate(
                    ids[at : at + size],
                    level,
                    None if states is None else states[at : at + size],
                    count,
                )
                for at in range(0, len(ids), size)
            ]
        )

    def _generate(self, ids: Tensor, layer: int, states: Tensor | None, steps: int) -> Tensor:
        anatomy, cache = self._anatomy, DynamicCache(config=self.network.config)
        hook = None if states is None else last_position_replaced(anatomy, layer, states)
        chosen: list[Tensor] = []
        try:
            while True:
                output = anatomy.body(input_ids=ids, past_key_values=cache, use_cache=True)
                chosen.append(anatomy.head(output.last_hidden_state[:, -1]).argmax(dim=-1))
                if len(chosen) == steps:
                    return torch.stack(chosen, dim=1)
                ids = chosen[-1][:, None]
                if hook is not None:
                    hook.remove()
        finally:
            if hook is not None:
                hook.remove()

    def check_tokens(self, tokens: ArrayLike, *, room: int = 0) -> Tensor:
        """Return ``tokens`` as int64 on the model's device, or say what is wrong with them."""
        try:
            ids = torch.as_tensor(tokens)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            raise ValueError(
                f"tokens: expected integers of shape (n, T), got {type(tokens).__name__}"
            ) from None
        if ids.ndim != 2 or ids.numel() == 0 or ids.dtype not in _INTEGERS:
            raise ValueError(
                f"tokens: expected integers of shape (n, T), got {ids.dtype} of shape "
                f"{tuple(ids.shape)}"
            )
        if ids.shape[1] + room > self.context:
            more = f" and {room} more" if room else ""
            raise ValueError(
                f"tokens: expected at most {self.context} positions, got {ids.shape[1]}{more}"
            )
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= self.vocabulary:
            raise ValueError(
                f"tokens: expected integers in 0 … {self.vocabulary - 1}, got {low} … {high}"
            )
        return ids.to(self.device, torch.int64)

    def check_layer(self, layer: int) -> int:
        """Return ``layer`` when the model has it; 0 stands for the embeddings."""
        return integer("layer", layer, minimum=0, maximum=self.layers)

    def _rows(self, ids: Tensor, batch_size: int | None) -> int:
        return batch_rows(batch_size, max(1, TOKENS_PER_BATCH // ids.shape[1]))

    def _batches(self, ids: Tensor, batch_size: int | None) -> Iterator[Tensor]:
        yield from torch.split(ids, self._rows(ids, batch_size))

    def _parameter(self) -> Tensor:
        return next(self.network.parameters())  # type: ignore[no-any-return]


_INTEGERS = {torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint16}


def load(
    name_or_path: Any,
    *,
    device: str = "cpu",
    tokenizer: Any = None,
) -> LanguageModel:
    """Load a causal language model: Tacit's own small one, or any of a known family.

    Args:
        name_or_path: ``"tacit/small"``, which comes with this package; a Hugging Face name; a
            folder with such a model, one that ``train`` wrote included; or a ``transformers``
            model.
        device: where it computes.
        tokenizer: the tokenizer of a ``transformers`` model.

    Returns:
        The model in float32, frozen.

    Raises:
        ValueError: no such model, or one whose decoder layers are not known here.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
        >>> load(LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=50, num_attention_heads=2)))
        LanguageModel('LlamaForCausalLM', layers=2, width=16, vocabulary=50, context=2048)
    """
    place = check_device(device)
    if isinstance(name_or_path, str) and name_or_path == SMALL:
        model = _pretrained(os.fspath(STORED), place)
        model.name = SMALL
        return model
    if isinstance(name_or_path, torch.nn.Module):
        return LanguageModel(name_or_path.to(place, torch.float32), tokenizer)
    if not isinstance(name_or_path, (str, os.PathLike)) or not os.fspath(name_or_path):
        raise ValueError(
            f"name_or_path: expected a name, a folder or a transformers model, got {name_or_path!r}"
        )
    return _pretrained(os.fspath(name_or_path), place)


def check_device(device: Any) -> torch.device:
    """Return the device when PyTorch has it here."""
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, TypeError, AssertionError):
        raise ValueError(f"device: expected one that PyTorch has here, got {device!r}") from None
    return place


def _pretrained(name: str, device: torch.device) -> LanguageModel:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from tacit.models.small.storage import quiet, read_recipe

    with quiet(), _loading(name):
        config = AutoConfig.from_pretrained(name)
    check_family(config, name)
    with quiet(), _loading(name):
        network = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(name)
    return LanguageModel(network.to(device), tokenizer, name=name, recipe=read_recipe(name))


@contextmanager
def _loading(name: str) -> Iterator[None]:
    """Turn what goes wrong with files, names and the network into one sentence."""
    try:
        yield
    except (OSError, ValueError, SafetensorError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"name_or_path: cannot load {name!r}: {reason}") from None
