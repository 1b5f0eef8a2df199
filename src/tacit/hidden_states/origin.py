"""Where states come from, by digest: the model, the layer, and the prompts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.models.language import LanguageModel
    from tacit.models.texts.prefixes import Prefixes

# what is compared before anything is loaded, and the flag that says it
SETTINGS = {"layer": "layer", "length": "length", "bank_size": "bank", "seed": "seed",
            "calibration_size": "calibration"}  # fmt: skip
# what is compared by digest, the model first: nothing else agrees where it does not
DIGESTS = {"model_digest": "model", "texts_digest": "texts", "calibration_digest": "calibration",
           "bank_digest": "bank"}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The model, the layer and the prompts that states come from, each by name and by digest.

    Attributes:
        model: what the model was loaded from.
        model_digest: SHA-256 of its parameters.
        layer: 1 … L.
        length: tokens of each prompt, the longest one's where they differ.
        seed: what drew the prompts from the texts; None where nothing was drawn.
        texts: what the texts were read from; None for the docstrings of the installation.
        texts_digest: SHA-256 of the texts; None where they are not known.
        calibration_size: calibration prompts.
        calibration_digest: SHA-256 of their tokens.
        bank_size: prompts of the bank; None in what is published.
        bank_digest: SHA-256 of their tokens in order; None in what is published.
    """

    model: str
    model_digest: str
    layer: int
    length: int
    seed: int | None = None
    texts: str | None = None
    texts_digest: str | None = None
    calibration_size: int
    calibration_digest: str
    bank_size: int | None = None
    bank_digest: str | None = None

    @classmethod
    def of(
        cls,
        model: LanguageModel,
        layer: int,
        prefixes: Prefixes,
        *,
        seed: int | None = None,
        texts: str | None = None,
        texts_digest: str | None = None,
    ) -> Self:
        """Return the origin of the states of some prompts."""
        return cls(
            model=model.name,
            model_digest=digest_of(model.network.state_dict()),
            layer=layer,
            length=int(prefixes.bank.shape[1]),
            seed=seed,
            texts=texts,
            texts_digest=texts_digest,
            calibration_size=len(prefixes.calibration),
            calibration_digest=tokens_digest(prefixes.calibration),
            bank_size=len(prefixes.bank),
            bank_digest=tokens_digest(prefixes.bank),
        )

    @property
    def public(self) -> Self:
        """The same without the bank and what draws it: a digest of secrets tells about them."""
        return replace(self, bank_size=None, bank_digest=None, seed=None)

    @property
    def digests(self) -> tuple[tuple[str, str], ...]:
        """(what, name or SHA-256) of everything that is known."""
        known = {
            "model": self.model_digest,
            "layer": str(self.layer),
            "length": str(self.length),
            "texts": self.texts_digest,
            "calibration": self.calibration_digest,
            "bank": self.bank_digest,
        }
        return tuple((what, digest) for what, digest in known.items() if digest is not None)

    def check(self, other: Origin, what: str) -> None:
        """Raise where the other was made of something else, as far as both say of what.

        Args:
            other: the origin of what is used now.
            what: name of the file that this one stands in.

        Raises:
            ValueError: the first of model, layer, length, texts, prompts and seed that differs.
        """
        for name, flag in (("model_digest", "model"), *SETTINGS.items(), *DIGESTS.items()):
            recorded, given = getattr(self, name), getattr(other, name)
            if recorded is None or given is None or recorded == given:
                continue
            if name in SETTINGS:
                raise ValueError(f"--{flag}: {what} was made with {recorded}, got {given}")
            raise ValueError(
                f"--{flag}: {what} was made with another one (SHA-256 {recorded[:12]}…, here "
                f"{given[:12]}…)"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary of what is known."""
        held = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in held.items() if value is not None}

    @staticmethod
    def from_dict(content: Any) -> Origin:
        """Return the origin that ``to_dict`` described.

        Raises:
            ValueError: a field is missing, unknown or of the wrong type.
        """
        if not isinstance(content, Mapping):
            raise ValueError(f"origin: expected an object, got {type(content).__name__}")
        try:
            found = Origin(**content)
        except TypeError as error:
            raise ValueError(f"origin: a field is missing or unknown ({error})") from None
        for field in fields(Origin):
            value = getattr(found, field.name)
            kind = int if field.name in SETTINGS or field.name == "calibration_size" else str
            if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
                raise ValueError(f"origin.{field.name}: expected {kind.__name__}, got {value!r}")
        return found


def origin_from(content: Any) -> Origin | None:
    """Return an origin as it stands in a file, None where there is none."""
    return None if content is None else Origin.from_dict(content)


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
