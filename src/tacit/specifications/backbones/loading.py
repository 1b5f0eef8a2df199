"""Backbones by name: the two that come with this package, a Hugging Face encoder, or a module."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit._ground.checks import integer, masked
from tacit._ground.reprs import shown
from tacit.models.loading import SMALL, is_here, loading, with_weights
from tacit.models.loading import STORED as STORED_TEXT
from tacit.models.small.storage import quiet
from tacit.specifications.backbones import vision
from tacit.specifications.backbones.backbone import (
    Backbone,
    digest_of,
    frozen,
    is_matrix,
    last_layers,
)

VISION = "tacit/vision"
LONGEST = 128
# A long text is read in parts of so many characters for a token, until these and more are there.
CHARACTERS, SPARE = 16, 16


def load_backbone(name_or_module: Any, *, length: int = LONGEST) -> Backbone:
    """Return a frozen public network and what it reads.

    Its digest is in every specification, so that only those of one backbone are compared. What is
    described are the last three linear or convolutional layers unless others are asked for.

    Args:
        name_or_module: ``"tacit/vision"`` (pictures, 128 features) or ``"tacit/small"`` (texts),
            which come with this package; a Hugging Face name or a folder with any encoder or
            decoder of texts or pictures; or a torch module from (b, …) float32 to (b, d), which is
            copied.
        length: tokens after which a text is cut off.

    Returns:
        The ``Backbone``.

    Raises:
        ValueError: no such model, or one without linear or convolutional layers.

    Example:
        >>> backbone = load_backbone(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh()))
        >>> backbone.modality, backbone.layers, backbone.embedded(torch.zeros(2, 4)).shape
        ('vector', ('0',), torch.Size([2, 3]))

    Source: pave, Sec. 2.1.
    """
    integer("length", length, minimum=1)
    if isinstance(name_or_module, Backbone):
        return name_or_module
    if isinstance(name_or_module, nn.Module):
        return _of_module(name_or_module)
    if not isinstance(name_or_module, (str, os.PathLike)) or not os.fspath(name_or_module):
        raise ValueError(
            f"backbone: expected a name, a folder or a torch module, got {shown(name_or_module)}"
        )
    return _named(os.fspath(name_or_module), length)


@lru_cache(maxsize=4)
def _named(name: str, length: int) -> Backbone:
    return _built_in_vision() if name == VISION else _pretrained(name, length)


def _built_in_vision() -> Backbone:
    module = frozen(vision.stored_network())
    return Backbone(
        name=VISION,
        module=module,
        modality="image",
        layers=vision.LAYERS,
        digest=digest_of(module, {"form": VISION}),
        prepare=lambda data: (vision.pictures(data),),
        features=module,
    )


def _of_module(module: nn.Module) -> Backbone:
    try:
        held = frozen(copy.deepcopy(module))
    except (TypeError, RuntimeError):
        kind = type(module).__name__
        raise ValueError(f"backbone: expected a module that can be copied, got {kind}") from None
    form = {"form": "module", "modules": [type(part).__name__ for part in held.modules()]}

    def features(batch: Tensor) -> Tensor:
        found = held(batch)
        if not isinstance(found, Tensor) or found.ndim != 2 or len(found) != len(batch):
            raise ValueError("backbone: expected a module from (b, …) to features (b, d)")
        return found

    matrices = [name for name, part in held.named_modules() if is_matrix(part)]
    if not matrices:
        raise ValueError("backbone: expected linear or convolutional layers, got none")
    return Backbone(
        name=type(held).__name__,
        module=held,
        modality="vector",
        layers=tuple(matrices[-3:]),
        digest=digest_of(held, form),
        prepare=lambda data: (_vectors(data),),
        features=features,
    )


def _pretrained(name: str, length: int) -> Backbone:
    import transformers

    folder = os.fspath(STORED_TEXT) if name == SMALL else name
    here = is_here(folder)
    with quiet(), loading(folder):
        configuration = transformers.AutoConfig.from_pretrained(
            folder, local_files_only=here, trust_remote_code=False
        )
        # features are states: a pooler is not read
        module: Any = with_weights(
            transformers.AutoModel,
            folder,
            unread=("pooler.",),
            dtype=torch.float32,
            local_files_only=here,
        )
        sees = module.main_input_name == "pixel_values"
        reader = (
            None
            if sees
            else transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=here, trust_remote_code=False
            )
        )
    # no token follows: what a pass would keep for the next one takes a tenth of its time
    module.config.use_cache = False
    held = frozen(module)
    form = {"form": type(module).__name__, "length": None if sees else length}
    if sees:
        probe: tuple[Tensor, ...] = (
            torch.rand(2, _channels(configuration), *(2 * [_side(configuration)])),
        )
    else:
        probe = (torch.arange(2 * 4).reshape(2, 4) % 5, torch.ones(2, 4, dtype=torch.long))
    features = _Seeing(held) if sees else _Reading(held)
    return Backbone(
        name=name if name == SMALL or not Path(folder).is_dir() else Path(folder).name,
        module=held,
        modality="image" if sees else "text",
        layers=last_layers(held, lambda: features(*probe)),
        digest=digest_of(held, form),
        prepare=_Pictures(_side(configuration), _channels(configuration))
        if sees
        else _Texts(reader, _longest(configuration, length)),
        features=features,
    )


class _Seeing:
    """Mean of the last hidden states of a vision model over its patches or its map."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def __call__(self, pixels: Tensor) -> Tensor:
        held = self._module(pixel_values=pixels).last_hidden_state
        found: Tensor = held.mean(dim=1) if held.ndim == 3 else held.flatten(2).mean(dim=2)
        return found


