"""A prepared run from its reservation to its adapter, through crashes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tacit._ground.files import absolute, check_room
from tacit.adapters.layers import AdapterLayer, Attached, check_frozen
from tacit.adapters.proof import Frozen
from tacit.adapters.release import ADAPTER, MODEL, TrainedAdapter
from tacit.adapters.saving import (
    Factors,
    bytes_of_adapter,
    check_reloaded,
    copy_before,
    digest_of_factors,
    factors_of,
    read_adapter,
    write_adapter,
)
from tacit.adapters.steps import AdapterSteps
from tacit.adapters.tasks import Rows, select
from tacit.codec import public
from tacit.measured import Interval
from tacit.releases import Prepared, Release, Use
from tacit.releases.prepared import Book, check_same_release
from tacit.releases.verification import refuse_false
from tacit.runs.folder import STATE, RunFolder
from tacit.runs.loop import SECONDS_BETWEEN_STATES, STATE_FIELDS, Loop
from tacit.runs.run import Run
from tacit.training.charges import DIGESTS, Purse, ReservedEntry
from tacit.training.retraining import mean_of, share_of

# Records that the reloaded adapter is tried on, and that are measured in one pass.
PROBES, TOGETHER = 4, 64
# Of declarations, headers and releases, in bytes.
SMALL_FILES = 1 << 16


@dataclass(frozen=True, eq=False)
class Quality:
    """Losses of records that are not private, and which of them were named right.

    Attributes:
        losses: (n,) nats.
        right: (n,) truth values; None where nothing is named.
    """

    losses: Tensor
    right: Tensor | None

    @staticmethod
    def of(steps: AdapterSteps, rows: Rows) -> Quality:
        """Measure a model as it is now on some records."""
        losses, right = [], []
        with torch.no_grad():
            for part in torch.split(torch.arange(len(next(iter(rows.values())))), TOGETHER):
                some = select(rows, part, steps.device)
                outputs = steps.task.outputs(steps.model, some)
                losses.append(steps.task.losses(outputs, some).double().cpu())
                answers = steps.task.answers(some)
                if answers is not None and outputs.ndim == 2:
                    right.append((outputs.argmax(dim=1) == answers).double().cpu())
        return Quality(torch.cat(losses), torch.cat(right) if right else None)

    def uses(self) -> tuple[Use, ...]:
        """Return both as a release has them."""
        loss = _mean(self.losses)
        uses = [Use(name="held-out loss", unit="nats", better="lower", measured=loss)]
        if self.right is not None:
            right = share_of(int(self.right.sum()), len(self.right))
            uses.append(Use(name="accuracy", unit="share", better="higher", measured=right))
        return tuple(uses)

    def describe(self) -> str:
        """Return both in words."""
        words = f"held-out loss {float(self.losses.mean()):.3f} nats"
        return words if self.right is None else f"{words}, accuracy {float(self.right.mean()):.1%}"


def _mean(values: Tensor) -> Interval:
    if len(values) < 2:
        only = float(values.mean())
        return Interval(value=only, low=only, high=only)
    return mean_of(values.numpy())


@dataclass(kw_only=True, eq=False)
class AdapterRun:
    """What a run needs beside its steps.

    Attributes:
        steps: what they do.
        attached: the adapter's hooks on a plain module.
        before: (out, in) weights as they were, where they are trained themselves.
        identity: digests of what the run is.
        run: how long it goes, and where it is kept.
        released: makes the release of an adapter's digest and the quality before training.
        held_out: records to measure on; None for none.
        save: where the adapter goes; None for nowhere.
        base: name of the model.
    """

    steps: AdapterSteps
    attached: Attached
    before: dict[str, Tensor]
    identity: Mapping[str, str]
    run: Run
    released: Callable[[str, Quality | None], Release[TrainedAdapter]]
    held_out: Rows | None
    save: Path | None
    base: str | None

    def open(self, stack: ExitStack) -> Loop:
        """Return the steps that are left: of a run that was begun, from where it stands.

        Args:
            stack: holds the folder of a checkpoint against other processes.
        """
        # what is trainable now is what was certified
        check_frozen(self.steps.model, self.steps.layers)
        place = self.run.checkpoint
        # a full disk is told before anything is spent
        self._check_room()
        if place is None or not absolute("checkpoint", place).exists():
            self._check_save()
        folder = None
        if place is not None:
            folder = RunFolder(place, {"run": "adapter", **self.identity}, fields=STATE_FIELDS)
            stack.enter_context(folder.alone())
        # goes on from the stored state, if there is one
        loop = Loop(
            self.run,
            {"adapter": self},
            title="training",
            folder=folder,
            every=SECONDS_BETWEEN_STATES,
        )
        self._check_save()
        return loop

    def state_dict(self) -> dict[str, Any]:
        """Return what goes on from here: the steps, A, and the weights before."""
        # A is random: it is part of the state
        layers = self.steps.layers
        factors = {one.name: one.matrix_a for one in layers if one.matrix_a is not None}
        return {
            "steps": self.steps.state_dict(),
            "projections": {name: held.clone() for name, held in factors.items()},
            "before": self.before,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a stored state."""
        for layer in self.steps.layers:
            if layer.matrix_a is not None:
                # the A of the process before, or B would belong to another
                layer.matrix_a.copy_(state_dict["projections"][layer.name])
        self.steps.load_state_dict(state_dict["steps"])
        self.before = dict(state_dict["before"])

    def _check_room(self) -> None:
        """Refuse a full disk before anything is spent; a run that was begun has its files."""
        layers = self.steps.layers
        if self.run.checkpoint is not None:
            place = absolute("checkpoint", self.run.checkpoint)
            if (place / STATE).exists():
                return
            # the last state and the next, each with two moments of Adam
            check_room("checkpoint", place, 2 * _bytes_of_state(layers) + SMALL_FILES)
        if self.save is not None and not self.save.exists():
            check_room("save", self.save.parent, bytes_of_adapter(layers) + SMALL_FILES)

    def _check_save(self) -> None:
        """Refuse a folder that holds anything but what a finished run wrote before it was told."""
        if self.save is None or not self.save.exists():
            return
        finished = self._finished_digest()
        if finished is None or finished != dict(read_adapter(self.save).digests)[ADAPTER]:
            raise ValueError(
                f"save: expected a folder that does not exist yet, got {self.save} with something "
                "else than this run's adapter"
            )

    def _finished_digest(self) -> str | None:
        """Return the digest of the adapter of a run that is at its end; None before."""
        if self.steps.taken != self.steps.mechanism.steps:
            return None
        return digest_of_factors(factors_of(self.steps.layers, self.before))

    def check_open(self, purse: Purse) -> None:
        """Refuse to train on what the ledger has closed; its own adapter may still be saved.

        Raises:
            ValueError: the reservation was committed for another adapter.
        """
        if purse.closed is not None:
            # its own adapter may be saved again, no other be made
            digests = [[ADAPTER, self._finished_digest()], [MODEL, self.identity["model"]]]
            check_same_release(purse.closed, {"digests": digests}, DIGESTS)

    def rehearse(self) -> None:
        """Write a random adapter, load it with peft and compare, before anything is spent.

        Raises:
            ValueError: the outputs differ, as where a weight is used twice; it cannot be written.
        """
        if self.steps.taken:
            return
        # a random change of every layer, taken back afterwards
        trained = [layer.trained for layer in self.steps.layers]
        starts = [one.detach().clone() for one in trained]
        source = torch.Generator().manual_seed(0)
        self.attached.on()
        try:
            with torch.no_grad():
                for one in trained:
                    first, second = (torch.randn(size, generator=source) for size in one.shape)
                    scale = float(one.float().std()) or 1.0 / one.shape[-1] ** 0.5
                    # of rank one and of the size of the weights
                    one.add_((scale * torch.outer(first, second)).to(one))
            self._prove(factors_of(self.steps.layers, self.before))
        finally:
            with torch.no_grad():
                for one, start in zip(trained, starts, strict=True):
                    one.copy_(start)
            self.attached.off()

    def train(self, loop: Loop) -> Release[TrainedAdapter]:
        """Train to the end, prove what was trained and return its release."""
        self.attached.on()
        try:
            steps = self.steps
            # after a crash it is measured no more
            measured = self.held_out is not None and not steps.taken
            before = Quality.of(steps, self.held_out or {}) if measured else None
            frozen, waiting = Frozen(steps.model, steps.layers), steps.taken == 0
            for _ in loop:
                steps.step()
                # without noise an empty batch moves nothing
                if waiting and (steps.drawn or steps.mechanism.noise_std):
                    frozen.check_moved()
                    waiting = False
            # after all records that passed: a buffer may learn of any of them
            frozen.check()
            factors = factors_of(steps.layers, self.before)
            # the guarantee names this adapter by its digest
            release = self.released(digest_of_factors(factors), before)
            # loaded by peft into an untouched copy, it gives the same outputs
            self._prove(factors)
            return release
        except BaseException:
            self.attached.off()
            raise

    def write(self, release: Release[TrainedAdapter]) -> None:
        """Write the adapter with what may be published of its release, where it is to be saved."""
        if self.save is not None and not self.save.is_dir():
            factors = factors_of(self.steps.layers, self.before)
            # of an adapter without a guarantee too nothing that was measured goes with it
            beside = public(release).to_dict()
            write_adapter(self.save, factors, self.steps.task.name, beside, self.base)

    def _prove(self, factors: Factors) -> None:
        """Write the adapter, load it into a model that was never trained, compare the outputs."""
        steps = self.steps
        # what the trained model gives on a few records
        expected = steps.outputs(steps.model, PROBES)
        self.attached.off()
        try:
            fresh = copy_before(steps.model, steps.layers, self.before)
        finally:
            self.attached.on()

        def outputs(model: nn.Module) -> Tensor:
            return steps.outputs(model, PROBES)

        with tempfile.TemporaryDirectory() as trial:
            place = Path(trial) / "adapter"
            if self.save is not None and self.save.is_dir():
                place = self.save
            else:
                write_adapter(place, factors, steps.task.name, {}, self.base)
            check_reloaded(fresh, place, outputs, expected)


