"""Fine-tune a low-rank adapter privately: prepare, reserve, train, prove, save."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tacit._ground.checks import integer
from tacit._ground.numbers import EPS
from tacit._ground.reprs import shown
from tacit.adapters.layers import AdapterLayer, adapted_layers
from tacit.adapters.proof import check_alone
from tacit.adapters.release import (
    ADAPTER,
    KIND,
    MODEL,
    SECRET,
    UNPROTECTED,
    TrainedAdapter,
    certified,
    check_method,
    note_of,
)
from tacit.adapters.run import AdapterRun, PreparedAdapter, Quality
from tacit.adapters.saving import matrix_of
from tacit.adapters.settings import (
    AdaptedLayers,
    AdapterFolder,
    GivenNoise,
    PoissonSteps,
    TrainingRecords,
)
from tacit.adapters.steps import AdapterMechanism, AdapterSteps
from tacit.adapters.tasks import AdapterTask, Rows, check_records, records, task_of
from tacit.gradients.batches import in_halves
from tacit.gradients.methods import LoRAFA
from tacit.gradients.steps import Method, Schedule
from tacit.gradients.unclipped import WithoutClipping
from tacit.guarantees.adjacency import Adjacency
from tacit.releases import Release, Table
from tacit.releases.promises import check_promise
from tacit.runs.identity import digest_of_tensors, identity
from tacit.runs.run import Run, check_run

# What of a run a fine-tuning reads.
READ = ("steps", "precision", "checkpoint", "about")
STEPS = 100
AS_USUAL, POISSON = Run(steps=STEPS, progress=False), PoissonSteps()


def prepare_adapter(
    model: nn.Module | AdaptedLayers,
    data: Any,
    method: Method,
    promise: Table | GivenNoise | None = None,
    run: Run = AS_USUAL,
    *,
    steps: PoissonSteps = POISSON,
    save: AdapterFolder | str | os.PathLike[str] | None = None,
    rng: int | None = None,
) -> PreparedAdapter:
    """Certify a fine-tuning run before its first step; nothing is drawn, written or spent.

    Every step draws each record with probability q = batch/n by a coin of its own, clips what it
    adds, adds noise to the sum and moves the adapter by it. What the run publishes, A and B, is
    (ε, δ)-differentially private for adding or removing one record, or for replacing one.

    Args:
        model: an ``nn.Module`` or a ``transformers`` model, of which all linear layers but a token
            head are adapted; `AdaptedLayers` of it; or a peft LoRA model. It is trained in place,
            in evaluation mode (without dropout). Nothing but the adapter moves.
        data: `TrainingRecords`, or their data alone: (inputs, targets), or a mapping with ``input_ids``
            and, where there are, ``attention_mask`` and ``labels``.
        method: `DPSGD`, `DPLoRAFA`, `NoisyProjection`, `WithoutClipping` or `LoRAFA`.
        promise: ``Table(epsilon=…, delta=…)``, δ below 1/n to mean something; `GivenNoise` for the
            noise itself; None for `LoRAFA`, which promises nothing.
        run: T steps, 100 when left out; ``"float32"`` when left out, or ``"bfloat16"`` for passes
            under autocast; the folder that survives a crash.
        steps: how many records a step expects, and what moves the weights.
        save: folder that the adapter is written to, in peft's format; nowhere when left out.
        rng: a seed voids the guarantee.

    Returns:
        The prepared run; ``draw()`` trains, proves, saves and returns the release.

    Raises:
        ValueError: an argument is outside its range, or the records do not fit the model.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> data = torch.randn(64, 4), torch.randint(2, (64,))
        >>> from tacit.adapters import DPLoRAFA
        >>> prepared = prepare_adapter(
        ...     model, data, DPLoRAFA(rank=2), Table(epsilon=2.0, delta=1e-5), Run(steps=3),
        ...     steps=PoissonSteps(batch=16),
        ... )
        >>> prepared.guarantees[1].epsilon <= 2.0, prepared.draw().details.layers
        (True, ('0', '2'))

    Source: lora-privacy, Algorithms 1 to 4.
    """  # noqa: E501
    # plain data are records without anything held out
    given = data if isinstance(data, TrainingRecords) else TrainingRecords(data=data)
    chosen = model if isinstance(model, AdaptedLayers) else AdaptedLayers(model=model)
    folder = save if isinstance(save, AdapterFolder | None) else AdapterFolder(path=save)
    lasting = check_run(run, READ).lasting(steps=STEPS)
    if not isinstance(steps, PoissonSteps):
        raise ValueError(f"steps: expected PoissonSteps, got {type(steps).__name__}")
    check_method(method)
    _check_kept(promise, method)
    # n records, as named tensors
    rows = records(given.data)
    count = len(next(iter(rows.values())))
    # q n, q, and n where it is public
    size, share, counted = steps.sampling(count)
    if counted is None and isinstance(method, WithoutClipping):
        # the curvature of a step is bounded by the records there are
        raise ValueError(f"sampling_rate: expected none beside {method.name}, got {share}")
    seed = None if rng is None else integer("rng", rng, minimum=0)
    protected = not isinstance(method, LoRAFA)
    # a folder that cannot be written is told before anything is trained
    target = None if folder is None else folder.check(run.checkpoint, protected=protected)
    others = None if given.held_out is None else records(given.held_out)
    # the layers, A drawn, B zero
    network, adapted, attached = adapted_layers(chosen, method, seed)
    was_training, task = network.training, task_of(network, rows, given.task, given.loss)
    network.eval()
    attached.on()
    try:
        check_records("data", network, task, rows)
        if others is not None:
            check_records("held_out", network, task, others)
        # all that the certificate follows from beside the method
        schedule = Schedule(
            sampling_rate=share,
            steps=lasting.steps or STEPS,
            dims=tuple(layer.width for layer in adapted),
            rank_one=_sees_vectors(network, adapted, task, rows),
            adjacency=Adjacency.ADD_REMOVE if promise is None else promise.adjacency,
        )
        given_a = chosen.projections is not None or hasattr(chosen.model, "peft_config")
        convex = _with_condition(method, adapted, schedule, steps, (size, count), given=given_a)
        # the noise asked for, or the least that keeps ε, rounded up
        noise, delta = _multiplier(convex, schedule, promise)
        details = TrainedAdapter(
            method=convex,  # type: ignore[arg-type]
            schedule=schedule,
            noise_multiplier=noise,
            delta=delta,
            layers=tuple(layer.name for layer in adapted),
            records=counted,
            half=run.precision == "bfloat16" or in_halves(network),
        )
        mechanism = AdapterMechanism(
            method=convex,
            sampling_rate=share,
            steps=schedule.steps,
            expected=float(size),
            noise_std=noise * convex.noise_scale,
        )
        # what trains
        own = AdapterSteps(
            network,
            adapted,
            rows,
            task,
            mechanism,
            steps,
            precision=run.precision or "float32",
            seed=seed,
        )
        check_alone(own, count)
    except BaseException:
        network.train(was_training)
        raise
    finally:
        # put on again by draw
        attached.off()
    # worked out from the details, as whoever reads the file does
    guarantees = certified(details)
    told = _Told(network, adapted, rows, mechanism, steps, seed, run)
    names = told.identity()

    def released(adapter: str, before: Quality | None) -> Release[TrainedAdapter]:
        # measured on held-out records, which are not private
        after = None if others is None else Quality.of(own, others)
        among = "records" if counted is None else f"{counted:,} records"
        return Release(
            kind=KIND,
            title=f"a {type(network).__name__} fine-tuned on {among}",
            secret=SECRET,
            method=convex.name,
            guarantees=guarantees,
            details=details,
            reproducible=seed is not None,
            seed=seed,
            withheld="" if noise else UNPROTECTED,
            digests=((ADAPTER, adapter), (MODEL, names["model"])),
            notes=(note_of(details, guarantees),),
            use=() if after is None else after.uses(),
            remarks=_remarks(own, before),
        )

    return PreparedAdapter(
        guarantees=guarantees,
        spends=guarantees[-1:] if noise else (),
        expected=(),
        description=f"an adapter of {len(adapted)} layers by {convex.name}, {schedule.steps} steps",
        reproducible=seed is not None,
        run=AdapterRun(
            steps=own,
            attached=attached,
            before={one.name: matrix_of(one) for one in adapted if one.matrix_b is None},
            identity=names,
            run=lasting,
            released=released,
            held_out=others,
            save=target,
            base=None if folder is None else folder.base,
        ),
    )


def fit(
    model: nn.Module | AdaptedLayers,
    data: Any,
    method: Method,
    promise: Table | GivenNoise | None = None,
    run: Run = AS_USUAL,
    *,
    ledger: Any = None,
    secret: str | None = None,
    no_budget: bool = False,
    **options: Any,
) -> Release[TrainedAdapter]:
    """Fine-tune a low-rank adapter so that no record can be told from it; prepare and draw at once.

    Args:
        model: as `prepare_adapter` takes it.
        data: as `prepare_adapter` takes it.
        method: as `prepare_adapter` takes it.
        promise: as `prepare_adapter` takes it.
        run: as `prepare_adapter` takes it.
        ledger: what the run spends from, a ``tacit.Ledger``.
        secret: name of the records there.
        no_budget: train though the secret has no budget and others have one.
        options: the other arguments of `prepare_adapter`.

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
        ...     head, data, NoisyProjection(rank=2), Table(epsilon=1.0, delta=1e-5), Run(steps=5),
        ...     steps=PoissonSteps(batch=20),
        ... )
        >>> print(f"{release.guarantees[1].epsilon:.3f}", release.method)
        1.000 noisy projection (M2)

    Source: lora-privacy, Algorithms 1 to 4.
    """
    prepared = prepare_adapter(model, data, method, promise, run, **options)
    return prepared.draw(ledger=ledger, secret=secret, no_budget=no_budget)


def _check_kept(promise: Any, method: Method) -> None:
    """Refuse a promise that the method does not keep, or none where it keeps one."""
    # no noise keeps no promise
    if isinstance(method, LoRAFA):
        if promise is not None:
            raise ValueError(
                f"promise: expected None for {method.name}, got {shown(promise)}; choose a method "
                "that adds noise"
            )
        return
    check_promise(promise, Table, GivenNoise)
    if isinstance(promise, Table) and (
        promise.epsilon is None or promise.bounds is not None or promise.levels is not None
    ):
        raise ValueError(
            f"promise: expected Table(epsilon=…, delta=…), with an adjacency if any, got "
            f"{shown(promise)}"
        )


def _multiplier(
    method: Method, schedule: Schedule, promise: Table | GivenNoise | None
) -> tuple[float, float]:
    """Return the noise multiplier given, or the least that ε allows, and δ; 0 without noise."""
    if promise is None:
        return 0.0, 0.0
    if isinstance(promise, GivenNoise):
        return promise.multiplier, promise.delta
    assert promise.epsilon is not None
    assert promise.delta is not None
    return method.noise_multiplier(promise.epsilon, promise.delta, schedule), promise.delta


def _sees_vectors(
    model: nn.Module, layers: Sequence[AdapterLayer], task: AdapterTask, rows: Rows
) -> bool:
    """Whether every adapted layer sees one vector for each record."""
    dimensions: list[int] = []

    def see(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        dimensions.append(inputs[0].ndim)

    # one forward pass of two records tells
    handles = [layer.base.register_forward_pre_hook(see) for layer in layers]
    device = layers[0].weight.device
    try:
        with torch.no_grad():
            task.outputs(model, {name: value[:2].to(device) for name, value in rows.items()})
    finally:
        for handle in handles:
            handle.remove()
    return len(dimensions) == len(layers) and set(dimensions) == {2}


def _with_condition(
    method: Method,
    layers: Sequence[AdapterLayer],
    schedule: Schedule,
    steps: PoissonSteps,
    sizes: tuple[int, int],
    *,
    given: bool,
) -> Method:
    """Return Algorithm 4 with the condition of its A, where its steps drive no two runs apart.

    Args:
        method: any.
        layers: with A.
        schedule: of the run.
        steps: what moves the weights.
        sizes: records expected in a step, and those there are.
        given: whether A was, so that nothing is known of its law.
    """
    if not isinstance(method, WithoutClipping):
        return method
    if steps.optimizer != "sgd" or steps.momentum:
        raise ValueError(
            "optimizer: expected sgd without momentum for noise that is added once at the end, got "
            f"{steps.optimizer}"
        )
    if schedule.steps == 1 and not given:
        # the mixture over an A that was drawn here, of normal entries
        return replace(method, condition=None)
    if schedule.steps > 1 and (method.smoothness is None or len(layers) != 1):
        return method
    ends = [_singular_ends(one) for one in layers]
    if schedule.steps == 1:
        # of any other A one step is a Gaussian in the coordinates that A shows, whatever A is
        return replace(method, condition=1.0)
    largest, least = ends[0]
    assert method.smoothness is not None
    # one record more than there are may be in a neighbour
    # η and β ‖A‖² s²
    rate, curvature = steps.learning_rate, method.smoothness * (layers[0].scaling * largest) ** 2
    size, count = sizes
    reach = rate * (count + 1) / size * curvature
    # a step of a convex loss is no expansion where η β <= 2 (Hardt et al., Lemma 3.7)
    if reach > 2.0:
        raise ValueError(
            "rate: expected one with rate × curvature at most 2, so that two convex runs do not "
            f"drift apart, got {reach:.3g}; take {rate * 2 / reach:.3g} or less"
        )
    # rounded up by more than the singular values are off
    return replace(method, condition=largest / least * (1 + 1e-9))


def _singular_ends(layer: AdapterLayer) -> tuple[float, float]:
    """Return the largest singular value of A, and the least, rounded down.

    Raises:
        ValueError: its rows depend on each other.
    """
    factor = layer.matrix_a
    assert factor is not None
    # λ of A Aᵀ are the squares of A's singular values
    values = torch.linalg.svdvals(factor.double())
    largest = float(values.max())
    # each is off by a few units of the largest: the least is rounded down
    least = float(values.min()) - 8.0 * max(factor.shape) * EPS * largest
    if least <= 0.0:
        raise ValueError(
            "projections: expected an A of independent rows for noise that is added once, got one "
            "whose rows depend on each other"
        )
    return largest, least


def _remarks(steps: AdapterSteps, before: Quality | None) -> tuple[str, ...]:
    """Return what the holder of a release should know."""
    remarks = [] if before is None else [f"Before training: {before.describe()}."]
    share = steps.clipped_share()
    if share is not None:
        remarks.append(f"{share:.0%} of the records of a step were clipped.")
    return tuple(remarks)


class _Told(NamedTuple):
    """What makes a run what it is."""

    network: nn.Module
    layers: Sequence[AdapterLayer]
    rows: Rows
    mechanism: AdapterMechanism
    steps: PoissonSteps
    seed: int | None
    run: Run

    def identity(self) -> Mapping[str, str]:
        """Return digests of the model, the records and the settings."""
        method = self.mechanism.method
        if isinstance(method, WithoutClipping):
            # its condition is that of an A which a run stores itself
            method = replace(method, condition=None)
        # a run with other layers is another
        names = [layer.name for layer in self.layers]
        settings = (replace(self.mechanism, method=method), self.steps, self.run.precision)
        return {
            "model": _digest_without_factors(self.network),
            "records": identity(sorted(self.rows.items())),
            "settings": identity(names, *settings, self.seed, self.run.about),
        }


def _digest_without_factors(network: nn.Module) -> str:
    """Return the digest of a model's state but for LoRA's factors, which a run stores itself."""
    return digest_of_tensors(
        (name.replace("base_model.model.", "").replace(".base_layer", ""), value)
        for name, value in sorted(network.state_dict().items())
        if ".lora_A." not in name and ".lora_B." not in name
    )
