"""Fine-tune a low-rank adapter privately: prepare, reserve, train, prove, save."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from torch import Tensor, nn

from tacit._ground.checks import boolean, choice, in_interval, integer
from tacit.adapters.arguments import (
    adapted_layers,
    chosen_delta,
    chosen_multiplier,
    chosen_rate,
    chosen_sampling,
    conditioned,
    records_words,
    run_identity,
    run_notes,
    sees_vectors,
    target_folder,
)
from tacit.adapters.measuring import Quality, quality
from tacit.gradients.methods import Method, WithoutClipping
from tacit.adapters.proof import check_alone
from tacit.adapters.release import (
    AdapterRelease,
    certified,
    check_method,
    settings_of,
)
from tacit.adapters.run import Run, Settings, make_optimizer
from tacit.adapters.sampling import StepRandomness
from tacit.adapters.saving import matrix_of
from tacit.gradients.methods import Schedule
from tacit.adapters.session import PreparedAdapter, Session
from tacit.adapters.tasks import Loss, check_records, records, task_of

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
    multiplier: float | None = None,
    steps: int = 100,
    batch: int | None = None,
    sampling_rate: float | None = None,
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
        multiplier: of the noise, over the clip, instead of ε.
        steps: T.
        batch: expected records in a step; all of them when left out.
        sampling_rate: q in (0, 1], declared beside ``batch`` without looking at the records; batch
            over the number of records when left out, which is then published and taken as public.
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
        >>> import torch
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
    size, share, public = chosen_sampling(batch, sampling_rate, count)
    if public is None and isinstance(method, WithoutClipping):
        # the curvature of a step is bounded by the records there are
        raise ValueError(f"sampling_rate: expected none beside {method.name}, got {share}")
    moved = chosen_rate(rate, optimizer, method)
    in_interval("momentum", momentum, 0.0, 1.0, open_high=True)
    failure = chosen_delta(delta, method)
    seed = None if rng is None else integer("rng", rng, minimum=0)
    target = target_folder(save, checkpoint, method, unprotected)
    others = None if held_out is None else records(held_out)
    network, layers, attached = adapted_layers(model, targets, method, projections, seed)
    was_training, given = network.training, task_of(network, rows, task, loss)
    network.eval()
    attached.on()
    try:
        check_records("data", network, given, rows)
        if others is not None:
            check_records("held_out", network, given, others)
        schedule = Schedule(
            sampling_rate=share,
            steps=integer("steps", steps, minimum=1),
            dims=tuple(layer.width for layer in layers),
            rank_one=sees_vectors(network, layers, given, rows),
        )
        chosen = conditioned(method, layers, schedule, moved, size, count, optimizer, momentum)
        noise = chosen_multiplier(chosen, schedule, epsilon, failure, multiplier)
        settings = Settings(
            method=chosen,
            sampling_rate=schedule.sampling_rate,
            steps=schedule.steps,
            expected=float(size),
            noise_std=noise * chosen.noise_scale,
            micro_batch=integer("micro_batch", micro_batch, minimum=1),
            autocast=precision == "bfloat16",
        )
        run = Run(
            network, layers, rows, given, settings,
            make_optimizer(optimizer, layers, moved, momentum), StepRandomness(seed),
        )  # fmt: skip
        check_alone(run, count)
    except BaseException:
        network.train(was_training)
        raise
    finally:
        # put on again by draw
        attached.off()
    guarantees = certified(chosen, schedule, noise, failure, public)
    identity = run_identity(network, layers, rows, settings, optimizer, moved, momentum, seed)

    def released(adapter: str, before: Quality | None) -> AdapterRelease:
        after = None if others is None else quality(network, given, others)
        return AdapterRelease(
            title=f"a {type(network).__name__} fine-tuned on {records_words(public)}",
            method=chosen.name,
            settings=settings_of(chosen),
            schedule=schedule,
            noise_multiplier=noise,
            delta=failure,
            layers=tuple(layer.name for layer in layers),
            records=public,
            guarantees=guarantees,
            adapter=adapter,
            model=identity["model"],
            attacks=(),
            use=() if after is None else after.uses(),
            notes=run_notes(noise, before, run),
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
        spends=guarantees[-1:] if noise else (),
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
        >>> import torch
        >>> from tacit.adapters import NoisyProjection
        >>> head = torch.nn.Sequential(torch.nn.Linear(16, 3))
        >>> data = torch.randn(60, 16), torch.randint(3, (60,))
        >>> release = fit(
        ...     head, data, NoisyProjection(rank=2), epsilon=1.0, delta=1e-5, steps=5, batch=20,
        ... )
        >>> print(f"{release.guarantees[1].epsilon:.3f}", release.method)
        1.000 noisy projection (M2)

    Source: lora-privacy, Algorithms 1 to 4.
    """
    prepared = prepare_adapter(model, data, method, **settings)
    return prepared.draw(ledger=ledger, secret=secret, no_budget=no_budget)
