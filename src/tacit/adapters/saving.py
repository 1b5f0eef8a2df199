"""An adapter as peft reads it, written whole or not at all, with its guarantee beside it."""

from __future__ import annotations

import copy
import json
import secrets
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tacit._ground.files import absolute
from tacit._ground.reprs import shown
from tacit.adapters.layers import AdapterLayer
from tacit.adapters.release import ADAPTER, KIND, TrainedAdapter
from tacit.documents import dumps
from tacit.releases import Release, load
from tacit.runs.identity import digest_of_tensors

WEIGHTS, RELEASE = "adapter_model.safetensors", "tacit.json"
CONFIGURATION = "adapter_config.json"
PREFIX = "base_model.model."
# What stands beside the weights in their file, as peft reads it.
METADATA = {"format": "pt"}
# How peft calls what a model is for.
PEFT_TASKS = {"causal": "CAUSAL_LM"}
# Between outputs of the trained model and of the reloaded one, of the largest output.
REPRODUCED = 1e-4
# Singular values below this share of the largest are rounding.
NEGLIGIBLE = 1e-7


@dataclass(frozen=True, eq=False)
class Factors:
    """What was learned: s B A of every layer.

    Attributes:
        layers: name to (A, B, s), float32: (rank, in), (out, rank).
        transposed: whether the weights are stored as (in, out).
    """

    layers: Mapping[str, tuple[Tensor, Tensor, float]]
    transposed: bool


def factors_of(layers: Sequence[AdapterLayer], before: Mapping[str, Tensor]) -> Factors:
    """Return the factors of every layer; a dense change is factored by its singular values.

    Args:
        layers: after training.
        before: (out, in) weights as they were, where they were trained themselves.
    """
    found = {}
    for layer in layers:
        # A, B and s as they are
        if layer.matrix_b is not None and layer.matrix_a is not None:
            low, high = layer.matrix_a.detach(), layer.matrix_b.weight.detach()
            found[layer.name] = (low.float().cpu(), high.float().cpu(), layer.scaling)
        else:
            # ΔW of any rank, as factors of that rank
            change = matrix_of(layer) - before[layer.name]
            found[layer.name] = (*_factor(change), 1.0)
    return Factors(found, layers[0].transposed)


def bytes_of_adapter(layers: Sequence[AdapterLayer]) -> int:
    """Return what the adapter's weights take at most: a change of W may be of any rank."""
    total = 0
    for layer in layers:
        first, second = layer.weight.shape
        low = layer.matrix_a
        # float32 numbers of A and B
        total += 4 * (first + second) * (min(first, second) if low is None else len(low))
    return total


def matrix_of(layer: AdapterLayer) -> Tensor:
    """Return a copy of W as (out, in) on the CPU, whatever way it is stored."""
    held = layer.weight.detach().cpu().clone()
    return held.mT.contiguous() if layer.transposed else held


def write_adapter(
    folder: Path, factors: Factors, task: str, release: Mapping[str, Any], base: str | None
) -> None:
    """Write an adapter in peft's format beside ``folder``, then move it there in one step.

    Args:
        folder: that does not exist.
        factors: what was learned.
        task: of the model.
        release: the dictionary of the release.
        base: name of the model it belongs to, where it has one.

    Raises:
        ValueError: it cannot be written.
    """
    from safetensors.torch import save_file

    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.tmp")
    try:
        temporary.mkdir(parents=True)
        save_file(_tensors(factors), temporary / WEIGHTS, metadata=METADATA)
        (temporary / CONFIGURATION).write_text(
            _configuration_text(factors, task, base), encoding="utf-8"
        )
        text = dumps(dict(release), indent=2) + "\n"
        (temporary / RELEASE).write_text(text, encoding="utf-8")
        # one step: the folder is there whole or not at all
        temporary.rename(folder)
    except OSError as error:
        raise ValueError(f"save: cannot write {folder} ({error.strerror or error})") from None
    except Exception as error:
        if "No space" in str(error) or "os error 28" in str(error):
            raise ValueError(f"save: cannot write {folder} (no space left)") from None
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_reloaded(
    fresh: nn.Module, folder: Path, outputs: Callable[[Any], Tensor], expected: Tensor
) -> float:
    """Load an adapter into a model that was never trained and compare its outputs.

    Args:
        fresh: the model without adapters.
        folder: of the adapter.
        outputs: of a model on some public or private probe.
        expected: what the trained model gives on it.

    Returns:
        The largest difference, as a share of the largest output.

    Raises:
        ValueError: they differ by more than 10⁻⁴, or four roundings of a half-precision model.
    """
    from peft import PeftModel

    with warnings.catch_warnings():
        # peft asks transformers by a name that it will drop
        warnings.simplefilter("ignore", FutureWarning)
        reloaded: Any = PeftModel.from_pretrained(fresh, str(folder))
    reloaded.eval()
    with torch.no_grad():
        found = outputs(reloaded)
    scale = max(float(expected.abs().max()), 1e-30)
    # a half-precision model rounds its own sums, in an order of its own
    allowed = max(REPRODUCED, 4 * torch.finfo(expected.dtype).eps)
    difference = float((found.float() - expected.float()).abs().max()) / scale
    if not difference <= allowed:
        raise ValueError(
            f"save: expected the adapter in {folder} to give the trained model's outputs when it "
            f"is loaded by peft, got a difference of {difference:.3g} of the largest"
        )
    return difference


