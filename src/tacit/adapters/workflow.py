"""Fine-tune a low-rank adapter privately: prepare, reserve, train, prove, save."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tacit._ground.checks import boolean, choice, in_interval, integer, positive
from tacit._ground.reprs import shown
from tacit.adapters.layers import AdapterLayer, Attached, peft_layers, plain_layers
from tacit.adapters.measuring import Quality, quality
from tacit.adapters.methods import LoRAFA, Method, Schedule, WithoutClipping
from tacit.adapters.proof import check_alone
from tacit.adapters.release import (
    PUBLISHED,
    UNPROTECTED,
    AdapterRelease,
    certified,
    check_method,
    settings_of,
)
from tacit.adapters.run import Run, Settings, make_optimizer
from tacit.adapters.sampling import StepRandomness
from tacit.adapters.saving import matrix_of
from tacit.adapters.session import PreparedAdapter, Session
from tacit.adapters.tasks import Loss, Rows, Task, check_records, records, task_of
from tacit.models.small.storage import check_new_folder

OPTIMIZERS = ("sgd", "adam")
# Records in one forward pass, where nothing else is asked for.
MICRO_BATCH = 32


def prepare_adapter(
    model: nn.Module,
    data: Any,
    method: Method,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    noise_multiplier: float | None = None,
    steps: int = 100,
    batch: int | None = None,
    rate: float | None = None,
    momentum: float = 0.0,
    optimizer: str = "adam",
    targets: str | Sequence[str] = "all",
    projections: Mapping[str, Tensor] | None = None,
    task: str | None = None,
    loss: Loss | None = None,
    held_out: Any = None,
    micro_batch: int = MICRO_BATCH,
    precision: str = "float32",
    checkpoint: str | os.PathLike[str] | None = None,
    save: str | os.PathLike[str] | None = None,
    base: str | None = None,
    unprotected: bool = False,
    progress: bool = False,
    rng: int | None = None,
) -> PreparedAdapter:
    """Certify a fine-tuning run before its first step; nothing is drawn, written or spent.

    Every step draws each record with probability q = batch/n by a coin of its own, clips what it
    adds, adds noise to the sum and moves the adapter by it. What the run publishes, A and B, is
    (ε, δ)-differentially private for adding or removing one record.

    Args:
        model: an ``nn.Module``, a ``transformers`` model or a peft LoRA model; trained in place, in
            evaluation mode (without dropout). Nothing but the adapter moves.
        data: (inputs, targets), or a mapping with ``input_ids`` and, where there are,
            ``attention_mask`` and ``labels``.
        method: `DPSGD`, `DPLoRAFA`, `NoisyProjection`, `WithoutClipping` or `LoRAFA`.
        epsilon: ε > 0 in nats, with ``delta``; inf for `LoRAFA`.
        delta: δ in (0, 1), below 1/n to mean something.
        noise_multiplier: instead of ε.
        steps: T.
        batch: expected records in a step; all of them when left out.
        rate: learning rate; .01 for ``"adam"``, .5 for ``"sgd"``.
        momentum: of ``"sgd"``.
        optimizer: ``"adam"`` or ``"sgd"``, of the noisy gradients.
        targets: names of linear layers, or endings of names, or ``"all"``; a peft model has its
            own.
        projections: A of layers by name, (rank, in), made of public data; random when left out.
        task: ``"causal"``, ``"masked"``, ``"classification"`` or ``"supervised"``; read off the
            model's head when left out.
        loss: of a supervised task, from outputs and targets to one loss for each record.
        held_out: as ``data``: records that are not private, to measure the model on.
        micro_batch: most records in one forward pass; sums are accumulated.
        precision: ``"float32"``, or ``"bfloat16"`` for passes under autocast.
        checkpoint: folder that survives a crash: the same call goes on from it.
        save: folder that the adapter is written to, in peft's format.
        base: name of the model, for whoever loads the adapter.
        unprotected: write an adapter that has no guarantee, which must not be published.
        progress: whether to show the steps.
        rng: a seed voids the guarantee.

    Returns:
        The prepared run; ``draw()`` trains, proves, saves and returns the `AdapterRelease`.

    Raises:
        ValueError: an argument is outside its range, or the records do not fit the model.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> data = torch.randn(64, 4), torch.randint(2, (64,))
        >>> from tacit.adapters import DPLoRAFA
        >>> prepared = prepare_adapter(
        ...     model, data, DPLoRAFA(rank=2), epsilon=2.0, delta=1e-5, steps=3, batch=16
        ... )
        >>> prepared.guarantees[1].epsilon <= 2.0, prepared.draw().layers
        (True, ('0', '2'))

    Source: lora-privacy, Algorithms 1 to 4.
    """  # noqa: E501
    rows = records(data)
    count = len(next(iter(rows.values())))
    check_method(method)
    choice("optimizer", optimizer, OPTIMIZERS)
    choice("precision", precision, ("float32", "bfloat16"))
    size = count if batch is None else integer("batch", batch, minimum=1)
    if size > count:
        raise ValueError(f"batch: expected at most the {count} records there are, got {size}")
    moved = _rate(rate, optimizer, method)
    in_interval("momentum", momentum, 0.0, 1.0, open_high=True)
    failure = _delta(delta, method)
    seed = None if rng is None else integer("rng", rng, minimum=0)
    target = _folder(save, checkpoint, method, unprotected)
    others = None if held_out is None else records(held_out)
    network, layers, attached = _layers(model, targets, method, projections, seed)
    was_training, given = network.training, task_of(network, rows, task, loss)
    network.eval()
    attached.on()
    try:
        check_records("data", network, given, rows)
        if others is not None:
            check_records("held_out", network, given, others)
        schedule = Schedule(
            sampling_rate=size / count,
            steps=integer("steps", steps, minimum=1),
            dims=tuple(layer.width for layer in layers),
            rank_one=_vectors(network, layers, given, rows),
        )
        chosen = _conditioned(method, layers, schedule, moved, size, count, optimizer, momentum)
        multiplier = _multiplier(chosen, schedule, epsilon, failure, noise_multiplier)
        settings = Settings(
            method=chosen,
            sampling_rate=schedule.sampling_rate,
            steps=schedule.steps,
            expected=float(size),
            noise_std=0.0 if multiplier is None else multiplier * chosen.noise_scale,
            micro_batch=integer("micro_batch", micro_batch, minimum=1),
            autocast=precision == "bfloat16",
        )
        run = Run(
            network, layers, rows, given, settings,
            make_optimizer(optimizer, layers, moved, momentum), StepRandomness(seed),
        )  # fmt: skip
        check_alone(run.gradients, count)
    except BaseException:
        network.train(was_training)
        raise
    finally:
        # put on again by draw
        attached.off()
    guarantees = certified(chosen, schedule, multiplier, failure)
    identity = _identity(network, layers, rows, settings, optimizer, moved, momentum, seed)

    def released(adapter: str, before: Quality | None) -> AdapterRelease:
        after = None if others is None else quality(network, given, others)
        return AdapterRelease(
            title=f"a {type(network).__name__} fine-tuned on {count:,} records",
            method=chosen.name,
            settings=settings_of(chosen),
            schedule=schedule,
            noise_multiplier=multiplier,
            delta=failure,
            layers=tuple(layer.name for layer in layers),
            guarantees=guarantees,
            adapter=adapter,
            model=identity["model"],
            attacks=(),
            use=() if after is None else after.uses(),
            notes=_notes(multiplier, before, run),
            reproducible=seed is not None,
            seed=seed,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    session = Session(
        run=run,
        attached=attached,
        before={one.name: matrix_of(one) for one in layers if one.matrix_b is None},
        identity=identity,
        released=released,
        measured=None if others is None else lambda: quality(network, given, others),
        save=target,
        base=base,
        progress=boolean("progress", progress),
    )
    return PreparedAdapter(
        guarantees=guarantees,
        spends=guarantees[-1:] if multiplier is not None else (),
        expected=(),
        description=f"an adapter of {len(layers)} layers by {chosen.name}, {steps} steps",
        reproducible=seed is not None,
        session=session,
        checkpoint=checkpoint,
    )


def fit(
    model: nn.Module,
    data: Any,
    method: Method,
    *,
    ledger: Any = None,
    secret: str | None = None,
    no_budget: bool = False,
    **settings: Any,
) -> AdapterRelease:
    """Fine-tune a low-rank adapter so that no record can be told from it; prepare and draw at once.

    Args:
        model: as `prepare_adapter` takes it.
        data: as `prepare_adapter` takes it.
        method: as `prepare_adapter` takes it.
        ledger: what the run spends from, a ``tacit.Ledger``.
        secret: name of the records there.
        no_budget: train though the secret has no budget and others have one.
        settings: the other arguments of `prepare_adapter`.

    Returns:
        The release; the model has the adapter on.

    Raises:
        ValueError: as `prepare_adapter`, or a refusal of the ledger, before anything is drawn.

    Example:
        >>> from tacit.adapters import NoisyProjection
        >>> head = torch.nn.Sequential(torch.nn.Linear(16, 3))
        >>> data = torch.randn(60, 16), torch.randint(3, (60,))
        >>> release = fit(
        ...     head, data, NoisyProjection(rank=2), epsilon=1.0, delta=1e-5, steps=5, batch=20,
        ... )
        >>> print(f"{release.guarantees[1].epsilon:.3f}", release.method)
        1.000 noisy-projection

    Source: lora-privacy, Algorithms 1 to 4.
    """
    prepared = prepare_adapter(model, data, method, **settings)
    return prepared.draw(ledger=ledger, secret=secret, no_budget=no_budget)


def _layers(
    model: Any,
    targets: str | Sequence[str],
    method: Method,
    projections: Mapping[str, Tensor] | None,
    seed: int | None,
) -> tuple[nn.Module, list[AdapterLayer], Attached]:
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


def _vectors(model: nn.Module, layers: Sequence[AdapterLayer], task: Task, rows: Rows) -> bool:
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


def _conditioned(
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


def _multiplier(
    method: Method,
    schedule: Schedule,
    epsilon: float | None,
    delta: float,
    multiplier: float | None,
) -> float | None:
    if isinstance(method, LoRAFA):
        if multiplier is not None or epsilon not in (None, float("inf")):
            raise ValueError(
                f"epsilon: expected inf for {method.name}, got {shown(epsilon)}; choose a method "
                "that adds noise"
            )
        return None
    if (epsilon is None) == (multiplier is None):
        raise ValueError("epsilon, noise_multiplier: expected exactly one of the two")
    if multiplier is not None:
        return positive("noise_multiplier", multiplier)
    return method.noise_multiplier(positive("epsilon", epsilon), delta, schedule)


def _rate(rate: float | None, optimizer: str, method: Method) -> float:
    del method
    if rate is not None:
        return positive("rate", rate)
    return 0.01 if optimizer == "adam" else 0.5


def _delta(delta: float | None, method: Method) -> float:
    if delta is None and isinstance(method, LoRAFA):
        return 0.0
    if delta is None:
        raise ValueError("delta: expected a number in (0, 1), got None")
    return in_interval("delta", delta, 0.0, 1.0, open_low=True, open_high=True)


def _folder(
    save: str | os.PathLike[str] | None,
    checkpoint: str | os.PathLike[str] | None,
    method: Method,
    unprotected: bool,
) -> Path | None:
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


def _notes(multiplier: float | None, before: Quality | None, run: Run) -> tuple[str, ...]:
    told = [PUBLISHED if multiplier is not None else UNPROTECTED]
    if before is not None:
        told.append(f"Before training: {before.describe()}.")
    share = run.clipped_share()
    if share is not None:
        told.append(f"{share:.0%} of the records of a step were clipped.")
    return tuple(told)


def _identity(
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
