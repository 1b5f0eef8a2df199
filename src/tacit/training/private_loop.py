"""A training loop of one's own, privately: your optimizer, your loader, your losses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch._functorch import config as functorch
from torch.utils.data import DataLoader

from tacit._ground.checks import integer
from tacit._ground.reprs import shown
from tacit._ground.values import Count, Spelled, Within, value
from tacit.gradients.adaptive import AdaptiveDPSGD
from tacit.gradients.batches import check_losses, refuse_mixing
from tacit.gradients.capture import reached
from tacit.gradients.given import GivenNoise
from tacit.gradients.methods import DPSGD, Schedule, StepLayer
from tacit.gradients.model import ModelGradients
from tacit.gradients.randomness import StepRandomness
from tacit.guarantees.base import Guarantee
from tacit.releases import Release, Table
from tacit.releases.prepared import Book, check_same_release
from tacit.releases.promises import check_promise
from tacit.releases.verification import refuse_false
from tacit.runs.folder import STATE, RunFolder
from tacit.runs.identity import digest_of_tensors, identity
from tacit.training.charges import DIGESTS, Purse, ReservedEntry
from tacit.training.loop_release import (
    BEFORE,
    KIND,
    PUBLISHED,
    SECRET,
    TRAINED,
    PrivateTraining,
    certified,
)
from tacit.training.sampled_loader import SampledLoader, check_loader
from tacit.training.still import Still, inner, refuse_reducing, trained_parameters
from tacit.training.workers import Workers, shard_like, whole_of

# What a stored state holds.
FIELDS = {"taken", "parameters", "optimizer", "others", "clip"}


@value
class LoopSettings:
    """What is asked of a training loop beside its method, its promise and its length.

    Args:
        micro_batch: Records that pass through the model together, at most; a step is then several
            batches, of which the optimizer moves with the last. All of a step when left out.
        sampling_rate: Probability of each record in a step, declared without looking at the
            records; the batch size over their number when left out, which is then public.
        checkpoint: Folder that survives a crash: the same call goes on from it.
        every: Steps between two stored states.
        about: What makes the run what it is beside its settings, such as a digest of the data.
        seed: Of coins and noise: it voids the guarantee.
    """

    micro_batch: Count | None = None
    sampling_rate: Annotated[float, Within(0, 1, "(]")] | None = None
    checkpoint: Annotated[Any, Spelled("FOLDER", str)] = None
    every: Count = 100
    about: Any = None
    seed: int | None = None

    def _together(self) -> None:
        if self.seed is not None:
            integer("seed", self.seed, minimum=0)


AS_USUAL = LoopSettings()


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedLoop:
    """A loop whose guarantees are known before its first step; nothing is spent or changed.

    Attributes:
        guarantees: what it will be certified for, the headline first.
        spends: what the ledger counts.
        description: what is trained, for the ledger.
        details: all that the certificate follows from.
        parts: the model, the optimizer and the loader.
        settings: as given.
        expected: records expected in a step.
        parameters: what is trained, by name.
    """

    guarantees: tuple[Guarantee, ...]
    spends: tuple[Guarantee, ...]
    description: str
    details: PrivateTraining
    parts: tuple[nn.Module, torch.optim.Optimizer, DataLoader[Any]] = field(repr=False)
    settings: LoopSettings
    epochs: int
    expected: float
    parameters: Mapping[str, nn.Parameter] = field(repr=False)

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
        method: ``DPSGD(clip=…)``, or ``AdaptiveDPSGD(clip=…)``, whose clip follows the gradients.
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
    if not isinstance(model, nn.Module):
        raise ValueError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(f"optimizer: expected one of torch.optim, got {type(optimizer).__name__}")
    if not isinstance(method, DPSGD):
        raise ValueError(f"method: expected DPSGD(clip=…), got {shown(method)}")
    check_promise(promise, Table, GivenNoise)
    if isinstance(promise, Table) and (
        promise.epsilon is None or promise.bounds is not None or promise.levels is not None
    ):
        raise ValueError(f"promise: expected Table(epsilon=…, delta=…), got {shown(promise)}")
    if isinstance(promise, Table) and promise.person is not None:
        raise ValueError(
            "promise: expected one about records, got one about people; give every person one "
            "record of the loader"
        )
    passes = integer("epochs", epochs, minimum=1)
    count, batch = check_loader(loader)
    workers = Workers()
    # each process passes a batch of its own
    batch *= workers.size
    if batch > count and settings.sampling_rate is None:
        raise ValueError(
            f"loader: expected a batch of at most the {count} records there are, got {batch}"
        )
    refuse_mixing(inner(model))
    parameters = trained_parameters(inner(model), optimizer)
    share = batch / count if settings.sampling_rate is None else settings.sampling_rate
    each = -(-count // batch) if settings.sampling_rate is None else round(1.0 / share + 0.499999)
    schedule = Schedule(
        sampling_rate=share,
        steps=passes * each,
        dims=tuple(int(one.shape[-1]) if one.ndim else 1 for one in parameters.values()),
        adjacency=promise.adjacency,
    )
    if isinstance(promise, GivenNoise):
        noise, delta = promise.multiplier, promise.delta
    else:
        if promise.delta is None:
            raise ValueError("promise: expected a delta beside epsilon, for the noise is Gaussian")
        assert promise.epsilon is not None
        delta = promise.delta
        noise = method.noise_multiplier(promise.epsilon, delta, schedule)
    details = PrivateTraining(
        method=method,
        schedule=schedule,
        noise_multiplier=noise,
        delta=delta,
        parameters=tuple(parameters),
        records=count if settings.sampling_rate is None else None,
    )
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
        parameters=parameters,
    )


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
    prepared = prepare_private(model, optimizer, loader, method, promise, **options)
    return prepared.begin(ledger=ledger, secret=secret, no_budget=no_budget)


class PrivateLoop:
    """What stands beside a training loop: batches, backward passes, and what they certify.

    The optimizer's own ``step`` takes the step: before it the clipped sum of the batch gets its
    noise and becomes the gradient; without a whole batch it moves nothing.

    Attributes:
        loader: yields the batches that coins drew, one epoch a pass.
        stepped: whether the last ``optimizer.step()`` moved the parameters.
    """

    def __init__(
        self, prepared: PreparedLoop, *, ledger: Book | None, secret: str | None, no_budget: bool
    ) -> None:
        self._prepared, self._details = prepared, prepared.details
        self._given, self._optimizer, loader = prepared.parts
        self._model, settings = inner(self._given), prepared.settings
        self._workers = Workers()
        self.stepped, self._released, self._checked = False, False, False
        self._parameters = dict(prepared.parameters)
        self.loader = SampledLoader(
            loader,
            sampling_rate=self._details.schedule.sampling_rate,
            steps=self._details.schedule.steps,
            epochs=prepared.epochs,
            micro_batch=settings.micro_batch,
            seed=settings.seed,
            workers=self._workers,
        )
        self._gradients = ModelGradients(self._model, self._parameters)
        self._randomness = StepRandomness(settings.seed)
        # its clip moves where it follows the gradients
        self._method = self._details.method
        self._sums: dict[str, Tensor] = {}
        self._whole: Tensor | None = None
        self._tracked: dict[str, Any] = {}
        self._others: dict[str, Any] = {}
        self._still = Still(self._model, self._parameters)
        entries = (
            [] if secret is None else [ReservedEntry(secret, prepared.spends, prepared.description)]
        )
        self._purse = Purse(
            ledger, entries, reproducible=settings.seed is not None, no_budget=no_budget
        )
        self._stack = ExitStack()
        self._folder: RunFolder | None = None
        self._reserve(paid=ledger is not None)
        self._handles = [
            self._optimizer.register_step_pre_hook(self._before),
            self._optimizer.register_step_post_hook(self._after),
        ]
        refuse_reducing(self._given)
        # the first batch runs back twice, for which a compiled graph must keep its buffers
        self._stack.enter_context(functorch.patch(donated_buffer=False))
        self._gradients.attach()

    @property
    def epochs(self) -> Iterator[int]:
        """The epochs that are left, from 0: of a loop that is taken up, from where it stands."""
        while self.loader.taken < self._details.schedule.steps:
            yield self.loader.taken // len(self.loader)

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """What all steps together are certified for."""
        return self._prepared.guarantees

    @property
    def taken(self) -> int:
        """Steps that were taken."""
        return self.loader.taken

    @property
    def clip(self) -> float:
        """The norm that the next step clips to; what moved it was noised, and may be published."""
        return self._method.clip

    def track(self, **parts: Any) -> None:
        """Keep what else goes on after a crash, such as a scheduler, in the checkpoint.

        Args:
            parts: with ``state_dict`` and ``load_state_dict``, by name; put where the stored
                state has them.
        """
        for name, one in parts.items():
            self._tracked[name] = one
            if name in self._others:
                one.load_state_dict(self._others[name])

    def backward(self, losses: Tensor) -> None:
        """Run the losses of a batch back, each by itself: clip and add up what it gives.

        Args:
            losses: (B,), one for each record of the batch that the loader gave.

        Raises:
            ValueError: a mean, another number of losses, a second backward pass of a batch, losses
                that depend on other records, or a loop that is over.
        """
        self._refuse_over()
        refuse_mixing(self._model)
        current = self.loader.current
        count = None if current is None else len(current.records)
        if isinstance(losses, Tensor) and losses.ndim == 0:
            raise ValueError(
                "losses: expected one loss per example, of which each is clipped, got one number; "
                'give reduction="none" instead of a mean'
            )
        check_losses("losses", losses, count)
        if not losses.requires_grad:
            raise ValueError("losses: expected losses that depend on the model, got none that does")
        if not self._checked:
            self._refuse_coupled(losses)
        piece = self.loader.done()
        self._gradients.backward(losses)
        if not self._gradients.found:
            raise ValueError("losses: expected losses that depend on what is trained, got others")
        if not self._checked:
            self._refuse_unseen(losses)
        self._add(piece.counted)
        self._gradients.found = {}

    def release(self) -> Release[PrivateTraining]:
        """Close the loop: store the release beside its cost and return it.

        Raises:
            ValueError: closed before, a batch without its step, or a frozen parameter or a buffer
                that moved.
        """
        self._refuse_over()
        self.loader.refuse_waiting()
        self._still.check_values()
        settings = self._prepared.settings
        adaptive = isinstance(self._method, AdaptiveDPSGD)
        details = replace(
            self._details,
            taken=self.loader.taken,
            seen_again=self._gradients.again,
            last_clip=self.clip if adaptive else None,
        )
        release = Release(
            kind=KIND,
            title=f"a {type(self._model).__name__} trained in a loop of its own",
            secret=SECRET,
            method=details.method.name,
            guarantees=certified(details),
            details=details,
            reproducible=settings.seed is not None,
            seed=settings.seed,
            digests=((TRAINED, self._digest()), (BEFORE, self._still.model)),
            notes=(PUBLISHED,),
        )
        refuse_false(release)
        # the ledger closes with these parameters
        error: BaseException | None = None
        if self._workers.first:
            try:
                self._purse.commit(release.published())
            except ValueError as refused:
                error = refused
        self._workers.together(error)
        self.close()
        return release

    def close(self) -> None:
        """Leave the model and the optimizer as they were before, but for what was trained."""
        self._released = True
        self._gradients.detach()
        for handle in self._handles:
            handle.remove()
        self._stack.close()

    def _digest(self) -> str:
        return digest_of_tensors(
            (name, whole_of(one)) for name, one in sorted(self._parameters.items())
        )

    def _add(self, counted: int) -> None:
        """Clip what every record gives, and add it to the sum of the step."""
        method = self._method
        # no less than the norms of what is summed
        whole = method.factors(self._gradients.squared_norms())
        if counted and isinstance(method, AdaptiveDPSGD):
            found = method.whole(whole)
            self._whole = found if self._whole is None else self._whole + found
        factors = method.lowered(whole)
        if not counted:
            # a record that stands for none
            factors = {name: torch.zeros_like(one) for name, one in factors.items()}
        for name, total in self._gradients.sums(factors).items():
            self._sums[name] = self._sums[name].add_(total) if name in self._sums else total

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Give a complete step its noise; nothing is seen before."""
        self.stepped = False
        # the first argument is the optimizer itself
        if args[1:] or kwargs.get("closure") is not None:
            raise ValueError("optimizer: expected step() without a closure, which runs it again")
        held = {id(one) for group in optimizer.param_groups for one in group["params"]}
        own = {id(one) for one in self._parameters.values()}
        if own - held:
            raise ValueError("optimizer: expected the parameters that it had, got fewer")
        for group in optimizer.param_groups:
            for one in group["params"]:
                # what anything else wrote there is no noised sum
                one.grad = None
        if not self.loader.complete:
            return
        if self.loader.taken >= self._details.schedule.steps:
            raise ValueError(
                f"optimizer: expected at most the {self._details.schedule.steps} steps that are "
                "paid for, got another"
            )
        self._still.check()
        self._purse.mark_drawn()
        self._noised()
        self.stepped = True

    def _noised(self) -> None:
        """Write ``(Σ c_i G_i + s C E) / (q n)`` into every gradient, on the grid of the noise."""
        method, expected = self._method, self._prepared.expected
        std = self._details.noise_multiplier * method.noise_scale
        for place, (name, parameter) in enumerate(self._parameters.items()):
            total = self._sums.pop(name, None)
            if total is None:
                # no record reached it, and its noise is there all the same
                total = torch.zeros(parameter.shape, dtype=torch.float64, device=parameter.device)
            # the sum over all processes; the first adds the noise, once
            total = self._workers.total(total.contiguous())
            if self._workers.first:
                layer = StepLayer(total, None, self._randomness.normal(self.loader.taken, place))
                total = method.noised(total, layer, std)
            total = self._workers.from_first(total.contiguous())
            # by the records that are expected, never by those that came
            parameter.grad = shard_like(parameter, total / expected)
        if isinstance(method, AdaptiveDPSGD):
            self._move_clip(method)

    def _move_clip(self, method: AdaptiveDPSGD) -> None:
        """Move the clip by the count of records that were left whole, with its noise."""
        count, self._whole = self._whole, None
        if count is None:
            device = next(iter(self._parameters.values())).device
            count = torch.zeros(1, dtype=torch.float64, device=device)
        count = self._workers.total(count)
        if self._workers.first:
            # a stream of its own: that behind the last parameter's
            normal = self._randomness.normal(self.loader.taken, len(self._parameters))
            std = method.count_deviation(self._details.noise_multiplier)
            count = method.noised(count, StepLayer(count, None, normal), std)
        count = self._workers.from_first(count)
        moved = method.moved(float(count), self._prepared.expected)
        self._method = moved.within(self._details.method.clip)

    def _after(self, *_: Any) -> None:
        if not self.stepped:
            return
        for one in self._parameters.values():
            one.grad = None
        self.loader.stepped()
        every = self._prepared.settings.every
        if self.loader.taken % every == 0 or self.loader.taken == self._details.schedule.steps:
            self.save()

    def save(self) -> None:
        """Store where the loop stands, between two steps; nothing without a checkpoint."""
        if self._folder is None:
            return
        self._folder.save(
            {
                "taken": self.loader.taken,
                "parameters": {n: one.detach().clone() for n, one in self._parameters.items()},
                "optimizer": self._optimizer.state_dict(),
                "others": {name: one.state_dict() for name, one in self._tracked.items()},
                "clip": self.clip,
            }
        )

    def _reserve(self, *, paid: bool) -> None:
        """Reserve what all steps spend, or go on with what was reserved when the loop began."""
        place = self._prepared.settings.checkpoint
        error: BaseException | None = None
        if self._workers.first:
            try:
                if place is None:
                    self._purse.reserve()
                else:
                    self._take_up(place, paid=paid)
            except (ValueError, RuntimeError) as refused:
                self._stack.close()
                error = refused
        self._workers.together(error)
        if place is not None and self._workers.size > 1:
            raise ValueError("checkpoint: expected one process, got several; store from your loop")

    def _take_up(self, place: Any, *, paid: bool) -> None:
        folder = RunFolder(place, {"run": KIND, **self._identity()}, fields=FIELDS)
        self._stack.enter_context(folder.alone())
        if not (folder.places() or (folder.folder / STATE).exists()):
            try:
                self._purse.reserve(folder)
            except BaseException:
                folder.forget()
                raise
        elif paid and not folder.places():
            raise ValueError("ledger: expected none for a loop that was begun without, got one")
        else:
            self._purse.take_up(folder)
        self._folder, state = folder, folder.state()
        if state is not None:
            with torch.no_grad():
                for name, one in self._parameters.items():
                    one.copy_(state["parameters"][name])
            self._optimizer.load_state_dict(state["optimizer"])
            self.loader.taken = integer(
                "checkpoint.taken",
                state["taken"],
                minimum=0,
                maximum=self._details.schedule.steps,
            )
            self._others = dict(state["others"])
            self._method = replace(self._method, clip=state["clip"])
        else:
            # what is stored first says that the loop was begun
            self.save()
        if self._purse.closed is not None:
            # its own release may be told again, no other be made
            digests = [[TRAINED, self._digest()], [BEFORE, self._still.model]]
            check_same_release(self._purse.closed, {"digests": digests}, DIGESTS)

    def _identity(self) -> dict[str, str]:
        """Return the digests of what the loop is: its mechanism, its model and what is told."""
        details, settings = self._details, self._prepared.settings
        return {
            "mechanism": identity(
                details.method,
                details.schedule,
                details.noise_multiplier,
                details.parameters,
                self._prepared.expected,
                settings.seed,
            ),
            "optimizer": identity(type(self._optimizer).__name__),
            "model": self._still.model,
            "about": identity(settings.about),
            "ledger": identity(self._purse.declared()),
        }

    def _refuse_over(self) -> None:
        if self._released:
            raise ValueError("private: expected a loop that goes on, got one that was released")

    def _refuse_coupled(self, losses: Tensor) -> None:
        """Refuse losses of which one depends on another record, seen on the first one's way back.

        Raises:
            ValueError: they do.
        """
        if losses.shape[0] > 1:
            self._gradients.backward(losses[:1], keep=True)
            norms = self._gradients.squared_norms() if self._gradients.found else {}
            for name, held in norms.items():
                # every row but the first is of a record that this loss is not of
                if bool((held[1:] > 0.0).any()) and bool(held.isfinite().all()):
                    raise ValueError(
                        "losses: expected losses that depend on their own record alone, got the "
                        f"first one with a gradient of another record at {name}"
                    )

    def _refuse_unseen(self, losses: Tensor) -> None:
        """Refuse a parameter that the losses depend on and no watched module gave gradients of.

        Raises:
            ValueError: there is one, such as a weight that a loss reads itself.
        """
        names = {id(one): name for name, one in self._parameters.items()}
        unseen = reached(losses.grad_fn, names, None) - set(self._gradients.found)
        if unseen:
            raise ValueError(
                "losses: expected losses of what the model returned, got some that depend on "
                f"{sorted(unseen)[0]} in another way; compute them from the outputs"
            )
        self._checked = True
