"""Quotients on disk: safetensors with a header, nothing that runs when it is read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from tacit._ground.checks import boolean, integer, non_negative
from tacit._ground.files import check_writable, write_bytes_atomic
from tacit._ground.headers import in_order
from tacit.documents import dumps, loads
from tacit.hidden_states.codebooks.shapes import check_network
from tacit.hidden_states.quotient.ball import Ball
from tacit.hidden_states.quotient.network import QuotientNetwork
from tacit.hidden_states.quotient.training import Recipe

FORMAT = "tacit-quotient-1"


def write_quotient(
    path: str | os.PathLike[str], network: QuotientNetwork, about: Mapping[str, Any]
) -> Path:
    """Write a quotient whole or not at all."""
    target = check_writable("path", path)
    tensors = {name: value.contiguous() for name, value in network.state_dict().items()}
    header = {"format": FORMAT, "about": dumps(dict(about), ascii_only=True)}
    write_bytes_atomic("path", target, in_order(save(tensors, header)))
    return target


def read_quotient(
    path: str | os.PathLike[str],
) -> tuple[QuotientNetwork, Ball, Recipe, dict[str, Any]]:
    """Read what ``write_quotient`` wrote."""
    name = os.fspath(path)
    try:
        with safe_open(name, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            header = file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise ValueError(f"path: cannot read {name} ({error})") from None
    if header.get("format") != FORMAT or set(header) != {"format", "about"}:
        raise ValueError(f"path: expected a quotient, got {name}")
    try:
        about: dict[str, Any] = loads(header["about"], name="path", source=name)
        ball, recipe = Ball(**about["ball"]), _recipe(**about["recipe"])
        network = _network(tensors, ball, recipe)
    except (KeyError, TypeError, IndexError, RuntimeError) as error:
        raise ValueError(f"path: a field of {name} is missing or malformed: {error!r}") from None
    return network, ball, recipe, about


def _recipe(
    depth: Any, hidden: Any, penalty: Any, adversary: Any, noisy: Any, epochs: Any
) -> Recipe:
    return Recipe(
        depth=integer("recipe.depth", depth, minimum=0, maximum=64),
        hidden=integer("recipe.hidden", hidden, minimum=1),
        penalty=non_negative("recipe.penalty", penalty),
        adversary=non_negative("recipe.adversary", adversary),
        noisy=boolean("recipe.noisy", noisy),
        epochs=integer("recipe.epochs", epochs, minimum=1),
    )


def _network(tensors: Mapping[str, Tensor], ball: Ball, recipe: Recipe) -> QuotientNetwork:
    last = tensors[f"decoder.{2 * recipe.depth}.bias"]
    network = QuotientNetwork(
        len(tensors["mean"]), ball.dimension, len(last), recipe.depth, recipe.hidden
    )
    # refuses other names and other shapes
    network.load_state_dict(dict(tensors))
    check_network("path", network)
    if not bool((network.scale > 0).all()):
        raise ValueError("path: expected scales > 0, got others")
    return network.eval().requires_grad_(False)