class _Reading:
    """Mean of the last hidden states of a text model over the tokens that are not padding."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def __call__(self, tokens: Tensor, mask: Tensor) -> Tensor:
        held = self._module(input_ids=tokens, attention_mask=mask).last_hidden_state
        shares = mask.to(held.dtype) / mask.sum(dim=1, keepdim=True)
        found: Tensor = torch.einsum("btd,bt->bd", held, shares)
        return found


class _Pictures:
    def __init__(self, side: int, channels: int) -> None:
        self._side, self._channels = side, channels

    def __call__(self, data: Any) -> tuple[Tensor, ...]:
        # most vision models were trained on pixels in [−1, 1]
        return (2.0 * vision.pictures(data, self._side, self._channels) - 1.0,)


class _Texts:
    def __init__(self, tokenizer: Any, length: int) -> None:
        self._tokenizer, self._length = tokenizer, length

    def __call__(self, data: Any) -> tuple[Tensor, ...]:
        texts = data.tolist() if isinstance(data, np.ndarray) else data
        if not isinstance(texts, Sequence) or isinstance(texts, str) or not texts:
            raise ValueError(f"data: expected a list of texts, got {shown(data)}")
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("data: expected texts, got something else among them")
        rows = [self._tokens(text, place) for place, text in enumerate(texts)]
        if not all(rows):
            raise ValueError("data: expected texts of at least one token, got an empty one")
        longest = max(map(len, rows))
        tokens = torch.zeros(len(rows), longest, dtype=torch.long)
        mask = torch.zeros(len(rows), longest, dtype=torch.long)
        for place, row in enumerate(rows):
            # the padding is on the right, where no earlier token of a decoder sees it
            tokens[place, : len(row)] = torch.tensor(row)
            mask[place, : len(row)] = 1
        return tokens, mask

    def _tokens(self, text: str, place: int) -> list[int]:
        """Return the first tokens of a text, of which no more is read than they need."""
        taken = CHARACTERS * self._length
        try:
            while taken < len(text):
                # a cut changes the last few tokens before it at most
                enough = self._length + SPARE
                if len(self._cut(text[:taken], enough)) == enough:
                    text = text[:taken]
                taken *= 2
            return self._cut(text, self._length)
        except (UnicodeError, TypeError):
            raise ValueError(f"data: expected text that UTF-8 holds, not so in {place}") from None

    def _cut(self, text: str, length: int) -> list[int]:
        found: list[int] = self._tokenizer(text, truncation=True, max_length=length)["input_ids"]
        return found


def _vectors(data: Any) -> Tensor:
    try:
        if masked(data):
            raise TypeError
        held = np.asarray(data)
        if held.dtype.kind not in "fiub":
            raise TypeError
        found = torch.as_tensor(held, dtype=torch.float32)
    except (TypeError, ValueError):
        raise ValueError(f"data: expected numbers, got {shown(data)}") from None
    if found.ndim < 2 or not len(found):
        raise ValueError(f"data: expected records (n, …), got shape {tuple(found.shape)}")
    if not bool(torch.isfinite(found).all()):
        raise ValueError("data: expected finite numbers, got NaN or infinity")
    return found


def _side(configuration: Any) -> int:
    held = getattr(configuration, "image_size", None)
    if isinstance(held, (list, tuple)):
        held = held[0]
    return int(held or 224)


def _channels(configuration: Any) -> int:
    return int(getattr(configuration, "num_channels", 3))


def _longest(configuration: Any, length: int) -> int:
    names = ("max_position_embeddings", "n_positions")
    held: Any = next(
        (getattr(configuration, n) for n in names if hasattr(configuration, n)), length
    )
    # RoBERTa counts positions from two on
    return max(1, min(length, int(held or length) - 2))
