"""Where states come from, by digest: the model, the layer, and the prompts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tacit._ground.checks import integer

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.models.language import LanguageModel
    from tacit.models.texts.prefixes import Prefixes
    from tacit.releases import Release

# what is compared by itself, in the order in which it explains what follows
COMPARED = {
    "model_digest": "model",
    "served_digest": "model",
    "layer": "layer",
    "length": "length",
}
# of a configuration, what says where it was loaded from and how its numbers are held
UNREAD = ("transformers_version", "architectures", "dtype", "torch_dtype")
PROMPTS = {"calibration_digest": "calibration", "bank_digest": "bank"}
# texts that are nobody's secret, and so may be named in what is published
PUBLIC_TEXTS = ("docstrings", "public_texts")
# what stands in everything that was measured on secret prompts, or names them by a digest
HOLDERS = (
    "This is for the holder of the prompts: it was made with them, and is not to be published."
)
SHA256, LAYER = re.compile("[0-9a-f]{64}"), re.compile("[1-9][0-9]{0,5}")
# how a model is served, which draws nothing
PUBLIC_FLAGS = ("dtype", "chat_template", "longest", "pooling", "normalise")
# of an origin, what stands by its digest in what is published
TOLD = ("model", "served", "calibration", *(name.replace("_", " ") for name in PUBLIC_TEXTS))


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The model, the layer and the prompts that states come from, each by name and by digest.

    Attributes:
        model: what the model was loaded from.
        model_digest: SHA-256 of its parameters.
        layer: 1 … L.
        length: tokens of each prompt of the bank, the longest one's where they differ; None in what
            is published.
        served_digest: SHA-256 of what else makes states of a text: the model's configuration and
            its tokenizer; None in files that do not say.
        calibration_size: calibration prompts.
        calibration_digest: SHA-256 of their tokens.
        bank_size: prompts of the bank; None in what is published.
        bank_digest: SHA-256 of their tokens in order; None in what is published.
        flags: the flags of the command that chose the prompts, by name; in what is published those
            alone that say how the model is served, for a seed draws the bank again.
        texts: SHA-256 of each text the prompts were taken from, by its flag.
    """

    model: str
    model_digest: str
    layer: int
    length: int | None = None
    calibration_size: int
    calibration_digest: str
    served_digest: str | None = None
    bank_size: int | None = None
    bank_digest: str | None = None
    flags: Mapping[str, str | int | float | bool | None] | None = None
    texts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        integer("layer", self.layer, minimum=1)
        # without a bank it is a published one, in which public texts and flags alone are named
        named = set(self.texts) <= set(PUBLIC_TEXTS) and set(self.flags or ()) <= set(PUBLIC_FLAGS)
        if self.bank_digest is None and not (named and self.length is self.bank_size is None):
            raise ValueError(
                "origin: expected the texts and flags that may be published, got other values"
            )

    @classmethod
    def of(
        cls,
        model: LanguageModel,
        layer: int,
        prefixes: Prefixes,
        *,
        flags: Mapping[str, Any] | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> Self:
        """Return the origin of the states of some prompts."""
        return cls(
            model=model.name,
            model_digest=digest_of(model.network.state_dict()),
            layer=layer,
            length=int(prefixes.bank.shape[1]),
            calibration_size=len(prefixes.calibration),
            calibration_digest=tokens_digest(prefixes.calibration),
            served_digest=served_digest(model.network, model.tokenizer),
            bank_size=len(prefixes.bank),
            bank_digest=tokens_digest(prefixes.bank),
            flags=None if flags is None else dict(flags),
            texts=dict(texts or {}),
        )

    @property
    def public(self) -> Self:
        """The same without the bank and what it was taken from: a digest tells about a secret."""
        kept = {name: digest for name, digest in self.texts.items() if name in PUBLIC_TEXTS}
        known = self.flags or {}
        flags = {name: known[name] for name in PUBLIC_FLAGS if name in known}
        return replace(
            self, length=None, bank_size=None, bank_digest=None, flags=flags or None, texts=kept
        )

    @property
    def digests(self) -> tuple[tuple[str, str], ...]:
        """(what, name or SHA-256) of everything that is known."""
        known = {
            "model": self.model_digest,
            "served": self.served_digest,
            "layer": str(self.layer),
            "length": None if self.length is None else str(self.length),
            **{name.replace("_", " "): digest for name, digest in self.texts.items()},
            "calibration": self.calibration_digest,
            "bank": self.bank_digest,
        }
        return tuple((what, digest) for what, digest in known.items() if digest is not None)

    def is_served_as(self, other: Origin) -> bool:
        """Whether both are of one layer of one model and tokenizer, as far as both say."""
        told = (self.served_digest, other.served_digest)
        same = (self.model_digest, self.layer) == (other.model_digest, other.layer)
        return same and (None in told or told[0] == told[1])

    def check(self, other: Origin, what: str) -> None:
        """Raise where the other was made of something else, as far as both say of what.

        Args:
            other: the origin of what is used now.
            what: name of the file that this one stands in.

        Raises:
            ValueError: the first of model, layer, length, texts and prompts that differs.
        """
        for name, flag in COMPARED.items():
            _same(flag, what, getattr(self, name), getattr(other, name))
        for name in self.texts.keys() & other.texts.keys():
            _same(name.replace("_", "-"), what, self.texts[name], other.texts[name])
        for name, flag in PROMPTS.items():
            _same(flag, what, getattr(self, name), getattr(other, name))


def _same(flag: str, what: str, recorded: Any, given: Any) -> None:
    if recorded is None or given is None or recorded == given:
        return
    if isinstance(recorded, str):
        recorded, given = f"SHA-256 {recorded[:12]}…", f"{given[:12]}…"
    raise ValueError(f"--{flag}: {what} was made with another one ({recorded}, here {given})")


def check_digests(release: Release[Any], own: Sequence[str]) -> None:
    """Refuse digests of a release but its own and those of what is public.

    Args:
        release: rows, whose digests anyone may read.
        own: what the first of them are of.

    Raises:
        ValueError: another pair, one without its SHA-256 or its number, or two for one thing.
    """
    named = [what for what, _ in release.digests]
    if named[: len(own)] != list(own) or len(set(named)) < len(named):
        raise ValueError(
            f"digests: expected those of {' and '.join(own)} once each, got other values"
        )
    for what, value in release.digests:
        form = LAYER if what == "layer" else SHA256 if what in (*own, *TOLD) else None
        if form is None or not form.fullmatch(value):
            raise ValueError(
                f"digests: expected {', '.join((*own, *TOLD))} by SHA-256 and a layer by its "
                "number, got something else"
            )


def served_digest(network: Any, tokenizer: Any, *more: Any) -> str:
    """Return the SHA-256 of what makes states of a text beside the parameters.

    That is the configuration (of rotary frequencies, scales, windows) and the tokenizer: its
    vocabulary and merges, what it does to a text, its special tokens and its template.

    Args:
        network: a ``transformers`` model.
        tokenizer: its tokenizer, or None.
        more: whatever else the reader does to a text, as plain values.
    """
    settings = network.config.to_dict()
    kept = {name: value for name, value in settings.items() if name not in UNREAD}
    told = [_public_entries(kept), None if tokenizer is None else _tokenizer(tokenizer), *more]
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()


def _public_entries(value: Any) -> Any:
    """Return nested settings without private ones, which name paths and kernels."""
    if not isinstance(value, dict):
        return value
    return {
        str(name): _public_entries(held)
        for name, held in value.items()
        if not str(name).startswith("_") and name not in UNREAD
    }


def _tokenizer(tokenizer: Any) -> list[Any]:
    """Return all that a tokenizer makes tokens by; not how it was last asked to pad and to cut."""
    names = ("chat_template", "model_max_length", "special_tokens_map")
    about = [getattr(tokenizer, name, None) for name in names]
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        content = json.loads(backend.to_str())
        return [*about, {k: v for k, v in content.items() if k not in ("padding", "truncation")}]
    vocabulary = sorted(tokenizer.get_vocab().items())
    pieces = getattr(getattr(tokenizer, "sp_model", None), "serialized_model_proto", bytes)()
    merges = str(getattr(tokenizer, "bpe_ranks", ""))
    read = hashlib.sha256(pieces + merges.encode()).hexdigest()
    return [*about, type(tokenizer).__name__, vocabulary, read]


def tokens_digest(tokens: Any) -> str:
    """Return the SHA-256 of prompts (n, T), their shape included."""
    rows = np.ascontiguousarray(np.asarray(tokens, dtype="<i8"))
    return hashlib.sha256(repr(rows.shape).encode() + rows.tobytes()).hexdigest()


def digest_of(tensors: Mapping[str, Tensor], about: str = "") -> str:
    """Return the SHA-256 of named tensors: names, types, shapes and bytes, by name."""
    import torch

    found = hashlib.sha256(about.encode())
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        found.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        found.update(value.flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()
