"""What the tensors of a codebook are held to where it is made and where it is read."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tacit._ground.reprs import shown

# by how much the masses of a row of single precision may miss 1
MASS = 1e-2


def check_matrix(
    name: str, value: object, *, rows: int | None = None, columns: int | None = None
) -> None:
    """Refuse what is no matrix of finite numbers of the shape that goes with the others.

    A certificate counts the rows of one tensor, and codes are the rows of another: both have to be
    the same number.

    Raises:
        ValueError: the tensor is named, with what came and what was expected.
    """
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise ValueError(f"{name}: expected a tensor of floating-point numbers, got {shown(value)}")
    found = tuple(value.shape)
    wanted = (rows, columns)
    wrong = len(found) != 2 or any(
        size < 1 or size != (size if most is None else most)
        for size, most in zip(found, wanted, strict=False)
    )
    if wrong:
        spelled = ", ".join("any" if size is None else f"{size:,}" for size in wanted)
        raise ValueError(f"{name}: expected shape ({spelled}), got {found}")
    if not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name}: expected finite numbers, got NaN or infinity")


def check_log_probabilities(name: str, value: Tensor) -> None:
    """Refuse rows that are no logarithms of probabilities.

    Raises:
        ValueError: a row's masses do not add up to 1.
    """
    if not bool((value.float().logsumexp(dim=1).abs() <= MASS).all()):
        raise ValueError(f"{name}: expected logarithms of probabilities, got rows of another mass")


def check_network(name: str, network: nn.Module) -> None:
    """Refuse weights that are not finite.

    Raises:
        ValueError: one is NaN or infinite.
    """
    held = network.state_dict().values()
    if not all(bool(torch.isfinite(value).all()) for value in held if value.is_floating_point()):
        raise ValueError(f"{name}: expected finite weights, got NaN or infinity")
