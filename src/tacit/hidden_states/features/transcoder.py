"""Sparse features of one layer: encoder, activation, decoder, and their files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from tacit._ground.checks import choice, integer
from tacit._ground.files import check_writable, spelled, write_bytes_atomic
from tacit._ground.headers import in_order
from tacit._ground.reprs import short_repr, shown
from tacit.documents import dumps, loads

ACTIVATIONS = ("relu", "jumprelu", "topk")
READS = ("mlp", "stream")
FORMAT = "tacit-transcoder-1"
NAMES = {
    "W_enc": ("W_enc", "w_enc", "encoder.weight"),
    "b_enc": ("b_enc", "encoder.bias"),
    "W_dec": ("W_dec", "w_dec", "decoder.weight"),
    "b_dec": ("b_dec", "decoder.bias"),
    "threshold": ("threshold",),
}
# a linear layer of torch has a row for every output
LINEAR = {"encoder.weight": False, "decoder.weight": True}
FIELDS = ("activation", "top_k", "reads", "trained")


@short_repr
@dataclass(frozen=True, eq=False, kw_only=True)
class Transcoder:
    """Features of a layer: ``a = act(W_enc x + b_enc)``, ``ŷ = Σ_f a_f W_dec[f] + b_dec``.

    Attributes:
        encoder: W_enc, (F, d_in).
        encoder_bias: b_enc, (F,).
        decoder: W_dec, (F, d_out).
        decoder_bias: b_dec, (d_out,).
        activation: ``"relu"``; ``"jumprelu"``, zero up to a threshold; ``"topk"``, the k largest.
        threshold: (F,), each >= 0, with jumprelu.
        top_k: k, with topk.
        reads: ``"mlp"``: x is what a block's MLP is given, y what it adds to the stream;
            ``"stream"``: both are the state after the block (a sparse autoencoder).
        trained: explained variance and the like of the training here; empty for one from elsewhere.

    Raises:
        ValueError: shapes that do not fit, a number that is not finite, or a missing threshold.

    Example:
        >>> one = torch.eye(3)
        >>> coder = Transcoder(encoder=one, encoder_bias=torch.zeros(3), decoder=2 * one,
        ...                    decoder_bias=torch.ones(3))
        >>> coder.decode(coder.encode(torch.tensor([[1.0, -1.0, 0.5]])))
        tensor([[3., 1., 2.]])

    Source: hidden-state, App. O; per-layer transcoders of Dunefsky, Chlenski and Nanda (2024).
    """

    encoder: Tensor
    encoder_bias: Tensor
    decoder: Tensor
    decoder_bias: Tensor
    activation: str = "relu"
    threshold: Tensor | None = None
    top_k: int | None = None
    reads: str = "mlp"
    trained: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        choice("activation", self.activation, ACTIVATIONS)
        choice("reads", self.reads, READS)
        if not isinstance(self.trained, dict):
            raise ValueError(f"trained: expected a dictionary, got {shown(self.trained)}")
        for name in ("encoder", "decoder", "encoder_bias", "decoder_bias", "threshold"):
            value = getattr(self, name)
            if value is None and name == "threshold":
                continue
            wanted = 2 if name in ("encoder", "decoder") else 1
            object.__setattr__(self, name, _tensor(name, value, wanted))
        size = len(self.encoder)
        expected = {
            "encoder_bias": (size,), "decoder": (size, self.decoder.shape[1]),
            "decoder_bias": (self.decoder.shape[1],), "threshold": (size,),
        }  # fmt: skip
        for name, shape in expected.items():
            held = getattr(self, name)
            if held is not None and tuple(held.shape) != shape:
                raise ValueError(f"{name}: expected shape {shape}, got {tuple(held.shape)}")
        if (self.threshold is not None) != (self.activation == "jumprelu"):
            raise ValueError("threshold: expected with activation 'jumprelu' and with no other")
        if self.threshold is not None and bool((self.threshold < 0).any()):
            raise ValueError("threshold: expected numbers >= 0, got a negative one")
        if (self.top_k is not None) != (self.activation == "topk"):
            raise ValueError("top_k: expected with activation 'topk' and with no other")
        if self.top_k is not None:
            integer("top_k", self.top_k, minimum=1, maximum=size)
        if self.reads == "stream" and self.encoder.shape[1] != self.decoder.shape[1]:
            raise ValueError(
                "reads: expected 'mlp' for features that write vectors of another width than "
                f"they read, got 'stream' for {self.encoder.shape[1]} to {self.decoder.shape[1]}"
            )

    @property
    def size(self) -> int:
        """F, features there are."""
        return len(self.encoder)

    def encode(self, inputs: Tensor) -> Tensor:
        """Return activations of inputs (n, d_in): (n, F), zero where a feature is not active."""
        rows = self._rows("inputs", inputs, self.encoder)
        found = torch.relu(rows @ self.encoder.T + self.encoder_bias)
        if self.threshold is not None:
            return found * (found > self.threshold)
        if self.top_k is not None and self.top_k < self.size:
            kept = found.topk(self.top_k, dim=-1)
            return torch.zeros_like(found).scatter_(-1, kept.indices, kept.values)
        return found

    def decode(self, activations: Tensor) -> Tensor:
        """Return what activations (n, F) write: (n, d_out)."""
        if activations.ndim != 2 or activations.shape[1] != self.size:
            raise ValueError(
                f"activations: expected shape (n, {self.size}), got {tuple(activations.shape)}"
            )
        return activations.to(self.decoder) @ self.decoder + self.decoder_bias

    def to(self, device: torch.device) -> Transcoder:
        """Return the same features on a device."""
        names = ("encoder", "encoder_bias", "decoder", "decoder_bias", "threshold")
        held = {name: getattr(self, name) for name in names}
        moved: dict[str, Any] = {
            name: None if one is None else one.to(device) for name, one in held.items()
        }
        return replace(self, **moved)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a safetensors file, whole or not at all."""
        tensors = {"W_enc": self.encoder, "b_enc": self.encoder_bias,
                   "W_dec": self.decoder, "b_dec": self.decoder_bias}  # fmt: skip
        if self.threshold is not None:
            tensors["threshold"] = self.threshold
        about = {"activation": self.activation, "top_k": self.top_k, "reads": self.reads,
                 "trained": self.trained}  # fmt: skip
        return write_transcoder(path, tensors, about)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        reads: str | None = None,
        top_k: int | None = None,
        centred: bool = False,
    ) -> Transcoder:
        """Read features from a safetensors file, Tacit's or another's; nothing in it runs.

        Matrices are named ``W_enc`` and ``W_dec`` or ``encoder.weight`` and ``decoder.weight``,
        vectors ``b_enc``, ``b_dec`` or ``encoder.bias``, ``decoder.bias``, and ``threshold``; the
        biases tell which way a matrix stands.

        Args:
            path: the file.
            reads: ``"mlp"`` or ``"stream"``; what the file says, or ``"mlp"``, when None.
            top_k: k of a file from elsewhere that keeps the k largest.
            centred: whether b_dec is taken off the inputs first, as some autoencoders do.

        Raises:
            ValueError: no such file, a tensor is missing, or a square matrix that may stand either
                way.
        """
        tensors, about = read_transcoder(path)
        held = dict(about)
        if reads is not None:
            held["reads"] = reads
        if top_k is not None:
            held.update(activation="topk", top_k=top_k)
        threshold = tensors.get("threshold")
        if threshold is not None:
            held.setdefault("activation", "jumprelu")
        bias = tensors["b_enc"]
        if centred:
            if tensors["W_enc"].shape[1] != len(tensors["b_dec"]):
                raise ValueError("centred: expected features that write as many numbers as read")
            bias = bias - tensors["W_enc"] @ tensors["b_dec"]
        return cls(encoder=tensors["W_enc"], encoder_bias=bias, decoder=tensors["W_dec"],
                   decoder_bias=tensors["b_dec"], threshold=threshold, **held)  # fmt: skip

    def _rows(self, name: str, rows: Tensor, weight: Tensor) -> Tensor:
        if not isinstance(rows, Tensor) or rows.ndim != 2 or rows.shape[1] != weight.shape[1]:
            found = tuple(rows.shape) if isinstance(rows, Tensor) else shown(rows)
            raise ValueError(f"{name}: expected shape (n, {weight.shape[1]}), got {found}")
        if not bool(torch.isfinite(rows).all()):
            raise ValueError(f"{name}: expected finite numbers, got other values")
        return rows.to(weight)


