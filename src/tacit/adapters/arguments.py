"""What a run is, worked out from its arguments and refused where they do not fit."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tacit._ground.checks import boolean, in_interval, integer, positive
from tacit._ground.reprs import shown
from tacit.adapters.layers import AdapterLayer, Attached, peft_layers, plain_layers
from tacit.adapters.measuring import Quality
from tacit.gradients.methods import LoRAFA, Method, WithoutClipping
from tacit.adapters.release import PUBLISHED, UNPROTECTED
from tacit.adapters.run import Run, Settings
from tacit.gradients.methods import Schedule
from tacit.adapters.tasks import Rows, Task
from tacit.models.small.storage import check_new_folder


def adapted_layers(
    model: Any,
    targets: str | Sequence[str],
    method: Method,
    projections: Mapping[str, Tensor] | None,
    seed: int | None,
) -> tuple[nn.Module, list[AdapterLayer], Attached]:
    """Return the model to train, its layers, and their hooks."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"model: expected an nn.Module, got {type(model).__name__}")
    if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        raise ValueError(f"model: expected the module itself, got a {type(model).__name__}")
    _check_dtype(model, method)
    if not hasattr(model, "peft_config"):
        given = _projections(projections)
        layers = plain_layers(model, targets, method, projections=given, rng=seed)
        return model, layers, Attached(layers)
    if projections is not None or targets != "all":
        raise ValueError(
            "targets, projections: expected none beside a peft model, which has its own"
        )
    layers = peft_layers(model)
    if method.full:
        if any(bool(layer.trained.any()) for layer in layers):
            raise ValueError(
                f"model: expected B of zeros for {method.name}, which trains W, got another; merge "
                "the adapter first"
            )
        names, plain = [layer.name for layer in layers], model.unload()  # type: ignore[operator]
        layers = plain_layers(plain, names, method)
        return plain, layers, Attached(layers)
    ranks = {int(layer.matrix_a.shape[0]) for layer in layers if layer.matrix_a is not None}
    if ranks != {method.rank}:  # type: ignore[attr-defined]
        raise ValueError(
            f"method: expected the rank of the model's A, {shown(sorted(ranks))}, got {method.rank}"  # type: ignore[attr-defined]
        )
    return model, layers, Attached([])


def _projections(given: Mapping[str, Tensor] | None) -> dict[str, Tensor] | None:
    if given is not None and not isinstance(given, Mapping):
        raise ValueError(f"projections: expected A of layers by name, got {type(given).__name__}")
    return None if given is None else dict(given)


def _check_dtype(model: nn.Module, method: Method) -> None:
    if method.full and any(p.dtype != torch.float32 for p in model.parameters()):
        raise ValueError(
            f"model: expected float32 weights for {method.name}, which moves them, got others"
        )


