"""What was fitted, on disk: tensors under a header of strict JSON, nothing that runs when read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from tacit import codec
from tacit._ground.files import check_writable, write_bytes_atomic
from tacit._ground.headers import in_order
from tacit._ground.reprs import shown
from tacit.documents import dumps, loads

# by how much the masses of a row of single precision may miss 1
MASS = 1e-2


def write_tensors(
    path: str | os.PathLike[str], form: str, tensors: Mapping[str, Tensor], about: Any
) -> Path:
    """Write tensors and the value that they belong to, whole or not at all.

    Args:
        path: the safetensors file.
        form: name of its format.
        tensors: by name.
        about: a frozen value whose fields that are tensors stand apart from the JSON.
    """
    target = check_writable("path", path)
    kept = {name: value.contiguous() for name, value in tensors.items()}
    header = {"format": form, "about": dumps(codec.write(type(about), about), ascii_only=True)}
    write_bytes_atomic("path", target, in_order(save(kept, header)))
    return target


def read_tensors(path: str | os.PathLike[str], form: str) -> tuple[dict[str, Tensor], Any]:
    """Return the tensors that ``write_tensors`` wrote, and the JSON of their value.

    Raises:
        ValueError: no such file, one of another format, or a header with something else in it.
    """
    name = os.fspath(path)
    tensors, header = _opened(name)
    if header.get("format") != form:
        found = shown(header["format"]) if "format" in header else "no format"
        raise ValueError(f"path: expected a file of format {form!r}, got {found} in {name}")
    if set(header) != {"format", "about"}:
        raise ValueError(
            f"path: expected format and about in the header of {name}, got other values"
        )
    return tensors, loads(header["about"], name="path", source=name)


def format_of(path: str | os.PathLike[str]) -> str | None:
    """Return what a file of tensors says that it holds."""
    return _opened(os.fspath(path))[1].get("format")


def _opened(name: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(name, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            return tensors, file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise ValueError(f"path: cannot read {name} ({error})") from None


@contextmanager
def malformed(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Say which file it is whose tensors or fields disagree, are missing or out of range.

    Args:
        path: of the file.
        what: it should be, such as "codebook".
    """
    try:
        yield
    except (KeyError, TypeError, IndexError, RuntimeError, AttributeError) as error:
        raise ValueError(
            f"path: a field of {os.fspath(path)} is missing or malformed: {error!r}"
        ) from None
    except ValueError as error:
        told = str(error).removeprefix("path: ").removeprefix("path.")
        raise ValueError(f"path: {os.fspath(path)} is no {what}: {told}") from None


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
        raise ValueError(
            f"{name}: expected logarithms of probabilities that sum to 1, got rows with another sum"
        )


def check_network(name: str, network: nn.Module) -> None:
    """Refuse weights that are not finite.

    Raises:
        ValueError: one is NaN or infinite.
    """
    held = network.state_dict().values()
    if not all(bool(torch.isfinite(value).all()) for value in held if value.is_floating_point()):
        raise ValueError(f"{name}: expected finite weights, got NaN or infinity")
