"""What stands for a cached position: a code of its state, or codes of its keys and values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from transformers import DynamicCache

from tacit._ground.checks import RandomSource, generator, integer
from tacit._ground.reprs import short_repr, shown
from tacit.attacks.exact.channels import as_array
from tacit.hidden_states.codebooks.certificates import CodeCertificate, Codes
from tacit.hidden_states.codebooks.codec import Codec
from tacit.hidden_states.codebooks.methods import ProductFit
from tacit.hidden_states.codebooks.product import ProductCodebook
from tacit.hidden_states.trajectories.certificate import certify_trajectory
from tacit.models.anatomy import rewritten
from tacit.models.language import LanguageModel
from tacit.models.padding import prompt_lengths

PROMPTS_TOGETHER = 64


class Coder(ABC):
    """Puts codes in the place of what a model keeps of every position while it generates."""

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """Codes there are of each number that is kept of one position."""

    @property
    @abstractmethod
    def words(self) -> str:
        """What is kept of a position, in a few words."""

    @abstractmethod
    def beside(self, model: LanguageModel) -> str:
        """What the model keeps beside the codes, as it is, and needs to go on; "" for nothing."""

    @abstractmethod
    def check(self, model: LanguageModel) -> None:
        """Refuse a model that the codes were not made for."""

    @abstractmethod
    def coding(self, model: LanguageModel, /) -> Any:
        """Return a context of a ``Coded``, in which passes of the model read codes."""

    def certify(self, codes: ArrayLike, *, weights: ArrayLike | None = None) -> CodeCertificate:
        """Bound what the codes of all positions tell about the prompt.

        For every prompt and prior they multiply the chance of a right guess by at most
        ``(Π_j C_j)^T``; among N equally likely ones of a bank whoever names one is right at most as
        often as there are different sequences of codes, over N.

        Args:
            codes: of every prompt of a bank, (N, T, m), −1 before those of a shorter one, whose
                length is then told too.
            weights: (N,) probabilities up to a factor; uniform when None.

        Raises:
            ValueError: codes of another shape, or none of the coder's.
        """
        held = as_array("codes", codes)
        if held.dtype.kind not in "iu":
            raise ValueError(f"codes: expected integers, got {held.dtype}")
        if held.ndim != 3 or held.shape[2] != len(self.sizes):
            raise ValueError(f"codes: expected shape (N, T, {len(self.sizes)}), got {held.shape}")
        return certify_trajectory(held, [self.sizes] * held.shape[1], weights=weights)


@dataclass(eq=False)
class Coded:
    """The codes of a run: a part (n, t, m) of every forward pass.

    Attributes:
        parts: codes so far.
        sequential: whether a position reads codes of those before it only where they were coded in
            an earlier pass, so that a prompt is run token by token.
    """

    sequential: ClassVar[bool] = False

    parts: list[Codes] = field(default_factory=list)

    def keep(self, cache: DynamicCache) -> None:
        """Put codes in the place of what a pass has added to a cache."""

    @property
    def codes(self) -> Codes:
        """Codes of every position, (n, T, m)."""
        return np.concatenate(self.parts, axis=1)


@short_repr
@dataclass(frozen=True, eq=False)
class StateCoder(Coder):
    """The code of every position's state after a layer; the layers above read its codeword.

    Args:
        book: a ``Codebook`` or ``ProductCodebook`` that reads codes off states.
        layer: 1 … L.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
        >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes)))
        >>> states = model.states(torch.arange(48).reshape(16, 3), 1, positions="all")
        >>> from tacit.hidden_states import Codebook, CodebookFit
        >>> how = CodebookFit(size=4, least_cell=1)
        >>> book = Codebook.fit(states.reshape(-1, 16), how, rng=0)
        >>> coder = StateCoder(book, 1)
        >>> coder.sizes, coder.words
        ((4,), 'a code of the state after layer 1')
    """

    book: Codec
    layer: int

    def __post_init__(self) -> None:
        if not isinstance(self.book, Codec):
            raise ValueError(f"book: expected a codebook, got {shown(self.book)}")
        integer("layer", self.layer, minimum=1)

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.book.sizes

    @property
    def words(self) -> str:
        return f"a code of the state after layer {self.layer}"

    def beside(self, model: LanguageModel) -> str:
        return f"the keys and values of layers 1 … {self.layer}"

    def check(self, model: LanguageModel) -> None:
        integer("layer", self.layer, minimum=1, maximum=model.layers)
        if self.book.width != model.width:
            raise ValueError(
                f"coder: expected codes of {model.width} numbers, got of {self.book.width}"
            )
        self.book.encode(torch.zeros(1, self.book.width))

    @contextmanager
    def coding(self, model: LanguageModel, /) -> Iterator[Coded]:
        found = Coded()

        def coded(hidden: Tensor) -> Tensor:
            rows = hidden.reshape(-1, hidden.shape[-1])
            codes = self.book.encode(rows.float().cpu())
            found.parts.append(codes.reshape(*hidden.shape[:-1], codes.shape[1]))
            words = self.book.decode(codes)
            return words.to(hidden).reshape(hidden.shape)

        with rewritten(model.anatomy, self.layer, coded):
            yield found


@short_repr
@dataclass(frozen=True, eq=False)
class CacheCoder(Coder):
    """Codes of every head's key and value in some layers' caches.

    A position attends to itself as it is, and is read as its codes by all later ones, those of the
    prompt among them. The certificate is of what is kept: what the model says while it reads a
    position, the token that it generates there among it, is no code.

    Args:
        books: of each layer 1 … L that is coded, a product of 2H books: H heads' keys, H heads'
            values.
    """

    books: Mapping[int, ProductCodebook]

    def __post_init__(self) -> None:
        if not isinstance(self.books, Mapping) or not self.books:
            raise ValueError(f"books: expected a mapping from layers, got {shown(self.books)}")
        for layer, book in self.books.items():
            integer("books", layer, minimum=1)
            if not isinstance(book, ProductCodebook):
                raise ValueError(f"books: expected a ProductCodebook a layer, got {shown(book)}")
        object.__setattr__(self, "books", MappingProxyType(dict(sorted(self.books.items()))))

    @classmethod
    def fit(
        cls,
        model: LanguageModel,
        prompts: Any,
        *,
        size: int = 256,
        layers: Any = None,
        least_cell: int = 1,
        rng: RandomSource = None,
    ) -> CacheCoder:
        """Fit a book of C codes for every head's keys and values on public prompts.

        Args:
            model: the language model.
            prompts: public tokens, (n, T), −1 where padded.
            size: C at most.
            layers: which; all when None.
            least_cell: calibration positions of a cell at least.
            rng: source of the choices.

        Raises:
            ValueError: a bad argument, or a model whose cache holds something else.

        Example:
            >>> from transformers import GPT2Config, GPT2LMHeadModel
            >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2}
            >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes, n_positions=8)))
            >>> coder = CacheCoder.fit(model, torch.arange(96).reshape(16, 6) % 50, size=4, rng=0)
            >>> coder.sizes
            (4, 4, 4, 4, 4, 4, 4, 4)
        """
        tokens = model.check_tokens(prompts, name="prompts")
        chosen = range(1, model.layers + 1) if layers is None else layers
        if not isinstance(chosen, Iterable):
            raise ValueError(f"layers: expected several, got {shown(layers)}")
        levels = sorted({integer("layers", one, minimum=1, maximum=model.layers) for one in chosen})
        if not levels:
            raise ValueError("layers: expected at least one, got none")
        source = generator(rng)
        rows: dict[int, list[Tensor]] = {layer: [] for layer in levels}
        heads = 0
        for _, part in by_length(tokens, PROMPTS_TOGETHER):
            cache = DynamicCache(config=model.network.config)
            with torch.no_grad():
                model.anatomy.forward(model.anatomy.inputs(part), cache)
            for layer in levels:
                keys, values = _held(cache, layer)
                heads = keys.shape[1]
                rows[layer].append(_joined(keys, values).reshape(-1, 2 * heads * keys.shape[3]))
        how = ProductFit(parts=2 * heads, size=size, least_cell=least_cell)
        return cls(
            {
                layer: ProductCodebook.fit(
                    torch.cat(parts).float().cpu(), how, rng=source, progress=False
                )
                for layer, parts in rows.items()
            }
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size for book in self.books.values() for size in book.sizes)

    @property
    def words(self) -> str:
        return f"codes of the keys and values of {len(self.books)} layers"

    def beside(self, model: LanguageModel) -> str:
        others = [str(one) for one in range(1, model.layers + 1) if one not in self.books]
        return f"the keys and values of layers {', '.join(others)}" if others else ""

    def check(self, model: LanguageModel) -> None:
        cache = DynamicCache(config=model.network.config)
        with torch.no_grad():
            model.anatomy.forward(model.anatomy.inputs(torch.zeros(1, 1, dtype=torch.int64)), cache)
        for layer, book in self.books.items():
            integer("layer", layer, minimum=1, maximum=model.layers)
            keys, _ = _held(cache, layer)
            if len(book.sizes) != 2 * keys.shape[1] or book.width != 2 * keys[0, :, 0].numel():
                raise ValueError(
                    f"coder: expected {2 * keys.shape[1]} books of {keys.shape[3]} numbers in "
                    f"layer {layer}, got {len(book.sizes)} of {book.width} together"
                )

    @contextmanager
    def coding(self, _: LanguageModel, /) -> Iterator[Coded]:
        yield _CodedCache(self.books)


class _CodedCache(Coded):
    """Codes what every pass adds to a cache."""

    sequential: ClassVar[bool] = True

    def __init__(self, books: Mapping[int, ProductCodebook]) -> None:
        super().__init__()
        self._books, self._known = books, 0

    def keep(self, cache: DynamicCache) -> None:
        found = []
        end = 0
        for layer, book in self._books.items():
            keys, values = _held(cache, layer)
            end = keys.shape[2]
            fresh = _joined(keys[:, :, self._known :], values[:, :, self._known :])
            flat = fresh.reshape(-1, fresh.shape[-1])
            codes = book.assign(flat.float().cpu())
            words = book.decode(codes).to(fresh).reshape(fresh.shape)
            _write(cache, layer, self._known, words)
            found.append(codes.reshape(*fresh.shape[:2], -1))
        self.parts.append(np.concatenate(found, axis=2))
        self._known = end


def by_length(tokens: Tensor, together: int) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
    """Yield places and tokens (n, T') of prompts of one length T', without their padding.

    Args:
        tokens: (N, T), −1 before the first token of a shorter prompt.
        together: prompts at most.
    """
    lengths = prompt_lengths(tokens).cpu().numpy()
    for length in np.unique(lengths):
        same = np.flatnonzero(lengths == length)
        for start in range(0, len(same), together):
            rows = same[start : start + together]
            yield rows, tokens[rows, -int(length) :]


def _held(cache: DynamicCache, layer: int) -> tuple[Tensor, Tensor]:
    """Return keys and values of a layer, (n, H, T, d/H) each."""
    held = cache.layers[layer - 1]
    keys, values = getattr(held, "keys", None), getattr(held, "values", None)
    if keys is None or values is None or keys.ndim != 4 or keys.shape != values.shape:
        raise ValueError("model: expected a cache of keys and values (n, H, T, d) of one shape")
    if getattr(held, "is_sliding", False):
        raise ValueError(
            f"layers: expected layers that keep every position, layer {layer} keeps a window"
        )
    return keys, values


def _joined(keys: Tensor, values: Tensor) -> Tensor:
    """Return every position's keys and values of all heads side by side, (n, T, 2 H d/H)."""
    both = torch.cat([keys, values], dim=1).transpose(1, 2)
    return both.reshape(*both.shape[:2], -1)


def _write(cache: DynamicCache, layer: int, start: int, words: Tensor) -> None:
    held: Any = cache.layers[layer - 1]
    heads, width = held.keys.shape[1], held.keys.shape[3]
    both = words.reshape(*words.shape[:2], 2 * heads, width).transpose(1, 2)
    for name, part in (("keys", both[:, :heads]), ("values", both[:, heads:])):
        whole = getattr(held, name).clone()
        whole[:, :, start:] = part
        setattr(held, name, whole)
