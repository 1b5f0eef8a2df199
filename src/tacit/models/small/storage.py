"""Where trained models are kept, and how they are written whole or not at all."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tacit._ground.files import absolute
from tacit.documents import dumps, read

RECIPE = "recipe.json"
WEIGHTS = "model.safetensors"


def cache_folder() -> Path:
    """Return the folder of downloaded and trained things: ``TACIT_CACHE`` or the platform's.

    Example:
        >>> cache_folder().name.lower().startswith("tacit") or "TACIT_CACHE" in os.environ
        True
    """
    # the caller's own, or where the platform keeps such things
    given = os.environ.get("TACIT_CACHE")
    if given:
        return Path(given).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "tacit"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "tacit"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tacit"


def check_new_folder(name: str, folder: str | os.PathLike[str]) -> Path:
    """Return ``folder`` resolved, when it does not exist and can be made."""
    if not isinstance(folder, (str, os.PathLike)) or not os.fspath(folder):
        raise ValueError(f"{name}: expected a folder, got {folder!r}")
    target = absolute(name, folder)
    if target.exists():
        raise ValueError(f"{name}: expected a folder that does not exist yet, got {target}")
    make_parents(name, target)
    # a folder that cannot be made is told before hours of training
    trial = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError as error:
        raise ValueError(f"{name}: cannot write in {target.parent} ({error.strerror})") from None
    return target


def make_parents(name: str, target: Path) -> None:
    """Make the folder that ``target`` will stand in."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{name}: cannot make {target.parent} ({error.strerror})") from None


def save_model(folder: Path, network: Any, tokenizer: Any, recipe: Mapping[str, Any]) -> Path:
    """Write weights, tokenizer and recipe beside ``folder``, then move them there in one step."""
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.tmp")
    try:
        temporary.mkdir(parents=True)
        with quiet():
            network.save_pretrained(temporary)
            tokenizer.save_pretrained(temporary)
        (temporary / RECIPE).write_text(
            dumps(recipe, indent=2, ascii_only=True) + "\n", encoding="utf-8"
        )
        # one step: whole or not at all
        _move(temporary, folder)
    except OSError as error:
        raise ValueError(f"out: cannot write {folder} ({error.strerror})") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def save_half(folder: Path, network: Any, tokenizer: Any, recipe: Mapping[str, Any]) -> Path:
    """Write a model as ``save_model`` does, in bfloat16, with the digest of its weights."""
    import copy

    import torch

    written = save_model(folder, copy.deepcopy(network).to(torch.bfloat16), tokenizer, recipe)
    # of the stored weights, in half precision
    digest = hashlib.sha256((written / WEIGHTS).read_bytes()).hexdigest()
    text = dumps({**recipe, "weights_sha256": digest}, indent=2, ascii_only=True) + "\n"
    (written / RECIPE).write_text(text, encoding="utf-8")
    return written


def _move(source: Path, target: Path) -> None:
    """Rename, unless another process has just finished the same model."""
    try:
        os.rename(source, target)
    except OSError:
        # another process was faster with the same model
        if not (target / RECIPE).is_file():
            raise


def read_recipe(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the recipe in ``folder``, empty where there is none."""
    path = Path(folder) / RECIPE
    if not path.is_file():
        return {}
    recipe: dict[str, Any] = read("recipe", path)
    return recipe


@contextmanager
def quiet() -> Iterator[None]:
    """Keep ``transformers`` from drawing its own bars and notes."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    # its notes would stand between our lines
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