def _tensor(name: str, value: Any, dimensions: int) -> Tensor:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise ValueError(f"{name}: expected a tensor of floating-point numbers, got {shown(value)}")
    if value.ndim != dimensions or value.numel() == 0:
        raise ValueError(f"{name}: expected {dimensions} dimensions, got {tuple(value.shape)}")
    found = value.detach().float()
    if not bool(torch.isfinite(found).all()):
        raise ValueError(f"{name}: expected finite numbers of single precision, got other values")
    return found


def write_transcoder(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], about: Mapping[str, Any]
) -> Path:
    """Write tensors with their header whole or not at all."""
    target = check_writable("path", path)
    header = {"format": FORMAT, "about": dumps(dict(about), ascii_only=True)}
    held = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in tensors.items()
    }
    write_bytes_atomic("path", target, in_order(save(held, header)))
    return target


def read_transcoder(
    path: str | os.PathLike[str],
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors by Tacit's names, a row of each matrix a feature, and what the header says."""
    name = spelled("path", path)
    try:
        with safe_open(name, framework="pt") as file:
            stored = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            header = file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise ValueError(f"path: cannot read {name} ({error})") from None
    found, names = {}, {}
    for own, others in NAMES.items():
        held = next((other for other in others if other in stored), None)
        if held is not None:
            found[own], names[own] = stored[held].float(), held
        elif own != "threshold":
            raise ValueError(
                f"path: expected a tensor {' or '.join(others)} in {name}, got {sorted(stored)}"
            )
    for own, value in found.items():
        wanted = 2 if own.startswith("W_") else 1
        if value.ndim != wanted:
            raise ValueError(
                f"path: expected {names[own]} of {wanted} dimensions in {name}, got shape "
                f"{tuple(value.shape)}"
            )
    if header.get("format") == FORMAT:
        if set(header) != {"format", "about"} or set(stored) != set(names.values()):
            raise ValueError(f"path: expected tensors and header of a transcoder alone in {name}")
        about = loads(header.get("about", ""), name="path", source=name)
        if not isinstance(about, dict) or set(about) != set(FIELDS):
            raise ValueError(f"path: expected the fields {FIELDS} in the header of {name}")
        return found, about
    for matrix, bias in (("W_enc", "b_enc"), ("W_dec", "b_dec")):
        features, width = len(found["b_enc"]), len(found[bias])
        turned = LINEAR.get(names[matrix])
        found[matrix] = _oriented(
            names[matrix], found[matrix], features, None if bias == "b_enc" else width, turned
        )
    return found, {}


def _oriented(
    name: str, value: Tensor, features: int, width: int | None, turned: bool | None
) -> Tensor:
    """Return a matrix with a row for every feature."""
    if value.ndim != 2 or features not in value.shape:
        raise ValueError(
            f"path: expected {name} with {features} features on a side, got {tuple(value.shape)}"
        )
    stands = value.shape[0] == features and width in (None, value.shape[1])
    lies = value.shape[1] == features and width in (None, value.shape[0])
    if stands and lies and turned is None:
        raise ValueError(
            f"path: expected {name} of a shape that tells features from numbers, got "
            f"{tuple(value.shape)}; name it encoder.weight or decoder.weight, as torch's Linear"
        )
    if not stands and not lies:
        raise ValueError(f"path: expected {name} to fit its biases, got {tuple(value.shape)}")
    upright = stands if not (stands and lies) else not turned
    return (value if upright else value.T).contiguous()
