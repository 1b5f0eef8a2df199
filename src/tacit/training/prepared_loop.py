"""A training loop of one's own, certified before its first step: prepare, reserve, draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from tacit._ground.checks import integer, positive
from tacit._ground.reprs import shown
from tacit.accounting import least_noise
from tacit.gradients.batches import in_halves, refuse_mixing, refuse_without_numbers
from tacit.gradients.correlated import CorrelatedDPSGD
from tacit.gradients.given import GivenNoise
from tacit.gradients.methods import DPSGD
from tacit.gradients.steps import FIRST_NOISE, Schedule
from tacit.releases import Table
from tacit.releases.prepared import Book
from tacit.releases.promises import check_promise
from tacit.training.loop_plan import AS_USUAL, LoopPlan, LoopSettings
from tacit.training.loop_release import PrivateTraining, certified
from tacit.training.private_loop import PrivateLoop
from tacit.training.sampled_loader import check_loader
from tacit.training.sampling import SampledSteps
from tacit.training.still import inner, inner_optimizer, trained_parameters
from tacit.training.workers import Workers

# What arguments of Opacus' ``make_private`` are here.
OPACUS = {
    "module": "model",
    "data_loader": "loader",
    "noise_multiplier": "the promise GivenNoise(multiplier=…, delta=…)",
    "max_grad_norm": "the method DPSGD(clip=…)",
    "clipping": "the method DPSGD(clipping=…)",
    "target_epsilon": "the promise Table(epsilon=…, delta=…)",
    "target_delta": "the promise Table(epsilon=…, delta=…)",
    "poisson_sampling": "LoopSettings(sampling=Poisson())",
    "grad_sample_mode": "LoopSettings(passes=…)",
    "noise_generator": "LoopSettings(seed=…)",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedLoop(LoopPlan):
    """A loop whose guarantees are known before its first step; nothing is spent or changed."""

    def begin(
        self, *, ledger: Book | None = None, secret: str | None = None, no_budget: bool = False
    ) -> PrivateLoop:
        """Reserve the cost of all steps and return the loop, whose steps draw.

        Args:
            ledger: what the loop spends from, a ``tacit.Ledger``; None for none.
            secret: name of the records there.
            no_budget: train though the secret has no budget and others have one.

        Raises:
            ValueError: a ledger without a secret, a checkpoint of another run, or a refusal.
        """
        return PrivateLoop(self, ledger=ledger, secret=secret, no_budget=no_budget)


# Where Opacus keeps what it wraps others in; its layers are modules like any other.
WRAPPED = ("opacus.grad_sample", "opacus.optimizers", "opacus.data_loader")


def prepare_private(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader[Any],
    method: DPSGD,
    promise: Table | GivenNoise,
    *,
    epochs: int,
    settings: LoopSettings = AS_USUAL,
) -> PreparedLoop:
    """Certify a training loop of one's own before its first step.

    Every step draws each record with probability q = batch/n by a coin of its own, clips what it
    adds to C, adds ``N(0, s²C²)`` to the sum and hands it to the optimizer, whatever that is. What
    is published, the trained parameters, is (ε, δ)-differentially private for all steps together.

    Args:
        model: in which no example's outputs depend on another's; trained in place.
        optimizer: of ``torch.optim``, or any that reads ``.grad``; what it has is trained.
        loader: a ``DataLoader`` with the batch size that a step expects.
        method: ``DPSGD(clip=…)``; ``AdaptiveDPSGD(clip=…)``, whose clip follows the gradients;
            ``CorrelatedDPSGD(clip=…, noise=…)``, whose noise is tied together across steps.
        promise: ``Table(epsilon=…, delta=…)``, δ below 1/n to mean something; or ``GivenNoise``.
        epochs: passes over the loader; an epoch is n/batch steps, rounded up.
        settings: how many records pass together, where the loop is kept.

    Raises:
        ValueError: an argument is outside its range, or the model mixes examples.

    Example:
        >>> from tacit.gradients import DPSGD
        >>> model = nn.Linear(3, 2)
        >>> data = torch.utils.data.TensorDataset(torch.randn(40, 3), torch.randint(2, (40,)))
        >>> prepared = prepare_private(
        ...     model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(data, batch_size=8),
        ...     DPSGD(clip=1.0), Table(epsilon=2.0, delta=1e-3), epochs=1,
        ... )
        >>> prepared.details.schedule.steps, prepared.guarantees[1].epsilon <= 2.0
        (5, True)

    Source: Abadi et al. (2016), Algorithm 1.
    """
    _refuse_wrapped(model=model, optimizer=optimizer, loader=loader)
    _check_asked(model, method, promise)
    optimizer = inner_optimizer(optimizer)
    assert promise.delta is not None
    passes = integer("epochs", epochs, minimum=1)
    records, own = check_loader(loader, settings)
    workers, units = Workers(), _units(settings, records)
    count = records if units is None else len(units)
    # each process passes a batch of its own
    batch = own * workers.size
    if batch > count and settings.sampling_rate is None:
        raise ValueError(
            f"loader: expected a batch of at most the {count} records there are, got {batch}"
        )
    refuse_mixing(inner(model))
    parameters = trained_parameters(inner(model), optimizer)
    declared = settings.sampling_rate is not None
    settings.sampling.check(promise.adjacency, counted=not declared, processes=workers.size)
    share = batch / count if settings.sampling_rate is None else settings.sampling_rate
    each = round(1.0 / share + 0.499999) if declared else -(-count // batch)
    schedule = Schedule(
        sampling_rate=share,
        steps=passes * each,
        dims=tuple(int(one.shape[-1]) if one.ndim else 1 for one in parameters.values()),
        adjacency=promise.adjacency,
    )
    factor = None
    if isinstance(method, CorrelatedDPSGD):
        among = SampledSteps(schedule, passes, None if declared else count)
        factor = method.noise.factor(settings.sampling.participation(among))
    details = PrivateTraining(
        method=method,
        schedule=schedule,
        noise_multiplier=getattr(promise, "multiplier", FIRST_NOISE),
        delta=promise.delta,
        parameters=tuple(parameters),
        records=None if declared else count,
        epochs=passes,
        sampling=settings.sampling,
        person=None if settings.person is None else settings.person.unit,
        factor=factor,
        streamed=settings.records is not None,
        half=in_halves(model),
    )
    if isinstance(promise, Table) and promise.epsilon is not None:
        details = calibrated(details, promise.epsilon)
    guarantees = certified(details)
    return PreparedLoop(
        guarantees=guarantees,
        spends=guarantees[-1:],
        description=f"{type(inner(model)).__name__} by {method.name}, {schedule.steps} steps",
        details=details,
        parts=(model, optimizer, loader),
        settings=settings,
        epochs=passes,
        expected=float(batch),
        batch=own,
        units=units,
        parameters=parameters,
    )


def _check_options(options: Mapping[str, Any]) -> None:
    """Refuse what is said elsewhere, or has another name here."""
    for name in options:
        if name in ("epochs", "settings"):
            continue
        if name in LoopSettings.__dataclass_fields__:
            raise ValueError(f"{name}: expected it in settings=LoopSettings({name}=…)")
        there = OPACUS.get(name)
        raise ValueError(
            f"{name}: expected epochs, settings or no_budget"
            + (f"; what Opacus calls so is {there} here" if there else ", got another option")
        )


def _refuse_wrapped(**given: Any) -> None:
    """Refuse what Opacus' engine makes of a model, an optimizer or a loader."""
    for name, one in given.items():
        if type(one).__module__.startswith(WRAPPED):
            raise ValueError(
                f"{name}: expected the one that PrivacyEngine is given, got {type(one).__name__}, "
                "which it makes of it; make_private stands in its place"
            )