def _bytes_of_state(layers: Sequence[AdapterLayer]) -> int:
    held = [one.matrix_a if one.matrix_b is not None else one.weight for one in layers]
    own = sum(one.numel() * one.element_size() for one in held if one is not None)
    # the trained weights, and two moments of each
    trained = 3 * sum(one.trained.numel() * one.trained.element_size() for one in layers)
    return own + SMALL_FILES // 8 * len(layers) + trained


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PreparedAdapter(Prepared[TrainedAdapter]):
    """A fine-tuning run whose guarantees are known before its first step.

    Attributes:
        run: its steps, and where the adapter goes.
    """

    run: AdapterRun = field(repr=False)

    def draw(
        self, *, ledger: Book | None = None, secret: str | None = None, no_budget: bool = False
    ) -> Release[TrainedAdapter]:
        """Reserve the cost, train, prove, save, store it beside the cost and return the release.

        A run with a checkpoint is taken up where it stopped, and reserves nothing twice.

        Args:
            ledger: what the run spends from, a ``tacit.Ledger``; None for none.
            secret: name of the records there.
            no_budget: train though the secret has no budget and others have one.

        Raises:
            ValueError: drawn before, a ledger without a secret, or a refusal, before anything is
                drawn.
        """
        # one name in the ledger
        entry = [] if secret is None else [ReservedEntry(secret, self.spends, self.description)]
        purse = Purse(ledger, entry, reproducible=self.reproducible, no_budget=no_budget)
        if ledger is not None and not self.spends:
            raise ValueError(
                "ledger: expected a method with a guarantee to count, got one without noise"
            )
        with ExitStack() as stack:
            # two draws at once are one and a refusal
            with self._once.lock:
                self._refuse_again()
                loop = self.run.open(stack)
                try:
                    self.run.rehearse()
                    _reserve(purse, loop.folder, paid=ledger is not None)
                    self.run.check_open(purse)
                except BaseException:
                    if loop.folder is not None:
                        # refused before its first step: the folder is free for another run
                        loop.folder.forget()
                    raise
                self._once.drawn = True
            # from here on the budget is spent
            purse.mark_drawn()
            release = self.run.train(loop)
            try:
                refuse_false(release)
                # the ledger closes with this adapter
                purse.commit(release.published())
            except BaseException:
                self.run.attached.off()
                raise
            # what is not in the ledger is not written
            self.run.write(release)
            return release

    def _drawn(self) -> Release[TrainedAdapter]:
        return self.draw()


def _reserve(purse: Purse, folder: RunFolder | None, *, paid: bool) -> None:
    """Reserve what a run spends, or go on with what it reserved when it was begun."""
    if folder is None or not (folder.places() or folder.state() is not None):
        purse.reserve(folder)
    elif paid and not folder.places():
        raise ValueError(
            "ledger: expected none for a run that was begun without, got one; begin in another "
            "checkpoint"
        )
    else:
        purse.take_up(folder)
