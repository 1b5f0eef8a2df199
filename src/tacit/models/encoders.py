"""Encoders of sentences: one pooled state a text, as vector stores hold them."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tacit._ground.checks import boolean, choice, integer
from tacit.models.anatomy import FAILURES
from tacit.models.continuation import batch_rows
from tacit.models.loading import check_device, is_here, loading, with_weights
from tacit.models.padding import ROWS_ALIKE, alike
from tacit.models.texts.prompts import refuse_halves

POOLINGS = ("mean", "cls", "last")
POOLING_FILE = Path("1_Pooling") / "config.json"
SENTENCES_FILE, PROMPTS_FILE = "sentence_bert_config.json", "config_sentence_transformers.json"
# as sentence-transformers 6 writes it, and as those before did
STORED_POOLINGS = {
    "mean": "mean",
    "cls": "cls",
    "lasttoken": "last",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}


@dataclass(frozen=True)
class Serving:
    """What a folder of sentence-transformers does to a text before and after the network.

    Attributes:
        pooling: as for ``Encoder``; None where nothing is said.
        normalise: as for ``Encoder``.
        longest: tokens after which a text is cut; None for the network's own.
        prompt: what stands before every text.
        lower: whether texts are put into lower case.
        strip: whether white space around a text goes.
    """

    pooling: str | None = None
    normalise: bool = False
    longest: int | None = None
    prompt: str = ""
    lower: bool = False
    strip: bool = False

    def text(self, given: str) -> str:
        """Return what the tokenizer is given of a text."""
        held = self.prompt + given
        held = held.strip() if self.strip else held
        return held.lower() if self.lower else held


# By how much of the largest entry an embedding may change when its text is padded.
TOLERANCE = 1e-4


class Encoder:
    """A frozen encoder such as BERT, with its tokenizer.

    Attributes:
        name: what it was loaded from.
        network: the ``transformers`` model.
        tokenizer: its tokenizer.
        pooling: how states become an embedding: ``"mean"``, ``"cls"`` or ``"last"``.
        normalise: whether embeddings have length 1.
        width: d, numbers in an embedding.
        context: the most tokens it reads; what is beyond is cut, as where it is served.
        serving: what is done to a text where it is served.
    """

    def __init__(
        self,
        network: Any,
        tokenizer: Any,
        *,
        name: str | None = None,
        pooling: str = "mean",
        normalise: bool = False,
        serving: Serving | None = None,
    ) -> None:
        self.serving = Serving() if serving is None else serving
        self.name = type(network).__name__ if name is None else name
        if not isinstance(network, nn.Module) or tokenizer is None:
            raise ValueError(
                f"encoder: expected a transformers model and its tokenizer, got {self.name!r}"
            )
        self.network: Any = network.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.pooling, self.normalise = (
            choice("pooling", pooling, POOLINGS),
            boolean("normalise", normalise),
        )
        self._accepted = frozenset(inspect.signature(self.network.forward).parameters)
        longest = self.serving.longest or int(tokenizer.model_max_length)
        self.context = min(longest, _positions(self.network))
        self.width = self._verified_width()

    def __repr__(self) -> str:
        return f"Encoder({self.name!r}, width={self.width}, pooling={self.pooling!r})"

    @torch.no_grad()
    def encode(self, texts: Sequence[str], *, batch_size: int | None = None) -> Tensor:
        """Return the embedding of every text, (n, d) of float32.

        A text without a token has the embedding 0. Texts of one length are run together, always as
        many, so that no bit of an embedding depends on another text.

        Args:
            texts: n of them.
            batch_size: texts run at a time.

        Raises:
            ValueError: no texts, what is none, or half of a surrogate pair in one.
        """
        given = [texts] if isinstance(texts, str) else list(texts)
        if isinstance(texts, str) or not given or not all(isinstance(t, str) for t in given):
            raise ValueError(f"texts: expected at least one text in a list, got {len(given)} entry")
        refuse_halves("texts", given)
        size = batch_rows(batch_size, ROWS_ALIKE)
        found = torch.zeros(len(given), self.width)
        held = self.tokenizer(
            [self.serving.text(text) for text in given],
            truncation=True,
            max_length=self.context,
            return_attention_mask=True,
        )
        lengths = [len(ids) for ids in held["input_ids"]]
        # neither padding nor the number of texts in a pass may move the last bits of an embedding
        for kept, run in alike(lengths, size):
            inputs = {
                name: torch.tensor([value[place] for place in run]) for name, value in held.items()
            }
            found[kept] = self._embedded(inputs)[: len(kept)].cpu()
        return found

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Return the tokens of every text, those that are cut included."""
        given = [self.serving.text(text) for text in texts]
        return [len(ids) for ids in self.tokenizer(given, verbose=False)["input_ids"]]

    def _embedded(self, inputs: Mapping[str, Tensor]) -> Tensor:
        device = next(self.network.parameters()).device
        known = {k: v.to(device) for k, v in inputs.items() if k in self._accepted}
        states = self.network(**known).last_hidden_state.float()
        pooled = pool(states, known["attention_mask"], self.pooling)
        return nn.functional.normalize(pooled, dim=1) if self.normalise else pooled

    @torch.no_grad()
    def _verified_width(self) -> int:
        """Return d, once padded texts have the embeddings that they have alone."""
        rows = int(self.network.get_input_embeddings().weight.shape[0])
        length = min(6, self.context)
        tokens = torch.randint(rows, (2, length), generator=torch.Generator().manual_seed(0))
        padding = self.tokenizer.pad_token_id
        if padding is None:
            raise ValueError(f"encoder: the tokenizer of {self.name} has no token to pad with")
        # a token that pads is none in the middle of a text
        tokens[tokens == padding] = (padding + 1) % rows
        mask = torch.ones_like(tokens)
        tokens[1, length // 2 :], mask[1, length // 2 :] = padding, 0
        short = slice(0, length // 2)
        try:
            both = self._embedded({"input_ids": tokens, "attention_mask": mask})
            part = {"input_ids": tokens[1:, short], "attention_mask": mask[1:, short]}
            alone = self._embedded(part)
        except FAILURES as error:
            raise ValueError(f"encoder: {self.name} does not encode tokens ({error})") from None
        error_ = float((both[1:] - alone).abs().max() / alone.abs().max())
        bound = TOLERANCE if next(self.network.parameters()).dtype == torch.float32 else 4e-2
        if not error_ <= bound:
            raise ValueError(
                f"encoder: padding changes embeddings of {self.name} by {error_:.2g} of the "
                f"largest entry, more than {bound:g}"
            )
        return int(alone.shape[1])


def pool(states: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """Return one state a text from those of its tokens.

    Args:
        states: (n, T, d).
        mask: (n, T), 0 where padded, on either side.
        pooling: ``"mean"`` of the tokens, ``"cls"``, the first, or ``"last"``.

    Returns:
        (n, d).

    Example:
        >>> states, mask = torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[1, 1, 0]])
        >>> [pool(states, mask, how).item() for how in POOLINGS]
        [2.0, 1.0, 3.0]
    """
    if choice("pooling", pooling, POOLINGS) == "mean":
        weights = mask.to(states)[:, :, None]
        return (states * weights).sum(dim=1) / weights.sum(dim=1).clamp_min(1.0)
    places = torch.arange(mask.shape[1], device=mask.device)
    chosen = torch.where(mask.bool(), places, -1).amax(dim=1).clamp_min(0)
    if pooling == "cls":
        chosen = torch.where(mask.bool(), places, mask.shape[1] - 1).amin(dim=1)
    return states[torch.arange(len(states), device=states.device), chosen]


def load_encoder(
    name_or_path: str | os.PathLike[str],
    *,
    pooling: str | None = None,
    normalise: bool | None = None,
    device: str = "cpu",
) -> Encoder:
    """Load an encoder from a folder or by its Hugging Face name.

    Args:
        name_or_path: a checkpoint of BERT, DistilBERT, RoBERTa or the like, or of
            sentence-transformers, which is read as it is served: its pooling, the tokens after
            which it cuts, its default prompt, and what it does to letters and white space.
        pooling: ``"mean"``, ``"cls"`` or ``"last"``; what is stored, else the mean, when left out.
        normalise: whether embeddings get length 1; what is stored, else not, when left out.
        device: where it computes.

    Returns:
        The encoder in float32, frozen.

    Raises:
        ValueError: no such encoder, or one whose embeddings depend on padding.
    """
    from transformers import AutoModel, AutoTokenizer

    from tacit.models.small.storage import quiet

    if not isinstance(name_or_path, (str, os.PathLike)) or not os.fspath(name_or_path):
        raise ValueError(f"name_or_path: expected a name or a folder, got {name_or_path!r}")
    name, place = os.fspath(name_or_path), check_device(device)
    here = is_here(name)
    with quiet(), loading(name):
        # states are pooled here: a pooler of the checkpoint's own is not read
        network = with_weights(
            AutoModel, name, unread=("pooler.",), dtype=torch.float32, local_files_only=here
        )
        tokenizer = AutoTokenizer.from_pretrained(
            name, local_files_only=here, trust_remote_code=False
        )
    serving = _stored_serving(Path(name))
    return Encoder(
        network.to(place),
        tokenizer,
        name=name,
        pooling=(serving.pooling or "mean") if pooling is None else pooling,
        normalise=serving.normalise if normalise is None else normalise,
        serving=serving,
    )


def encode(
    encoder: Encoder | str | os.PathLike[str],
    texts: Sequence[str],
    *,
    batch_size: int | None = None,
) -> Tensor:
    """Return the embedding of every text: the pooled state that a vector store would hold.

    Args:
        encoder: what ``load_encoder`` returned, or a name or folder for it.
        texts: n of them.
        batch_size: texts run at a time.

    Returns:
        (n, d) of float32.

    Raises:
        ValueError: no such encoder, or no texts.

    Example:
        >>> import inspect
        >>> list(inspect.signature(encode).parameters)
        ['encoder', 'texts', 'batch_size']
    """
    held = encoder if isinstance(encoder, Encoder) else load_encoder(encoder)
    return held.encode(texts, batch_size=batch_size)


def _positions(network: nn.Module) -> int:
    """Return how many positions an encoder has embeddings for; those before padding's are none."""
    config: Any = network.config
    most = int(getattr(config, "max_position_embeddings", 0) or 0)
    for part in network.modules():
        if isinstance(part, nn.Embedding) and part.num_embeddings == most:
            return most if part.padding_idx is None else most - part.padding_idx - 1
    return most or 512


def _stored_serving(folder: Path) -> Serving:
    """Return what a folder of sentence-transformers says of how it is served."""
    if not (folder / POOLING_FILE).is_file():
        return Serving()
    pooled, steps = _stored(folder / POOLING_FILE), _stored(folder / "modules.json")
    sentences = _stored(folder / SENTENCES_FILE, missing={})
    named = _stored(folder / PROMPTS_FILE, missing={})
    try:
        asked = [mode for mode, on in pooled.items() if mode.startswith("pooling_mode_") and on]
        if (named_mode := pooled.get("pooling_mode")) is not None:
            asked += [named_mode] if isinstance(named_mode, str) else list(named_mode)
        kinds = [str(step["type"]).rpartition(".")[2] for step in steps]
        default = named.get("default_prompt_name")
        prompt = "" if default is None else named["prompts"][default]
        longest, lower = sentences.get("max_seq_length"), bool(sentences.get("do_lower_case"))
        apart = bool(prompt) and not pooled.get("include_prompt", True)
    except (KeyError, TypeError, AttributeError):
        raise ValueError(f"name_or_path: cannot read how {folder} is served") from None
    if len(asked) != 1 or asked[0] not in STORED_POOLINGS:
        raise ValueError(
            f"name_or_path: expected one of {', '.join(STORED_POOLINGS)} in "
            f"{folder / POOLING_FILE}, got {', '.join(asked) or 'none'}"
        )
    known = ("Transformer", "Pooling", "Normalize")
    if any(kind not in known for kind in kinds):
        raise ValueError(
            f"name_or_path: expected steps {', '.join(known)} in {folder}, got other values"
        )
    if apart:
        raise ValueError(
            f"name_or_path: expected a pooling that includes the prompt, got another in {folder}"
        )
    if not isinstance(prompt, str):
        raise ValueError(f"name_or_path: expected a text as the default prompt in {folder}")
    return Serving(
        pooling=STORED_POOLINGS[asked[0]],
        normalise="Normalize" in kinds,
        longest=None if longest is None else integer("max_seq_length", longest, minimum=1),
        prompt=prompt,
        lower=lower,
        strip=True,
    )


def _stored(place: Path, missing: Any = None) -> Any:
    """Return the JSON of a file of a folder of sentence-transformers."""
    if missing is not None and not place.is_file():
        return missing
    try:
        return json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ValueError(f"name_or_path: cannot read {place}") from None
