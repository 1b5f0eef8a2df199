"""A causal language model whose residual stream is read, replaced and continued at any layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from tacit._ground.checks import boolean, choice, integer
from tacit.models.anatomy import dissect, last_states, states_after, whole
from tacit.models.continuation import (
    Continuation,
    batch_rows,
    check_states,
    clean_runs,
    continue_from,
)
from tacit.models.generation import Prefilled
from tacit.models.padding import PADDING, is_padded, pad, trimmed
from tacit.models.pickling import packed, unpacked
from tacit.models.texts.corpus import block_groups
from tacit.models.texts.prompts import refuse_halves

TOKENS_PER_BATCH = 8192
# Of models whose positions have no end.
CONTEXT = 2048


class LanguageModel:
    """A frozen causal language model in evaluation mode, with its tokenizer.

    Attributes:
        name: what it was loaded from.
        network: the ``transformers`` model.
        tokenizer: its tokenizer, or None when a bare network was given.
        width: d, numbers in a state.
        layers: L, decoder layers.
        vocabulary: V, entries of a logit vector.
        context: the most tokens it reads; 2,048 where its configuration names no number.
        anatomy: where its decoder blocks and its head are.
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
        if isinstance(network, torch.nn.Module):
            network.eval().requires_grad_(False)
        self.anatomy = dissect(network, self.name)
        self.network = network
        self.tokenizer = tokenizer
        self.width = self.anatomy.width
        self.layers = self.anatomy.layers
        self.vocabulary = self.anatomy.vocabulary
        self.context = _context(network.config)
        self.recipe = dict(recipe or {})

    def __repr__(self) -> str:
        return (
            f"LanguageModel({self.name!r}, layers={self.layers}, width={self.width}, "
            f"vocabulary={self.vocabulary}, context={self.context})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), packed(vars(self)))

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return next(self.network.parameters()).device  # type: ignore[no-any-return]

    def encode(self, text: str) -> list[int]:
        """Return the tokens of ``text``, without special ones."""
        if not isinstance(text, str) or not text:
            found = "an empty one" if text == "" else type(text).__name__
            raise ValueError(f"text: expected a text that is not empty, got {found}")
        refuse_halves("text", [text])
        return list(self._tokenizer()(text, add_special_tokens=False, verbose=False)["input_ids"])

    def stream(self, text: str) -> Tensor:
        """Return the tokens of a long text, tokenised in blocks of lines, (S,) of int64."""
        if not isinstance(text, str) or not text:
            found = "an empty one" if text == "" else type(text).__name__
            raise ValueError(f"text: expected a text that is not empty, got {found}")
        refuse_halves("text", [text])
        tokenizer = self._tokenizer()
        options = {"add_special_tokens": False, "return_attention_mask": False, "verbose": False}
        parts = (
            torch.tensor(ids, dtype=torch.int64)
            for blocks in block_groups(text)
            for ids in tokenizer(blocks, **options)["input_ids"]
        )
        return torch.cat(list(parts))

    def prompts(
        self,
        texts: Sequence[str],
        *,
        chat_template: bool = False,
        bare: bool = False,
        every: bool = False,
    ) -> Tensor:
        """Return prompts as the model is served them, shorter ones padded on the left.

        Args:
            texts: n of them.
            chat_template: put each as a user's message into the tokenizer's chat template, up to
                where the model answers.
            bare: without special tokens.
            every: as for ``tokenised``.

        Returns:
            Tokens with the special ones that the tokenizer adds, (n, T) of int64, −1 where padded.

        Raises:
            ValueError: a text is empty, or chat is asked of a tokenizer without a template.
        """
        return pad(self.tokenised(texts, chat_template=chat_template, bare=bare, every=every))

    def tokenised(
        self,
        texts: Sequence[str],
        *,
        chat_template: bool = False,
        bare: bool = False,
        every: bool = False,
    ) -> list[list[int]]:
        """Return the tokens of prompts as the model is served them, as many as each has.

        Args:
            texts: n of them.
            chat_template: as for ``prompts``.
            bare: without special tokens.
            every: take empty texts too: what has no token is the token that texts start with, or
                end with where none starts them, or 0.

        Raises:
            ValueError: as ``prompts``.
        """
        boolean("chat_template", chat_template)
        boolean("bare", bare)
        tokenizer = self._tokenizer()
        for place, text in enumerate(texts):
            if not isinstance(text, str) or not (text or boolean("every", every)):
                raise ValueError(f"texts: expected texts that are not empty, got none at {place}")
        refuse_halves("texts", texts)
        if not chat_template:
            options = {"return_attention_mask": False, "verbose": False}
            found = tokenizer(list(texts), add_special_tokens=not bare, **options)["input_ids"]
            return [list(ids) or ([self._first_token] if every else []) for ids in found]
        if not getattr(tokenizer, "chat_template", None):
            raise ValueError(f"chat_template: the tokenizer of {self.name} has none")
        chats = [
            tokenizer.apply_chat_template(
                [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False
            )
            for text in texts
        ]
        # the template has written the special tokens itself
        return [self.encode(chat) for chat in chats]

    @property
    def _first_token(self) -> int:
        """The token that a text starts with where it has no other."""
        tokenizer = self._tokenizer()
        named = (getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "eos", "pad"))
        return next((int(token) for token in named if token is not None), 0)

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
            tokens: integers, (n, T) with T ≤ ``context``; −1 before the first token of a prompt
                that is shorter than the others.
            layer: 1 … L, or 0 for the embeddings. Layer L is what the last decoder block returns,
                before the final norm; ``hidden_states[-1]`` of ``transformers`` is after it.
            positions: ``"last"`` or ``"all"``.
            batch_size: prompts run at a time.

        Returns:
            (n, d) for the last position, (n, T, d) for all of them, of float32.

        Raises:
            ValueError: tokens or layer outside the model, or all positions of padded prompts.
        """
        ids, level = self.check_tokens(tokens), self.check_layer(layer)
        last = choice("positions", positions, ("last", "all")) == "last"
        if not last and is_padded(ids):
            raise ValueError("positions: expected 'last' for prompts of several lengths, got 'all'")
        parts = (
            states_after(self.anatomy, level, batch) for batch in self._batches(ids, batch_size)
        )
        return torch.cat([part[:, -1] if last else part for part in parts])

    @torch.no_grad()
    def logits(self, tokens: ArrayLike, *, batch_size: int | None = None) -> Tensor:
        """Predict the token after each prompt: logits at the last position, (n, V)."""
        anatomy = self.anatomy
        batches = self._batches(self.check_tokens(tokens), batch_size)
        return torch.cat([anatomy.forward(anatomy.inputs(batch)) for batch in batches])

    @torch.no_grad()
    def passes(
        self, tokens: ArrayLike, layers: Iterable[int], *, batch_size: int | None = None
    ) -> Iterator[tuple[dict[int, Tensor], Tensor]]:
        """Read the last position after several layers, and what is predicted, in one pass.

        Args:
            tokens: integers, (n, T) with T ≤ ``context``, padded as for ``states``.
            layers: each 1 … L, or 0 for the embeddings.
            batch_size: prompts run at a time.

        Yields:
            For a batch of prompts at a time, the states (b, d) by layer and the logits (b, V).

        Raises:
            ValueError: tokens or layer outside the model.
        """
        ids, levels = self.check_tokens(tokens), [self.check_layer(layer) for layer in layers]
        for batch in self._batches(ids, batch_size):
            yield last_states(self.anatomy, levels, batch)

    def clean_runs(
        self, tokens: ArrayLike, layers: Iterable[int], *, batch_size: int | None = None
    ) -> Iterator[tuple[dict[int, Tensor], Tensor]]:
        """Read what ``passes`` reads, with the bits that a ``continuation`` has.

        Args:
            tokens: as for ``passes``.
            layers: likewise.
            batch_size: likewise.
        """
        ids, levels = self.check_tokens(tokens), [self.check_layer(layer) for layer in layers]
        for states, logits, _ in clean_runs(self.anatomy, ids, levels, self._rows(ids, batch_size)):
            yield states, logits

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
        return continue_from(self.anatomy, ids, level, self._rows(ids, batch_size))

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
            like = torch.empty(len(ids), self.width, dtype=self.anatomy.dtype, device=self.device)
            like = whole(like)
            states = check_states("states", states, like)
        parts = torch.split(ids, self._rows(ids, batch_size))
        given: Sequence[Tensor | None] = [None] * len(parts)
        if states is not None:
            given = torch.split(states, [len(part) for part in parts])
        return torch.cat(
            [
                Prefilled.of(self.anatomy, part).generate(level, own, count)
                for part, own in zip(parts, given, strict=True)
            ]
        )

    def prefilled(self, tokens: ArrayLike, *, batch_size: int | None = None) -> list[Prefilled]:
        """Run all positions of the prompts but the last, to continue them several times.

        Args:
            tokens: as for ``generate``.
            batch_size: prompts run at a time, each batch an entry of its own.
        """
        ids = self.check_tokens(tokens)
        parts = torch.split(ids, self._rows(ids, batch_size))
        return [Prefilled.of(self.anatomy, part) for part in parts]

    def check_tokens(self, tokens: ArrayLike, *, room: int = 0, name: str = "tokens") -> Tensor:
        """Return ``tokens`` as int64 on the model's device, or say what is wrong with them."""
        try:
            ids = torch.as_tensor(tokens)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            raise ValueError(
                f"{name}: expected integers of shape (n, T), got {type(tokens).__name__}"
            ) from None
        if ids.ndim != 2 or ids.numel() == 0 or ids.dtype not in _INTEGERS:
            raise ValueError(
                f"{name}: expected integers of shape (n, T), got {ids.dtype} of shape "
                f"{tuple(ids.shape)}"
            )
        if ids.shape[1] + room > self.context:
            more = f" and {room} more" if room else ""
            raise ValueError(
                f"{name}: expected at most {self.context} positions, got {ids.shape[1]}{more}"
            )
        ids = ids.to(self.device, torch.int64)
        # padding stands before the tokens of a prompt, never after one
        before = (ids == PADDING).cummin(dim=1).values
        before[:, -1] = False
        real = ids[~before]
        low, high = int(real.min()), int(real.max())
        if low < 0 or high >= self.anatomy.embedded:
            raise ValueError(
                f"{name}: expected integers in 0 … {self.anatomy.embedded - 1}, with {PADDING} in "
                f"front of shorter prompts, got {low} … {high}"
            )
        return ids

    def check_layer(self, layer: int) -> int:
        """Return ``layer`` when the model has it; 0 stands for the embeddings."""
        return integer("layer", layer, minimum=0, maximum=self.layers)

    def _rows(self, ids: Tensor, batch_size: int | None) -> int:
        return batch_rows(batch_size, max(1, TOKENS_PER_BATCH // ids.shape[1]))

    def _batches(self, ids: Tensor, batch_size: int | None) -> Iterator[Tensor]:
        for batch in torch.split(ids, self._rows(ids, batch_size)):
            yield trimmed(batch)


def _restored(kind: type[LanguageModel], content: bytes) -> LanguageModel:
    model = object.__new__(kind)
    vars(model).update(unpacked(content))
    return model


_INTEGERS = {torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint16}


def _context(config: Any) -> int:
    """Return the most tokens that a configuration says the model reads."""
    text = config.get_text_config(decoder=True)
    named = (getattr(text, name, None) for name in ("max_position_embeddings", "seq_length"))
    return next((int(size) for size in named if size), CONTEXT)