def copy_before(
    model: nn.Module, layers: Sequence[AdapterLayer], before: Mapping[str, Tensor]
) -> Any:
    """Return a copy of a model without adapters, its weights as they were before training.

    Args:
        model: with hooks off.
        layers: what was trained.
        before: (out, in) weights as they were, where they were trained themselves.
    """
    # never trained: what it gives comes from the files alone
    fresh: Any = copy.deepcopy(model)
    if hasattr(fresh, "unload"):
        fresh = fresh.unload()
    modules = dict(fresh.named_modules())
    with torch.no_grad():
        for layer in layers:
            if layer.name in before:
                held = before[layer.name]
                modules[layer.name].weight.copy_(held.mT if layer.transposed else held)
    return fresh


def read_adapter(folder: str | Path) -> Release[TrainedAdapter]:
    """Return the release beside an adapter, worked out again and held against its weights.

    Raises:
        ValueError: no adapter of tacit, its release contradicts itself, or its weights are others.
    """
    from safetensors import safe_open
    from safetensors.torch import load_file

    place = absolute("folder", folder)
    if not (place / RELEASE).is_file():
        raise ValueError(
            f"folder: expected an adapter with {RELEASE} beside it, got {shown(str(folder))}"
        )
    # worked out again from its settings
    release = load(place / RELEASE)
    if release.kind != KIND:
        raise ValueError(f"folder: expected the release of an adapter in {place / RELEASE}")
    if not (place / WEIGHTS).is_file():
        raise ValueError(f"folder: expected {WEIGHTS} in {place}, got none")
    try:
        held = load_file(place / WEIGHTS)
        with safe_open(place / WEIGHTS, "pt") as file:
            beside = file.metadata()
    except Exception as error:
        raise ValueError(f"folder: cannot read {WEIGHTS} ({type(error).__name__})") from None
    # words that no digest covers could carry anything out
    if beside != METADATA:
        raise ValueError(
            f"folder: expected {WEIGHTS} in {place} as it was written, got other metadata"
        )
    # the guarantee is about these weights and no others
    if digest_of_tensors(sorted(held.items())) != dict(release.digests)[ADAPTER]:
        raise ValueError(
            f"folder: expected the weights that the guarantee is about in {place}, got other values"
        )
    return release


def digest_of_factors(factors: Factors) -> str:
    """Return the SHA-256 of the tensors of an adapter: names, shapes and values."""
    return digest_of_tensors(sorted(_tensors(factors).items()))


def _tensors(factors: Factors) -> dict[str, Tensor]:
    found = {}
    for name, (low, high, _) in factors.layers.items():
        found[f"{PREFIX}{name}.lora_A.weight"] = low.contiguous()
        found[f"{PREFIX}{name}.lora_B.weight"] = high.contiguous()
    return found


def _configuration(factors: Factors, task: str, base: str | None) -> Any:
    """Return peft's configuration of the factors, ranks that differ by name."""
    from peft import LoraConfig

    # peft scales by alpha/r
    ranks = {name: int(low.shape[0]) for name, (low, _, _) in factors.layers.items()}
    alphas = {name: scaling * ranks[name] for name, (_, _, scaling) in factors.layers.items()}
    first = next(iter(ranks))
    made = LoraConfig(
        r=ranks[first],
        lora_alpha=alphas[first],  # type: ignore[arg-type]
        rank_pattern={n: rank for n, rank in ranks.items() if rank != ranks[first]},
        alpha_pattern={n: value for n, value in alphas.items() if value != alphas[first]},
        target_modules=sorted(ranks),
        fan_in_fan_out=factors.transposed,
        task_type=PEFT_TASKS.get(task),
        inference_mode=True,
    )
    made.base_model_name_or_path = base
    return made


def _configuration_text(factors: Factors, task: str, base: str | None) -> str:
    """Return the text of peft's configuration, in the same order in every process.

    peft itself writes its sets of modules in the order of their hashes.
    """
    values = _configuration(factors, task, base).to_dict()
    ordered = {key: sorted(held) if isinstance(held, set) else held for key, held in values.items()}
    return json.dumps(ordered, indent=2, sort_keys=True) + "\n"


def _factor(change: Tensor) -> tuple[Tensor, Tensor]:
    """Return A and B with B A the change, of the least rank that float32 tells."""
    left, values, right = torch.linalg.svd(change.double(), full_matrices=False)
    rank = max(1, int((values > NEGLIGIBLE * values.max()).sum()))
    root = values[:rank].sqrt()
    return (root[:, None] * right[:rank]).float(), (left[:, :rank] * root).float()
