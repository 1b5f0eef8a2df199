"""An ordinary training loop whose every round is indistinguishable from its safe references."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, array, integer
from tacit.compute import progress_bar
from tacit.design.base import Design
from tacit.gradients.batches import batch_size
from tacit.gradients.capture import per_example
from tacit.gradients.publication import let_out_gradients
from tacit.gradients.verification import CheckedGradients
from tacit.releases import Attack, Release, Use
from tacit.releases.prepared import Book
from tacit.releases.verification import refuse_false
from tacit.runs.identity import digest_of_model, identity
from tacit.runs.run import Run, check_run
from tacit.training.account import Beside, Budgets
from tacit.training.charges import Charges, Purse, reference_entries
from tacit.training.local import local_differences
from tacit.training.noise import RoundNoises, add_isotropic
from tacit.training.parameters import (
    Snapshot,
    check_model,
    check_moving,
    check_optimizer,
    digest_of_names,
    flat_outcome,
    write_flat,
    write_gradient,
)
from tacit.training.references import BatchReferences, References
from tacit.training.release import (
    KIND,
    PARAMETERS,
    SECRET,
    TrainedModel,
    certified,
    details_of,
    notes_of,
)
from tacit.training.rounds import LocalSteps, OneStep, Round

Rounds = TypeVar("Rounds", bound=Callable[..., Round])
# What of a run the rounds read.
READ = ("steps", "checkpoint", "about")
ONE_STEP = OneStep()


def _one_at_a_time(method: Rounds) -> Rounds:
    """Run one round of a run at a time: it is checked, charged and applied in one step."""

    @wraps(method)
    def guarded(self: Indistinguishable, *given: Any, **named: Any) -> Round:
        with self._alone:
            return method(self, *given, **named)

    return guarded  # type: ignore[return-value]


class Indistinguishable:
    """Add the least noise that keeps training within a distance of each safe reference.

    In every round the update is ``F(U) + e``, ``e ~ N(0, Σ)`` with ``z_rᵀ Σ⁻¹ z_r ≤ μ_r²/K`` for
    ``z_r = F(R_r) − F(U)``, and μ² adds over the K rounds in which a reference takes part. The
    module is not wrapped, and the optimizer only sees the noisy gradient.

    This is no guarantee of privacy: Σ depends on the data. It says that the model hardly differs
    from what each reference would have given with the noise of this run.

    Args:
        model: the module; nothing in it may mix examples, unless the method is local steps.
        optimizer: of the model's parameters; None for local steps and for any outcome.
        promise: the references, and how far the model may be from what each would have given.
        loss: ``loss(model, inputs, targets)`` → losses, shape (B,), one for each example.
        method: `OneStep`, or `LocalSteps` of a black-box optimizer.
        run: T steps, the rounds that are planned; the folder that survives a crash: a run is taken
            up where it stopped; and what names it, so that a folder of another is refused.
        rng: a seed makes the run reproducible, which voids the guarantee.

    Raises:
        ValueError: an argument is outside its range.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(3, 1)
        >>> run = Indistinguishable(
        ...     model, torch.optim.SGD(model.parameters(), lr=0.1),
        ...     Beside(references=References.leave_out(8), epsilon=2.0, delta=1e-5),
        ...     loss=lambda m, x, y: (m(x)[:, 0] - y).square(), run=Run(steps=5),
        ... )
        >>> inputs, targets = torch.randn(8, 3), torch.randn(8)
        >>> for _ in range(5):
        ...     done = run.step((inputs, targets), range(8))
        >>> done.number, run.left().max() < 1e-9
        (5, np.True_)

    Source: dsi, Algorithm 2.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | None,
        promise: Beside,
        *,
        loss: Callable[..., torch.Tensor],
        run: Run,
        method: OneStep | LocalSteps = ONE_STEP,
        rng: int | None = None,
    ) -> None:
        if not isinstance(promise, Beside):
            raise ValueError(f"promise: expected Beside, got {type(promise).__name__}")
        if not isinstance(method, OneStep | LocalSteps):
            found = type(method).__name__
            raise ValueError(f"method: expected OneStep or LocalSteps, got {found}")
        self.run = check_run(run, READ)
        if run.steps is None:
            raise ValueError("steps: expected the rounds that are planned, got None")
        check_model(model, loss)
        if optimizer is not None:
            if isinstance(method, LocalSteps):
                raise ValueError("method: expected OneStep beside optimizer, got LocalSteps")
            check_optimizer(model, optimizer)
        self.model, self.optimizer, self.loss, self.method = model, optimizer, loss, method
        # what the promise grants is worked out now, so that nothing of it can fail later
        self.budgets: Budgets = promise.budgets(run.steps)
        assert promise.references is not None
        self.references: References = promise.references
        self.delta = promise.largest_delta
        self.seed = None if rng is None else integer("rng", rng, minimum=0, maximum=None)
        # only captured gradients can be other than backpropagation's
        exact = isinstance(method, OneStep) and method.gram == "exact"
        self._checked = CheckedGradients(exact=exact)
        self._noises = RoundNoises(method.noise, model)
        self._about = None if run.about is None else identity(run.about)
        self._charges: Charges | None = None
        # held from the check of a round to its end, so that rounds of one run never mix
        self._alone = threading.RLock()

    def begin(
        self,
        *,
        ledger: Book | None = None,
        secret: str | Mapping[str, str] | None = None,
        no_budget: bool = False,
    ) -> Indistinguishable:
        """Say what the run spends from, and take it up where its checkpoint says that it stopped.

        Without a ledger a run begins by itself when it is first used.

        Args:
            ledger: a ``tacit.Ledger``; the whole budget is reserved before the first round.
            secret: its name there, for the largest μ of the run; or the name for each reference, so
                that what every source spends adds up over runs.
            no_budget: train though a name has no budget in the ledger and others have one.

        Returns:
            The run.

        Raises:
            ValueError: it has begun already, the checkpoint is of another run, or an argument is
                outside its range.
        """
        names, place = self.references.names, self.run.checkpoint
        with self._alone:
            # a round without a ledger cannot be paid for afterwards
            if self._charges is not None and self._charges.count:
                raise ValueError("begin: expected a run that has not begun, got one with rounds")
            purse = Purse(
                ledger,
                reference_entries(secret, names, self.budgets),
                reproducible=self.seed is not None,
                no_budget=no_budget,
            )
            # what was charged so far, from the folder where there is one
            charges = Charges(names, self.budgets, purse, self.seed)
            if place is not None:
                charges.take_up(place, self._declaration(purse), self.model, self.optimizer)
            self._charges = charges
        return self

    def identify(self) -> None:
        """Let the model and the optimizer as they are now make the run what it is, too.

        Raises:
            ValueError: it has begun already.
        """
        if self._charges is not None:
            raise ValueError("run: expected one that has not begun, got one that has")
        # learning rates and the like: another optimizer is another run
        settings = (
            []
            if self.optimizer is None
            else [
                {name: value for name, value in group.items() if name != "params"}
                for group in self.optimizer.param_groups
            ]
        )
        kind = type(self.optimizer).__qualname__
        self._about = identity(digest_of_model(self.model), kind, settings, self.run.about)

    def _start(self) -> Charges:
        with self._alone:
            if self._charges is None:
                self.begin()
            assert self._charges is not None
            return self._charges

    @property
    def rounds(self) -> int:
        """How many rounds were applied to the model, earlier processes included."""
        return self._start().applied

    @property
    def charges(self) -> int:
        """How many rounds were charged, earlier processes and what a crash lost included."""
        return self._start().count

    def left(self) -> Array:
        """Return μ² that each reference has left, (m,)."""
        return self._start().account.left

    def rounds_left(self) -> Iterator[int]:
        """Yield the numbers of the rounds that are planned and not charged yet, with a bar."""
        assert self.run.steps is not None
        with progress_bar(self.run.steps, "training", shown=self.run.progress) as advance:
            advance(self.charges)
            for number in range(self.charges, self.run.steps):
                yield number
                advance(1)

    @_one_at_a_time
    def step(self, batch: Sequence[Any], membership: Any, *, inside: Any = None) -> Round:
        """Run one round on a batch: certify its noise, charge it, draw it, apply it.

        Args:
            batch: (inputs, targets), B examples.
            membership: (B,) the group of each example, −1 for none; (m, B) what each reference
                keeps, for subsets.
            inside: (B,) False for an example that a coin left out: the noise covers it as if it
                were learned from, and nothing is learned.

        Returns:
            What became of it.

        Raises:
            ReferenceSpentError: a reference has nothing left.
            ValueError: the model mixes examples, a gradient is not finite, a parameter has none,
                nothing would change, or an argument does not fit. Nothing is spent or drawn.
        """
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            raise ValueError(f"batch: expected (inputs, targets), got {type(batch).__name__}")
        inputs, targets = batch
        # which references differ in this batch, and how
        part = self.references.part(membership, batch_size(inputs), inside)
        # g_r of each of them, or a refusal while nothing is spent
        allowed = self._start().account.check(part.indices)
        # buffers and frozen parameters, which no noise covers
        before = Snapshot(self.model)
        if self.optimizer is None:
            return self._local_round(inputs, targets, part, allowed, before)
        return self._gradient_round(inputs, targets, part, allowed, before)

    @_one_at_a_time
    def replace(self, outcome: Callable[[int | None], Any]) -> Round:
        """Run one round of anything: replace the parameters by an outcome and its noise.

        Args:
            outcome: called with None for the real input and with 0 … m − 1 for every reference,
                from the same parameters and with the same randomness; returns the trainable
                parameters, a state dict or one flat vector.

        Returns:
            What became of it.

        Raises:
            ReferenceSpentError: a reference has nothing left.
            ValueError: an outcome is not finite or has another shape.
        """
        indices = np.arange(len(self.references))
        allowed = self._start().account.check(indices)
        before = Snapshot(self.model)

        def one(index: int | None) -> Array:
            found = flat_outcome(self.model, f"outcome({index})", outcome(index))
            before.check(trained=True)
            before.restore()
            return found

        # F(U)
        real = one(None)
        # z_r = F(R_r) − F(U), each from the same parameters
        differences = np.stack([one(index) - real for index in indices.tolist()])
        return self._outcome_round(real, differences, indices, allowed)

    @_one_at_a_time
    def update(self, value: Any, differences: ArrayLike) -> Round:
        """Run one round of an update that was computed elsewhere, with its differences.

        Whatever made them, such as a robust aggregate of sources, is covered: the noise is added
        to the gradient and the optimizer, with its momentum, is post-processing.

        Args:
            value: F(U): the gradient of the trainable parameters, or the parameters themselves
                where the run has no optimizer; a mapping of their names or one flat vector.
            differences: (m, p), ``F(R_r) − F(U)`` of every reference, in the order of the
                parameters; a reference that does not differ has a row of zeros.

        Returns:
            What became of it.

        Raises:
            ReferenceSpentError: a reference has nothing left.
            ValueError: a number is not finite, a shape does not fit, or nothing would change.
                Nothing is spent or drawn.

        Example:
            >>> import torch
            >>> model = torch.nn.Linear(2, 1, bias=False)
            >>> run = Indistinguishable(
            ...     model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
            ...     Beside(references=References.leave_out(["Ada", "Bob"]), mu=1.0),
            ...     loss=lambda m, x, y: m(x)[:, 0], run=Run(steps=1),
            ... )
            >>> run.update([0.5, 0.5], [[0.5, -0.5], [-0.5, 0.5]]).taking_part
            2

        Source: dsi, Algorithm 2.
        """
        indices = np.arange(len(self.references))
        allowed = self._start().account.check(indices)
        check_model(self.model, self.loss)
        real = flat_outcome(self.model, "value", value)
        moved = array("differences", differences, ndim=2)
        if moved.shape != (shape := (indices.size, real.size)):
            raise ValueError(f"differences: expected shape {shape}, got {moved.shape}")
        if self.optimizer is None:
            return self._outcome_round(real, moved, indices, allowed)
        check_optimizer(self.model, self.optimizer)
        # momentum alone would move the model, and the round be charged for nothing
        if not real.any() and not moved.any():
            raise ValueError("value: expected a gradient that is not zero, got zeros only")
        return self._outcome_round(real, moved, indices, allowed, self.optimizer)

    def release(
        self,
        title: str = "a trained model",
        *,
        attacks: Sequence[Attack] = (),
        use: Sequence[Use] = (),
        remarks: Sequence[str] = (),
    ) -> Release[TrainedModel]:
        """Return what is released: the model's digest, its guarantees, what was measured.

        Args:
            title: what the model is.
            attacks: what was measured against it.
            use: what it is good for, such as accuracy on held-out data.
            remarks: what its holder should know beside.

        Raises:
            ValueError: no round was run.
        """
        charges = self._start()
        if charges.applied == 0:
            raise ValueError("release: expected at least one round, got none")
        details = details_of(
            self.references,
            self.budgets,
            self.delta,
            taken=charges.account.taken,
            rounds=charges.applied,
            energies=charges.energies,
        )
        release = Release(
            kind=KIND,
            title=title,
            secret=SECRET,
            method=self._way(),
            guarantees=certified(details.references, details.squared, details.delta),
            details=details,
            reproducible=self.seed is not None,
            seed=self.seed,
            digests=((PARAMETERS, digest_of_model(self.model)),),
            notes=notes_of(details.references, details.squared, details.delta),
            attacks=tuple(attacks),
            use=tuple(use),
            remarks=tuple(remarks),
        )
        refuse_false(release)
        # the ledger closes: one reservation, one release
        charges.purse.commit(release.published())
        return release

    def _gradient_round(
        self, inputs: Any, targets: Any, part: BatchReferences, allowed: Array, before: Snapshot
    ) -> Round:
        optimizer, method, charges = self.optimizer, self.method, self._start()
        assert optimizer is not None
        assert isinstance(method, OneStep)
        # a layer may have been frozen or cast since the last round
        check_model(self.model, self.loss)
        check_optimizer(self.model, optimizer)
        optimizer.zero_grad(set_to_none=True)
        try:
            # are examples separate, and gradients those of the loss
            self._checked.verify(self.model, self.loss, inputs, targets)
            # g_i, their Gram matrix, losses
            capture = per_example(self.model, self.loss, inputs, targets, gram=method.gram)
            capture.check()
        finally:
            before.check()
        # M: z_r = Σ_j M_rj g_j, the divisor B whatever is left out
        changes = part.changes / len(part.inside)
        # Σ of least energy with z_rᵀ Σ⁻¹ z_r <= g_r
        noise = self._noises.noise(capture.gram, changes, allowed, part.indices)
        # x, before anything is charged: a refusal here is free
        drawn = noise.draw(charges.source())
        try:
            # a gradient that is not finite may only be seen here; nothing leaves before the charge
            capture.weighted((part.inside + part.changes.T @ drawn) / len(part.inside))
            check_moving(self.model)
            if noise.spread > 0.0:
                add_isotropic(self.model, noise.spread, charges.source())
            else:
                # the coefficients are on a grid, so that the sum is the same float of the same
                # weights whichever input they came from
                let_out_gradients(self.model)
            before.check()
            # from here on the round counts, whatever becomes of it
            charges.charge(part.indices)
        except BaseException:
            optimizer.zero_grad(set_to_none=True)
            raise
        # post-processing of a noisy gradient
        optimizer.step()
        loss = float(np.asarray(capture.losses)[part.inside].mean()) if part.inside.any() else None
        # by the last layer's Gram matrix alone the energy is not known
        energy = noise.energy if method.gram == "exact" else None
        return self._applied_round(part.indices, energy, noise.design, loss)

    def _local_round(
        self, inputs: Any, targets: Any, part: BatchReferences, allowed: Array, before: Snapshot
    ) -> Round:
        method = self.method
        if not isinstance(method, LocalSteps):
            raise ValueError(
                "optimizer: expected one, or LocalSteps, for a step on a batch, got none"
            )
        if not part.inside.all():
            raise ValueError("inside: expected all of the batch beside local steps, got less")
        # (k, B) what each reference keeps of the batch
        kept = part.changes == 0.0
        found = local_differences(self.model, self.loss, inputs, targets, kept, method)
        before.check()
        return self._outcome_round(
            np.asarray(found.parameters, dtype=np.float64), found.differences, part.indices, allowed
        )

    def _outcome_round(
        self,
        real: Array,
        differences: Array,
        indices: npt.NDArray[np.intp],
        allowed: Array,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> Round:
        """Add noise to parameters, or to the gradient that an optimizer then steps along."""
        charges = self._start()
        # the differences are given themselves: M = I
        own = np.eye(len(indices))
        noise = self._noises.noise(differences @ differences.T, own, allowed, indices)
        # F(U) + Σ c_r z_r, rounded on the grid of the noise
        moved = noise.publish(real, differences, charges.source())
        charges.charge(indices)
        if optimizer is None:
            write_flat(self.model, moved)
        else:
            write_gradient(self.model, moved)
            optimizer.step()
        return self._applied_round(indices, noise.energy, noise.design, None)

    def _applied_round(
        self,
        indices: npt.NDArray[np.intp],
        energy: float | None,
        design: Design | None,
        loss: float | None,
    ) -> Round:
        charges = self._start()
        charges.apply(energy, self.model, self.optimizer)
        return Round(
            number=charges.applied,
            loss=loss,
            taking_part=indices.size,
            energy=energy,
            gap=None if design is None else design.gap,
        )

    def _way(self) -> str:
        if isinstance(self.method, LocalSteps):
            return f"{self.method.steps:,} local steps"
        if self.optimizer is None:
            return "any outcome"
        isotropic = self.method.noise == "isotropic"
        shape = "isotropic noise" if isotropic else f"{self.method.gram} Gram matrix"
        return f"one step, {shape}"

    def _declaration(self, purse: Purse) -> dict[str, Any]:
        squared = self.budgets.squared.tolist()
        return {
            "references": digest_of_names(self.references.names),
            "budgets": squared if len(set(squared)) > 1 else squared[0],
            "participations": self.budgets.participations,
            "way": self._way(),
            "seed": self.seed,
            "ledger": purse.declared(),
            "about": self._about,
        }
