"""A prepared run from its reservation to its adapter, through crashes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit._ground.checks import boolean
from tacit._ground.files import check_room, held
from tacit.adapters.layers import AdapterLayer, Attached, check_frozen
from tacit.adapters.measuring import Quality
from tacit.adapters.proof import Frozen
from tacit.adapters.release import AdapterRelease
from tacit.adapters.run import Run
from tacit.adapters.saving import (
    Factors,
    bytes_of_adapter,
    check_reloaded,
    digest_of_tensors,
    factors_of,
    read_adapter,
    untouched,
    write_adapter,
)
from tacit.adapters.tasks import taken
from tacit.compute.progress import progress_bar
from tacit.releases.prepared import Book, Prepared, Reserved, check_same_release
from tacit.training.folder import STATE, RunFolder

FIELDS = {"taken", "shares", "parameters", "totals", "optimizer", "projections", "before"}
# Between two stored states, in seconds of training.
SECONDS_BETWEEN_STATES = 5.0
# Records that the reloaded adapter is tried on.
PROBES = 4
# Of declarations, headers and releases, in bytes.
SMALL_FILES = 1 << 16
COMMITTED = "committed"
# The field of a release that names what was trained.
ADAPTER = "adapter"


@dataclass(kw_only=True, eq=False)
class Session:
    """What a run needs beside its steps.

    Attributes:
        run: the steps.
        attached: the adapter's hooks on a plain module.
        before: (out, in) weights as they were, where they are trained themselves.
        identity: digests of what the run is.
        released: makes the release of an adapter's digest and the quality before training.
        measured: the quality as it is now; None where nothing is held out.
        save: where the adapter goes; None for nowhere.
        base: name of the model.
        progress: whether to show the steps.
    """

    run: Run
    attached: Attached
    before: dict[str, Tensor]
    identity: Mapping[str, str]
    released: Callable[[str, Quality | None], AdapterRelease]
    measured: Callable[[], Quality] | None
    save: Path | None
    base: str | None
    progress: bool

    def opened(
        self, checkpoint: str | os.PathLike[str] | None, stack: ExitStack
    ) -> RunFolder | None:
        """Open the folder of a checkpoint, and go on from its state where there is one.

        Args:
            checkpoint: the folder; None for none.
            stack: holds the folder against other processes.
        """
        check_frozen(self.run.model, self.run.layers)
        self._check_room(checkpoint)
        if checkpoint is None or not Path(checkpoint).expanduser().exists():
            self._check_save()
        if checkpoint is None:
            return None
        folder = RunFolder(checkpoint, {"run": "adapter", **self.identity}, fields=FIELDS)
        try:
            stack.enter_context(held(folder.folder / "run", wait=False))
        except BlockingIOError:
            # two that go on from one state would draw twice what was paid for once
            raise ValueError(
                f"checkpoint: expected a run that no other process trains, got {folder.folder}, "
                "where one does"
            ) from None
        state = folder.state()
        if state is not None:
            try:
                for layer in self.run.layers:
                    if layer.matrix_a is not None:
                        layer.matrix_a.copy_(state["projections"][layer.name])
                self.run.restore(state)
            except (KeyError, RuntimeError, ValueError, TypeError):
                raise ValueError(
                    f"checkpoint: expected the state of this run in {folder.folder}, got another"
                ) from None
            self.before = dict(state["before"])
        self._check_save()
        return folder

    def _check_room(self, checkpoint: str | os.PathLike[str] | None) -> None:
        """Refuse a full disk before anything is spent; a run that was begun has its files."""
        if checkpoint is not None:
            place = Path(checkpoint).expanduser().resolve()
            if (place / STATE).exists():
                return
            # the last state and the next, each with two moments of Adam
            check_room("checkpoint", place, 2 * _bytes_of_state(self.run.layers) + SMALL_FILES)
        if self.save is not None and not self.save.exists():
            check_room("save", self.save.parent, bytes_of_adapter(self.run.layers) + SMALL_FILES)

    def _check_save(self) -> None:
        """Refuse a folder that holds anything but what a finished run wrote before it was told."""
        if self.save is None or not self.save.exists():
            return
        factors = factors_of(self.run.layers, self.before)
        finished = self.run.taken == self.run.settings.steps
        if not finished or read_adapter(self.save)["adapter"] != digest_of_tensors(factors):
            raise ValueError(
                f"save: expected a folder that does not exist yet, got {self.save} with something "
                "else than this run's adapter"
            )

    def rehearse(self) -> None:
        """Write a random adapter, load it with peft and compare, before anything is spent.

        Raises:
            ValueError: the outputs differ, as where a weight is used twice; it cannot be written.
        """
        if self.run.taken:
            return
        trained = [layer.trained for layer in self.run.layers]
        starts = [one.detach().clone() for one in trained]
        source = torch.Generator().manual_seed(0)
        self.attached.on()
        try:
            with torch.no_grad():
                for one in trained:
                    first, second = (torch.randn(size, generator=source) for size in one.shape)
                    scale = float(one.float().std()) or 1.0 / one.shape[-1] ** 0.5
                    one.add_((scale * torch.outer(first, second)).to(one))
            self._proven(factors_of(self.run.layers, self.before))
        finally:
            with torch.no_grad():
                for one, start in zip(trained, starts, strict=True):
                    one.copy_(start)
            self.attached.off()

    def check_open(self, reservation: Reserved) -> None:
        """Refuse to train on what the ledger has closed; its own adapter may still be saved.

        Raises:
            ValueError: the reservation was committed for another adapter.
        """
        if reservation.status == COMMITTED:
            finished = self.run.taken == self.run.settings.steps
            digest = digest_of_tensors(factors_of(self.run.layers, self.before))
            check_same_release(reservation, {ADAPTER: digest if finished else None}, [ADAPTER])

    def trained(self, folder: RunFolder | None) -> AdapterRelease:
        """Train to the end, prove what was trained and return its release."""
        self.attached.on()
        try:
            return self._trained(folder)
        except BaseException:
            self.attached.off()
            raise

    def _trained(self, folder: RunFolder | None) -> AdapterRelease:
        before = self._quality_before(folder)
        self._steps(folder)
        factors = factors_of(self.run.layers, self.before)
        release = self.released(digest_of_tensors(factors), before)
        self._proven(factors)
        return release

    def saved(self, release: AdapterRelease) -> None:
        """Write the adapter with what may be published of its release, where it is to be saved."""
        if self.save is not None and not self.save.is_dir():
            factors = factors_of(self.run.layers, self.before)
            told = release.publishable_part().to_dict()
            write_adapter(self.save, factors, self.run.task.name, told, self.base)

    def _steps(self, folder: RunFolder | None) -> None:
        run, total = self.run, self.run.settings.steps
        frozen = Frozen(run.model, run.layers)
        stored, waiting = time.monotonic(), run.taken == 0
        with progress_bar(total, "training", shown=self.progress) as advance:
            advance(run.taken)
            while run.taken < total:
                run.step()
                # without noise an empty batch moves nothing
                if waiting and (run.drawn or run.settings.noise_std):
                    frozen.check()
                    waiting = False
                advance(1)
                late = time.monotonic() - stored > SECONDS_BETWEEN_STATES
                if folder is not None and (run.taken == 1 or late or run.taken == total):
                    folder.save(self._state())
                    stored = time.monotonic()

    def _state(self) -> dict[str, Any]:
        layers = self.run.layers
        return {
            **self.run.state(),
            "projections": {
                one.name: one.matrix_a.clone() for one in layers if one.matrix_a is not None
            },
            "before": self.before,
        }

    def _quality_before(self, folder: RunFolder | None) -> Quality | None:
        """Return the quality before the first step; after a crash it is measured no more."""
        del folder
        return None if self.measured is None or self.run.taken else self.measured()

    def _proven(self, factors: Factors) -> None:
        """Write the adapter, load it into a model that was never trained, compare the outputs."""
        import tempfile

        run = self.run
        rows = taken(run.rows, torch.arange(min(PROBES, len(next(iter(run.rows.values()))))),
                     run.layers[0].weight.device)  # fmt: skip
        with torch.no_grad():
            expected = run.task.outputs(run.model, rows)
        self.attached.off()
        try:
            fresh = untouched(run.model, run.layers, self.before)
        finally:
            self.attached.on()
        with tempfile.TemporaryDirectory() as trial:
            place = Path(trial) / "adapter"
            if self.save is not None and self.save.is_dir():
                place = self.save
            else:
                write_adapter(place, factors, run.task.name, {}, self.base)
            check_reloaded(fresh, place, lambda model: run.task.outputs(model, rows), expected)


def _bytes_of_state(layers: Sequence[AdapterLayer]) -> int:
    held = [one.matrix_a if one.matrix_b is not None else one.weight for one in layers]
    own = sum(one.numel() * one.element_size() for one in held if one is not None)
    return (
        own
        + SMALL_FILES // 8 * len(layers)
        + 3 * sum(one.trained.numel() * one.trained.element_size() for one in layers)
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedAdapter(Prepared[AdapterRelease]):
    """A fine-tuning run whose guarantees are known before its first step.

    Attributes:
        session: the run.
        checkpoint: folder that survives a crash; None for none.
    """

    session: Session
    checkpoint: str | os.PathLike[str] | None

    def draw(
        self, *, ledger: Book | None = None, secret: str | None = None, no_budget: bool = False
    ) -> AdapterRelease:
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
        boolean("no_budget", no_budget)
        if (ledger is None) != (secret is None) or (ledger is None and no_budget):
            raise ValueError("ledger, secret: expected both or none, and one beside no_budget")
        if ledger is not None and not hasattr(ledger, "reserve"):
            raise ValueError(f"ledger: expected a tacit.Ledger, got {type(ledger).__name__}")
        if ledger is not None and not self.spends:
            raise ValueError(
                "ledger: expected a method with a guarantee to count, got one without noise"
            )
        with ExitStack() as stack:
            with self._once.lock:
                self._refuse_again()
                folder = self.session.opened(self.checkpoint, stack)
                try:
                    self.session.rehearse()
                    reservation = self._reserved(folder, ledger, secret, no_budget)
                    if reservation is not None:
                        self.session.check_open(reservation)
                except BaseException:
                    if folder is not None:
                        folder.forget()
                    raise
                self._once.drawn = True
            if reservation is not None and reservation.status == "reserved":
                reservation.mark_drawn()
            release = self.session.trained(folder)
            if reservation is not None:
                self._commit(reservation, release)
            # what is not in the ledger is not written
            self.session.saved(release)
            return release

    def _commit(self, reservation: Reserved, release: AdapterRelease) -> None:
        """Close the reservation with this adapter, or see that it was closed with this one."""
        try:
            if reservation.status != COMMITTED:
                reservation.commit(release.published())
            check_same_release(reservation, release.published(), [ADAPTER])
        except BaseException:
            self.session.attached.off()
            raise

    def _reserved(
        self,
        folder: RunFolder | None,
        ledger: Book | None,
        secret: str | None,
        no_budget: bool,
    ) -> Reserved | None:
        begun = folder is not None and bool(folder.places())
        if ledger is None or secret is None:
            if begun:
                raise ValueError(
                    "ledger: expected the one that the run in the checkpoint spends from, got none"
                )
            return None
        if folder is not None and begun:
            return folder.reserved(ledger, [secret])[0]
        if folder is not None and folder.state() is not None:
            raise ValueError(
                "ledger: expected none for a run that was begun without, got one; begin in another "
                "checkpoint"
            )
        made = ledger.reserve(
            secret,
            self.spends,
            self.description,
            reproducible=self.reproducible,
            no_budget=no_budget,
        )
        if folder is not None:
            folder.reserve([made])
        return made

    def _drawn(self) -> AdapterRelease:
        self.session.rehearse()
        release = self.session.trained(None)
        self.session.saved(release)
        return release