def sees_vectors(model: nn.Module, layers: Sequence[AdapterLayer], task: Task, rows: Rows) -> bool:
    """Whether every adapted layer sees one vector for each record."""
    dimensions: list[int] = []

    def see(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        del module
        dimensions.append(inputs[0].ndim)

    handles = [layer.base.register_forward_pre_hook(see) for layer in layers]
    device = layers[0].weight.device
    try:
        with torch.no_grad():
            task.outputs(model, {name: value[:2].to(device) for name, value in rows.items()})
    finally:
        for handle in handles:
            handle.remove()
    return len(dimensions) == len(layers) and set(dimensions) == {2}


def conditioned(
    method: Method,
    layers: Sequence[AdapterLayer],
    schedule: Schedule,
    rate: float,
    size: int,
    count: int,
    optimizer: str,
    momentum: float,
) -> Method:
    """Return Algorithm 4 with the condition of its A, where its steps drive no two runs apart."""
    if not isinstance(method, WithoutClipping):
        return method
    if optimizer != "sgd" or momentum:
        raise ValueError(
            "optimizer: expected sgd without momentum for noise that is added once at the end, got "
            f"{optimizer}"
        )
    if schedule.steps == 1 or method.smoothness is None or len(layers) != 1:
        return method
    factor = layers[0].matrix_a
    assert factor is not None
    values = torch.linalg.svdvals(factor.double())
    largest, least = float(values.max()), float(values.min())
    # one record more than there are may be in a neighbour
    reach = rate * (count + 1) / size * method.smoothness * (layers[0].scaling * largest) ** 2
    if reach > 2.0:
        raise ValueError(
            "rate: expected one with rate × curvature at most 2, so that two convex runs do not "
            f"drift apart, got {reach:.3g}; take {rate * 2 / reach:.3g} or less"
        )
    return replace(method, condition=largest / least * (1 + 1e-9))


def chosen_multiplier(
    method: Method,
    schedule: Schedule,
    epsilon: float | None,
    delta: float,
    multiplier: float | None,
) -> float:
    """Return the noise multiplier asked for, or the least that ε allows; 0 without noise."""
    if isinstance(method, LoRAFA):
        if multiplier is not None or epsilon not in (None, float("inf")):
            raise ValueError(
                f"epsilon: expected inf for {method.name}, got {shown(epsilon)}; choose a method "
                "that adds noise"
            )
        return 0.0
    if (epsilon is None) == (multiplier is None):
        raise ValueError("epsilon, multiplier: expected exactly one of the two")
    if multiplier is not None:
        return positive("multiplier", multiplier)
    return method.noise_multiplier(positive("epsilon", epsilon), delta, schedule)


def chosen_rate(rate: float | None, optimizer: str, method: Method) -> float:
    """Return the rate asked for, or the optimizer's own."""
    del method
    if rate is not None:
        return positive("rate", rate)
    return 0.01 if optimizer == "adam" else 0.5


def chosen_sampling(
    batch: int | None, sampling_rate: float | None, count: int
) -> tuple[int, float, int | None]:
    """Return the records expected in a step, q, and n where it is taken as public.

    Args:
        batch: asked for; all records when left out.
        sampling_rate: q, declared without the records; batch/n when left out.
        count: n.
    """
    size = count if batch is None else integer("batch", batch, minimum=1)
    if sampling_rate is None:
        if size > count:
            raise ValueError(f"batch: expected at most the {count} records there are, got {size}")
        return size, size / count, count
    if batch is None:
        raise ValueError("batch: expected the records expected in a step beside sampling_rate")
    return size, in_interval("sampling_rate", sampling_rate, 0.0, 1.0, open_low=True), None


def records_words(records: int | None) -> str:
    """Return what was learned from, in words: its number only where that is public."""
    return "records" if records is None else f"{records:,} records"


def chosen_delta(delta: float | None, method: Method) -> float:
    """Return δ; 0 for a method without noise."""
    if delta is None and isinstance(method, LoRAFA):
        return 0.0
    if delta is None:
        raise ValueError("delta: expected a number in (0, 1), got None")
    return in_interval("delta", delta, 0.0, 1.0, open_low=True, open_high=True)


def target_folder(
    save: str | os.PathLike[str] | None,
    checkpoint: str | os.PathLike[str] | None,
    method: Method,
    unprotected: bool,
) -> Path | None:
    """Return where the adapter goes, refused now where it could not be written."""
    boolean("unprotected", unprotected)
    if checkpoint is not None and checkpoint == save:
        raise ValueError("checkpoint: expected another folder than save, got the same")
    for name, given in (("save", save), ("checkpoint", checkpoint)):
        if given is not None and (given == "" or not isinstance(given, (str, os.PathLike))):
            raise ValueError(f"{name}: expected a file path, a folder's, got {shown(given)}")
    if save is None:
        return None
    if isinstance(method, LoRAFA) and not unprotected:
        raise ValueError(
            "save: expected a method with noise for an adapter that may leave, got "
            f"{method.name}: A beside a noiseless B tells the gradients (lora-privacy, Proposition "
            "2); unprotected=True writes it for yourself"
        )
    place = Path(save).expanduser().resolve()
    if checkpoint is not None and place.is_dir():
        # a run that died after its adapter was written is taken up
        return place
    return check_new_folder("save", save)


def run_notes(multiplier: float, before: Quality | None, run: Run) -> tuple[str, ...]:
    """Return what a reader of the release should know."""
    told = [PUBLISHED if multiplier else UNPROTECTED]
    if before is not None:
        told.append(f"Before training: {before.describe()}.")
    share = run.clipped_share()
    if share is not None:
        told.append(f"{share:.0%} of the records of a step were clipped.")
    return tuple(told)


def run_identity(
    network: nn.Module,
    layers: Sequence[AdapterLayer],
    rows: Rows,
    settings: Settings,
    *others: Any,
) -> dict[str, str]:
    """Return what a run is: digests of the model, the records and the settings."""
    found = hashlib.sha256()
    for name in sorted(rows):
        held = rows[name].contiguous()
        found.update(f"{name}{held.dtype}{tuple(held.shape)}".encode())
        found.update(held.view(-1).view(torch.uint8).numpy().tobytes() if held.numel() else b"")
    names = [layer.name for layer in layers]
    told = replace(settings, method=_without_condition(settings.method))
    return {
        "model": _digest_without_factors(network),
        "records": f"sha256:{found.hexdigest()}",
        "settings": hashlib.sha256(repr((told, names, others)).encode()).hexdigest(),
    }


def _without_condition(method: Method) -> Method:
    return replace(method, condition=None) if isinstance(method, WithoutClipping) else method


def _digest_without_factors(network: nn.Module) -> str:
    """Return the digest of a model's state but for LoRA's factors, which a run stores itself."""
    found = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        if ".lora_A." in name or ".lora_B." in name:
            continue
        plain = name.replace("base_model.model.", "").replace(".base_layer", "")
        held = value.detach().cpu().contiguous()
        found.update(f"{plain}:{held.dtype}:{tuple(held.shape)};".encode())
        found.update(held.view(-1).view(torch.uint8).numpy().tobytes() if held.numel() else b"")
    return f"sha256:{found.hexdigest()}"