def _check_asked(model: Any, method: Any, promise: Any) -> None:
    """Refuse what no loop is made of."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    if not isinstance(method, DPSGD):
        raise ValueError(f"method: expected DPSGD(clip=…), got {shown(method)}")
    refuse_without_numbers(model)
    check_promise(promise, Table, GivenNoise)
    if isinstance(promise, Table) and (
        promise.epsilon is None or promise.bounds is not None or promise.levels is not None
    ):
        raise ValueError(f"promise: expected Table(epsilon=…, delta=…), got {shown(promise)}")
    if promise.delta is None:
        raise ValueError("promise: expected a delta beside epsilon, for the noise is Gaussian")
    if isinstance(promise, Table) and promise.person is not None:
        raise ValueError(
            "promise: expected no person column where a loader is given; say whose each record is "
            "by "
            "LoopSettings(person=People(of=…))"
        )


def _units(settings: LoopSettings, records: int) -> list[Any] | None:
    """Return the places of every unit's records; None where each record is one."""
    people = settings.person
    if people is None:
        return None
    groups = people.groups(records)
    if people.drawn == "people":
        return groups
    return [[place] for one in groups for place in one.tolist()]


def calibrated(details: PrivateTraining, epsilon: float) -> PrivateTraining:
    """Return a loop with the least noise that is (ε, δ)-differentially private, rounded up."""
    noise = least_noise(
        lambda multiplier: replace(details, noise_multiplier=multiplier).profile,
        epsilon=positive("epsilon", epsilon),
        delta=details.delta,
        start=FIRST_NOISE,
    )
    return replace(details, noise_multiplier=noise)


def make_private(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader[Any],
    method: DPSGD,
    promise: Table | GivenNoise,
    *,
    ledger: Book | None = None,
    secret: str | None = None,
    **options: Any,
) -> PrivateLoop:
    """Make a training loop of one's own private: prepare and reserve at once.

    Args:
        model: as `prepare_private` takes it.
        optimizer: as `prepare_private` takes it; it stays the one that is stepped.
        loader: as `prepare_private` takes it; ``private.loader`` stands in its place.
        method: as `prepare_private` takes it.
        promise: as `prepare_private` takes it.
        ledger: what the loop spends from, a ``tacit.Ledger``.
        secret: name of the records there.
        options: ``epochs`` and ``settings`` of `prepare_private`, ``no_budget`` of
            `PreparedLoop.begin`.

    Returns:
        The loop: ``loader``, ``backward(losses)``, ``release()``.

    Raises:
        ValueError: as `prepare_private`, or a refusal of the ledger, before anything is drawn.

    Example:
        >>> from tacit.gradients import DPSGD
        >>> model = nn.Linear(3, 2)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> data = torch.utils.data.TensorDataset(torch.randn(40, 3), torch.randint(2, (40,)))
        >>> private = make_private(
        ...     model, optimizer, DataLoader(data, batch_size=8), DPSGD(clip=1.0),
        ...     Table(epsilon=2.0, delta=1e-3), epochs=1,
        ... )
        >>> for inputs, targets in private.loader:
        ...     losses = nn.functional.cross_entropy(model(inputs), targets, reduction="none")
        ...     private.backward(losses)
        ...     optimizer.step()
        >>> private.release().details.taken
        5

    Source: Abadi et al. (2016), Algorithm 1.
    """
    no_budget = options.pop("no_budget", False)
    _check_options(options)
    prepared = prepare_private(model, optimizer, loader, method, promise, **options)
    return prepared.begin(ledger=ledger, secret=secret, no_budget=no_budget)
