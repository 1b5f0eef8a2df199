"""A training loop of one's own, privately: your optimizer, your loader, your losses."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import FrameType
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch._functorch import config as functorch

from tacit._ground.checks import integer
from tacit.gradients.batches import check_losses, refuse_mixing_among
from tacit.gradients.calibration import in_parts
from tacit.gradients.capture import reached
from tacit.gradients.model import ModelGradients, hidden
from tacit.gradients.randomness import StepRandomness
from tacit.guarantees import ApproximateDP, SuccessBound
from tacit.guarantees.base import Guarantee
from tacit.guarantees.one_line import one_line
from tacit.releases import Attack, Release
from tacit.releases.prepared import Book, check_same_release
from tacit.releases.verification import refuse_false
from tacit.runs.folder import STATE, RunFolder
from tacit.runs.identity import digest_of_tensors, identity
from tacit.training.canaries import DiracCanaries, told
from tacit.training.charges import DIGESTS, Purse, ReservedEntry
from tacit.training.loop_plan import LoopPlan
from tacit.training.loop_release import (
    BEFORE,
    KIND,
    SECRET,
    TRAINED,
    PrivateTraining,
    certified,
    note_of,
)
from tacit.training.noisy_steps import NoisySteps
from tacit.training.sampled_loader import Piece, SampledLoader
from tacit.training.sampling import BY_COINS, Places, TruncatedPoisson
from tacit.training.still import Still, inner, refuse_reducing
from tacit.training.workers import Workers, whole_of

# One backward pass keeps at most so many bytes, or times the weights, before two are taken.
KEPT, KEPT_WEIGHTS = 2**29, 2
# Of that for products of layers: what they are made of needs the rest.
PRODUCTS = 0.75
# Between the length of a record's gradient alone and among others, and what rounding may leave of
# the longest one.
APART, ROUNDED = 0.05, 1e-5
# What a stored state holds.
FIELDS = {"taken", "parameters", "optimizer", "others", "draws", "noise", "clips", "half"}


class PrivateLoop:
    """What stands beside a training loop: batches, backward passes, and what they certify.

    The optimizer's own ``step`` takes the step: before it the clipped sum of the batch gets its
    noise and becomes the gradient; without a whole batch it moves nothing.

    Attributes:
        loader: yields the batches that coins drew, one epoch a pass.
        passes: backward passes of a batch: as set, or by what the first one kept.
        stepped: whether the last ``optimizer.step()`` moved the parameters.
    """

    def __init__(
        self, prepared: LoopPlan, *, ledger: Book | None, secret: str | None, no_budget: bool
    ) -> None:
        self._prepared, self._details = prepared, prepared.details
        self._given, self._optimizer, _ = prepared.parts
        self._model, settings = inner(self._given), prepared.settings
        self._workers = Workers()
        self.passes = 1
        self.stepped, self._released, self._checked = False, False, False
        # the last step at which records were held apart, and how deep a step of the optimizer is
        self._apart, self._inside = -1, 0
        # the step that runs, and the gradients that it had noise for
        self._outer: FrameType | None = None
        self._written: dict[str, Tensor | None] = {}
        self._parameters = dict(prepared.parameters)
        self.loader = SampledLoader(prepared, self._workers)
        self._gradients = ModelGradients(
            self._model, self._parameters, room=PRODUCTS * self._most_kept()
        )
        self._steps = NoisySteps(
            self._details.method,
            self._details.noise_multiplier,
            self._parameters,
            expected=prepared.expected,
            randomness=StepRandomness(settings.seed),
            workers=self._workers,
            canaries=self._canaries(),
            factor=self._details.factor,
        )
        self._tracked: dict[str, Any] = {}
        self._others: dict[str, Any] = {}
        self._still = Still(self._model, self._parameters)
        self.loader.ready = self._check_trained
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
            self._optimizer.register_step_pre_hook(hidden(self._before)),
            self._optimizer.register_step_post_hook(hidden(self._after)),
        ]
        refuse_reducing(self._given)
        # the first batch runs back twice, for which a compiled graph must keep its buffers
        self._stack.enter_context(functorch.patch(donated_buffer=False))
        self._gradients.attach()

    def __repr__(self) -> str:
        told = "; ".join(one_line(held).text for held in self.guarantees)
        return f"<PrivateLoop: {self.taken} of {self._details.schedule.steps} steps\n  {told}>"

    @property
    def epochs(self) -> Iterator[int]:
        """The epochs that are left, from 0: of a loop that is taken up, from where it stands."""
        while self.loader.taken < self._details.schedule.steps:
            yield self.loader.taken // len(self.loader)

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """What all steps together are certified for, with what their passes showed so far."""
        if self._gradients.half:
            return certified(replace(self._details, half=True))
        return self._prepared.guarantees

    @property
    def taken(self) -> int:
        """Steps that were taken."""
        return self.loader.taken

    @property
    def clip(self) -> float:
        """The norm that the next step clips to; what moved it was noised, and may be published."""
        return self._steps.clip

    @property
    def clips(self) -> tuple[float, ...]:
        """What every trained parameter is clipped to next, in their order; one of all if joint."""
        held = self._steps.clips
        return (self.clip,) if held is None else held.norms

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
            losses: (B,), one for each record of the batch that the loader gave, divided by no size
                of it, which follows from the others.

        Raises:
            ValueError: a mean, another number of losses, a second backward pass of a batch, losses
                that depend on other records, or a loop that is over: an error of a pass ends it.
        """
        self._refuse_over()
        refuse_mixing_among(self._still.modules.named())
        self._check_trained()
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
        if self._gradients.count != losses.shape[0]:
            # each row is clipped by itself: a record of several would add up to C for each
            raise ValueError(
                "losses: expected one loss for each row that passed through the model, got "
                f"{losses.shape[0]} losses of {self._gradients.count} rows; a record has one row, "
                "and what is made of it another dimension of that"
            )
        self._hold_apart(losses)
        piece = self.loader.done()
        try:
            self._add(losses, piece)
        except BaseException:
            # whether records pass may depend on them: no step goes on without those of this batch
            self.close()
            raise

    def _hold_apart(self, losses: Tensor) -> None:
        """Run losses back alone where it is their turn, in every process as often.

        Raises:
            ValueError: one depends on another record.
        """
        places: Sequence[int] = ()
        # one record alone shows nothing
        if losses.shape[0] > 1 and (self._gradients.untried or self._due):
            # of a layer that no pass reached before, such as an expert that only some tokens go
            # to, every record is looked at
            turn = (self.loader.taken % len(losses),)
            places = range(len(losses)) if self._gradients.untried else turn
        most = len(places)
        if any(in_parts(one) for one in self._parameters.values()):
            # a way back asks every process for its parts: all take as many
            most = int(self._workers.largest(torch.tensor(most)))
        if not most:
            return
        self._refuse_coupled(losses, places)
        for _ in range(most - len(places)):
            self._gradients.norms_alone(losses[:1])
        if places:
            self._gradients.rely()
            self._apart = self.loader.taken

    @property
    def _due(self) -> bool:
        """Whether records are held apart again: at the first batch of steps 0, 1, 2, 4, 8 …

        A loss may begin to read other records at any step, and each time costs two backward passes.
        Processes that share a step try it once: how many records each has differs.
        """
        taken = self.loader.taken
        if self._apart < 0 or self._workers.size > 1:
            return self._apart < 0
        return taken > self._apart and taken & (taken - 1) == 0

    def _add(self, losses: Tensor, piece: Piece) -> None:
        """Add what the records of a batch give, clipped, to the sum of the step."""
        owners = None
        if piece.owners is not None:
            # of a person its records add up before they are clipped
            owners = torch.tensor(piece.owners)

        def factors(norms: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return self._steps.factors(norms, counted=piece.counted > 0)

        asked = self._prepared.settings.passes
        if (self.passes if self._checked else asked) == 2:
            sums = self._gradients.sums_twice(losses, factors, owners)
            if not self._checked:
                self._refuse_unseen(losses, set(sums))
                self.passes = 2
            self._steps.add(sums)
            self._gradients.forget()
            return
        self._gradients.backward(losses)
        if not self._gradients.found:
            raise ValueError(
                "losses: expected losses that depend on what is trained, got other values"
            )
        if not self._checked:
            self._refuse_unseen(losses, set(self._gradients.found))
            self.passes = self._pilot()
        if owners is not None:
            self._gradients.join(owners)
        self._steps.add(self._gradients.sums(factors(self._gradients.squared_norms())))
        self._gradients.forget()

    def _pilot(self) -> int:
        """Return how many backward passes a batch takes, by what the first one kept."""
        asked = self._prepared.settings.passes
        if asked is not None:
            return asked
        much = self._gradients.kept() > self._most_kept()
        # batches differ from process to process, and all run back as often
        return 2 if bool(self._workers.largest(torch.tensor(int(much)))) else 1

    def _most_kept(self) -> int:
        """Return how many bytes of gradients one backward pass may keep."""
        weights = sum(one.numel() * one.element_size() for one in self._parameters.values())
        return max(KEPT_WEIGHTS * weights, KEPT)

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
        attacks, remarks = self._audited()
        details = replace(
            self._details,
            taken=self.loader.taken,
            seen_again=self._gradients.again,
            last_clip=None if self._steps.clips is None else self.clip,
            half=self._gradients.half,
        )
        guarantees = certified(details)
        release = Release(
            kind=KIND,
            title=f"a {type(self._model).__name__} trained in a loop of its own",
            secret=SECRET.format(unit=details.unit),
            method=details.method.name,
            guarantees=guarantees,
            details=details,
            reproducible=settings.seed is not None,
            seed=settings.seed,
            digests=((TRAINED, self._digest()), (BEFORE, self._still.model)),
            notes=(note_of(details, guarantees),),
            attacks=attacks,
            remarks=remarks,
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

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a private loop cannot be copied or pickled: one reservation is one release; store it "
            "by LoopSettings(checkpoint=…), and average or copy the model"
        )

    def _check_trained(self) -> None:
        self._still.check_trained(alone=self._workers.size == 1)

    def _canaries(self) -> DiracCanaries | None:
        """Return the canaries of an audit, which are drawn as records are."""
        settings, work = self._prepared.settings, self.loader.work
        if settings.audit is None:
            return None
        # a stream of its own; whatever else is limited in a step, canaries are not
        draws, coins = settings.sampling, StepRandomness(settings.seed)
        if isinstance(draws, TruncatedPoisson):
            draws = BY_COINS

        def drawn(step: int, count: int) -> Tensor:
            places = Places(count, -(-count // work.each))
            return draws.drawn(range(step, step + 1), places, work, coins)[0]

        return DiracCanaries.of(settings.audit, self._parameters, drawn, settings.seed)

    def _audited(self) -> tuple[tuple[Attack, ...], tuple[str, ...]]:
        """Return how often the canaries' coins are guessed, and what that proves."""
        canaries, delta = self._steps.canaries, self._details.delta
        if canaries is None or not self._workers.first:
            return (), ()
        bound = next(one for one in self.guarantees if isinstance(one, SuccessBound))
        held = next(one for one in self.guarantees if isinstance(one, ApproximateDP))
        return (canaries.attack(bound.task),), (told(canaries.audit(delta), held),)

    def _digest(self) -> str:
        return digest_of_tensors(
            (name, whole_of(one)) for name, one in sorted(self._parameters.items())
        )

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        # an optimizer may call the step of its parent: that has the same sum, and is the same step
        if not self._amid_step():
            self._noise_step(optimizer, args, kwargs)
            self._inside, self._outer = 0, inspect.currentframe()
            # the step's own frame: beyond this one and what hides it from a compiler
            while self._outer is not None and _hides(self._outer):
                self._outer = self._outer.f_back
        self._inside += 1

    def _amid_step(self) -> bool:
        """Whether the step that had its noise last is still running, further up."""
        frame = inspect.currentframe()
        while frame is not None and frame is not self._outer:
            frame = frame.f_back
        return self._inside > 0 and frame is not None

    def _noise_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Give a complete step its noise; nothing is seen before."""
        self.stepped = False
        # the first argument is the optimizer itself
        if any(one is not None for one in (*args[1:], kwargs.get("closure"))):
            raise ValueError("optimizer: expected step() without a closure, which runs it again")
        held = {id(one) for group in optimizer.param_groups for one in group["params"]}
        own = {id(one) for one in self._parameters.values()}
        if own - held:
            raise ValueError("optimizer: expected the parameters that it had, got fewer")
        for group in optimizer.param_groups:
            for one in group["params"]:
                # what anything else wrote there is no noised sum
                one.grad = None
        if self._written:
            # an error ended the step that had its noise: it has no other
            for name, one in self._parameters.items():
                one.grad = self._written[name]
            self.stepped = True
            return
        if not self.loader.complete:
            return
        if self.loader.taken >= self._details.schedule.steps:
            raise ValueError(
                f"optimizer: expected at most the {self._details.schedule.steps} steps that are "
                "paid for, got another"
            )
        self._still.check()
        self._purse.mark_drawn()
        try:
            self._steps.write(self.loader.taken)
        except BaseException:
            # some sums have their noise and are gone: no second draw stands for them
            self.close()
            raise
        self._written = {name: one.grad for name, one in self._parameters.items()}
        self.stepped = True

    def _after(self, *_: Any) -> None:
        self._inside -= 1
        if self._inside > 0:
            return
        self._outer, self._written = None, {}
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
                "draws": self.loader.coins.key,
                # secret as the records are, for good: beside the iterates it tells their sums
                "noise": {
                    name: (one.before, one.buffers) for name, one in self._steps.tied.items()
                },
                "clips": None if self._steps.clips is None else list(self._steps.clips.norms),
                "half": self._gradients.half,
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
            self._gradients.half = bool(state["half"])
            self._steps.take_up(state["noise"])
            # an epoch that was begun goes on with its own draw
            self.loader.coins.key = int(state["draws"])
            if self._steps.clips is not None:
                self._steps.clips = replace(self._steps.clips, norms=tuple(state["clips"]))
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
                details.sampling,
                details.person,
                details.factor,
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
            raise ValueError(
                "private: expected a loop that goes on, got one that was released, closed or ended "
                "by an error"
            )

    def _refuse_coupled(self, losses: Tensor, places: Iterable[int]) -> None:
        """Refuse losses of which one depends on another record, seen on some losses' way back.

        Raises:
            ValueError: they do, or what a loss gives its record is another where others are there.
        """
        # ‖G_i‖ of every record, all losses run back together
        beside = _lengths(self._gradients.norms_alone(losses), losses)
        for place in places:
            norms = self._gradients.norms_alone(losses[place : place + 1])
            for name, held in norms.items():
                # every row but its own is of a record that this loss is not of
                others = torch.cat([held[:place], held[place + 1 :]])
                if bool((others > 0.0).any()) and bool(held.isfinite().all()):
                    raise ValueError(
                        "losses: expected losses that depend on their own record alone, got one "
                        f"with a gradient of another record at {name}"
                    )
            # a way back may join records that no loss does: a hook that scales by a norm of all
            alone, among = float(_lengths(norms, losses)[place]), float(beside[place])
            largest = float(torch.where(beside.isfinite(), beside, 0.0).amax())
            off = abs(alone - among)
            if off > APART * max(alone, among) + ROUNDED * largest and math.isfinite(off):
                raise ValueError(
                    "losses: expected gradients of a record that depend on that record alone, got "
                    "another length where the losses of others are run back beside it"
                )

    def _refuse_unseen(self, losses: Tensor, seen: set[str]) -> None:
        """Refuse a parameter that the losses depend on and no watched module gave gradients of.

        Raises:
            ValueError: there is one, such as a weight that a loss reads itself.
        """
        names = {id(one): name for name, one in self._parameters.items()}
        unseen = reached(losses.grad_fn, names, None) - seen
        if unseen:
            raise ValueError(
                "losses: expected losses of what the model returned, got some that depend on "
                f"{sorted(unseen)[0]} in another way; compute them from the outputs"
            )
        self._checked = True


def _hides(frame: FrameType) -> bool:
    """Whether a frame is of this module, or of what leaves a function to Python."""
    name = str(frame.f_globals.get("__name__"))
    return name == __name__ or name.startswith("torch._dynamo.")


def _lengths(norms: Mapping[str, Tensor], losses: Tensor) -> Tensor:
    """Return (B,) ‖G_i‖ over all parameters that losses (B,) reach, of ‖G_i‖² by name."""
    nothing = torch.zeros(len(losses), dtype=torch.float64, device=losses.device)
    return torch.stack([nothing, *(held.to(nothing) for held in norms.values())]).sum(dim=0).sqrt()
