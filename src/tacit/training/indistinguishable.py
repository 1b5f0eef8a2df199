"""An ordinary training loop whose every round is indistinguishable from its safe references."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, array, integer
from tacit.design.base import Design
from tacit.releases.form import Attack, Use
from tacit.releases.prepared import Book
from tacit.training.account import Budgets, budgets
from tacit.training.charges import Charges
from tacit.training.checks import check_model, check_moving, check_optimizer, check_way
from tacit.training.gradients.batches import batch_size
from tacit.training.gradients.capture import per_example
from tacit.training.gradients.verification import Verified
from tacit.training.noise import Shaped, add_isotropic
from tacit.training.parameters import (
    Snapshot,
    digest_of,
    digest_of_names,
    flat_outcome,
    write_flat,
    write_gradient,
)
from tacit.training.publication import let_out_gradients
from tacit.training.references import Part, References
from tacit.training.release import TrainingRelease, released
from tacit.training.rounds import Round
from tacit.training.settings import LocalSteps

Rounds = TypeVar("Rounds", bound=Callable[..., Round])


def _alone(method: Rounds) -> Rounds:
    """Run one round of a run at a time: it is checked, charged and applied in one step."""

    @wraps(method)
    def held(self: Indistinguishable, *given: Any, **named: Any) -> Round:
        with self._charges.alone:
            return method(self, *given, **named)

    return held  # type: ignore[return-value]


class Indistinguishable:
    """Add the least noise that keeps training within a distance of each safe reference.

    In every round the update is ``F(U) + e``, ``e ~ N(0, Σ)`` with ``z_rᵀ Σ⁻¹ z_r ≤ μ_r²/K`` for
    ``z_r = F(R_r) − F(U)``, and μ² adds over the K rounds in which a reference takes part. The
    module is not wrapped, and the optimiser only sees the noisy gradient.

    This is no guarantee of privacy: Σ depends on the data. It says that the model hardly differs
    from what each reference would have given with the noise of this run.

    Args:
        model: the module; nothing in it may mix examples unless ``local`` is given.
        optimizer: of the model's parameters; None for local steps and for any outcome.
        references: what is safe.
        loss: ``loss(model, inputs, targets)`` → losses, shape (B,), one for each example.
        rounds: T, how many rounds are planned.
        epsilon: ε > 0 of the whole run, a number or one for each reference, with ``delta``.
        delta: δ in (0, 1).
        mu: instead of both, μ of a Gaussian shift, a number or (m,).
        participations: K, in how many rounds any one reference takes part at most; T if left out.
        gram: ``"exact"``, ``"forward"`` (the last layer's alone) or ``"none"``: what the noise is
            shaped by. All are sound; they cost energy.
        noise: ``"optimal"``, or ``"isotropic"`` noise of the same certificate to compare with,
            N(0, σ²) in every parameter with σ² = max_r ‖z_r‖²/g_r.
        local: K local steps of a black-box optimiser instead of one step.
        checkpoint: folder that survives a crash; a run is taken up where it stopped.
        ledger: a ``tacit.Ledger``; the whole budget is reserved before the first round is drawn.
        secret: its name there, for the largest μ of the run; or the name for each reference, so
            that what every source spends adds up over runs.
        no_budget: train though a name has no budget in the ledger and others have one.
        about: names what is trained on what, such as a digest; a checkpoint of another is refused.
        rng: a seed makes the run reproducible, which voids the guarantee.

    Raises:
        ValueError: an argument is outside its range, or the checkpoint is of another run.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(3, 1)
        >>> run = Indistinguishable(
        ...     model, torch.optim.SGD(model.parameters(), lr=0.1), References.leave_out(8),
        ...     loss=lambda m, x, y: (m(x)[:, 0] - y).square(), epsilon=2.0, delta=1e-5, rounds=5,
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
        references: References,
        *,
        loss: Callable[..., torch.Tensor],
        rounds: int,
        epsilon: Any = None,
        delta: Any = None,
        mu: Any = None,
        participations: int | None = None,
        gram: str = "exact",
        noise: str = "optimal",
        local: LocalSteps | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        ledger: Book | None = None,
        secret: str | Mapping[str, str] | None = None,
        no_budget: bool = False,
        about: str | None = None,
        rng: int | None = None,
    ) -> None:
        self.model, self.optimizer, self.references, self.loss = model, optimizer, references, loss
        self.local, self.noise, self._about = local, noise, about
        self.gram: Any = gram
        check_way(model, optimizer, loss, references, local=local, gram=gram, noise=noise)
        self.planned = integer("rounds", rounds, minimum=1)
        times = self.planned if participations is None else participations
        found = budgets(len(references), times, epsilon=epsilon, delta=delta, mu=mu)
        self.delta = None if delta is None else float(np.max(np.asarray(delta, dtype=float)))
        self._batches = Verified(exact=self.gram == "exact")
        self._shaped = Shaped(self.noise, model)
        names = references.names
        self._charges = Charges(names, found, ledger, secret, no_budget=no_budget, rng=rng)
        if checkpoint is not None:
            told = self._declared(found.squared, times)
            self._charges.take_up(checkpoint, told, model, optimizer)

    @property
    def rounds(self) -> int:
        """How many rounds were applied to the model, earlier processes included."""
        return self._charges.applied

    @property
    def charges(self) -> int:
        """How many rounds were charged, earlier processes and what a crash lost included."""
        return self._charges.count

    @property
    def budgets(self) -> Budgets:
        """What every reference was granted."""
        return self._charges.account.budgets

    def left(self) -> Array:
        """Return μ² that each reference has left, (m,)."""
        return self._charges.left()

    @_alone
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
        part = self.references.part(membership, batch_size(inputs), inside)
        allowed = self._charges.account.check(part.indices)
        before = Snapshot(self.model)
        if self.optimizer is None:
            return self._local_round(inputs, targets, part, allowed, before)
        return self._gradient_round(inputs, targets, part, allowed, before)

    @_alone
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
        allowed = self._charges.account.check(indices)
        before = Snapshot(self.model)

        def one(index: int | None) -> Array:
            found = flat_outcome(self.model, f"outcome({index})", outcome(index))
            before.check(trained=True)
            before.restore()
            return found

        real = one(None)
        differences = np.stack([one(index) - real for index in indices.tolist()])
        return self._outcome_round(real, differences, indices, allowed)

    @_alone
    def update(self, value: Any, differences: ArrayLike) -> Round:
        """Run one round of an update that was computed elsewhere, with its differences.

        Whatever made them, such as a robust aggregate of sources, is covered: the noise is added
        to the gradient and the optimiser, with its momentum, is post-processing.

        Args:
            value: F(U): the gradient of the trainable parameters, or the parameters themselves
                where the run has no optimiser; a mapping of their names or one flat vector.
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
            ...     References.leave_out(["Ada", "Bob"]), loss=lambda m, x, y: m(x)[:, 0],
            ...     mu=1.0, rounds=1,
            ... )
            >>> run.update([0.5, 0.5], [[0.5, -0.5], [-0.5, 0.5]]).taking_part
            2

        Source: dsi, Algorithm 2.
        """
        indices = np.arange(len(self.references))
        allowed = self._charges.account.check(indices)
        check_model(self.model, self.loss)
        real = flat_outcome(self.model, "value", value)
        moved = array("differences", differences, ndim=2)
        if moved.shape != (shape := (indices.size, real.size)):
            raise ValueError(f"differences: expected shape {shape}, got {moved.shape}")
        if self.optimizer is None:
            return self._outcome_round(real, moved, indices, allowed)
        check_optimizer(self.model, self.optimizer)
        if not real.any() and not moved.any():
            raise ValueError("value: expected a gradient that is not zero, got zeros only")
        return self._outcome_round(real, moved, indices, allowed, self.optimizer)

    def release(
        self,
        title: str = "a trained model",
        *,
        attacks: Sequence[Attack] = (),
        use: Sequence[Use] = (),
        notes: Sequence[str] = (),
    ) -> TrainingRelease:
        """Return what is released: the model's digest, its guarantees, what was measured.

        Args:
            title: what the model is.
            attacks: what was measured against it.
            use: what it is good for, such as accuracy on held-out data.
            notes: what a reader should know beside.

        Raises:
            ValueError: no round was run.
        """
        if self._charges.applied == 0:
            raise ValueError("release: expected at least one round, got none")
        found = released(
            title=title,
            references=self.references,
            budgets=self._charges.account.budgets,
            taken=self._charges.account.taken,
            delta=self.delta,
            rounds=self._charges.applied,
            way=self._way(),
            energies=np.asarray(self._charges.energies),
            digest=digest_of(self.model),
            attacks=tuple(attacks),
            use=tuple(use),
            notes=tuple(notes),
            seed=self._charges.seed,
        )
        self._charges.purse.commit(found.published())
        return found

    def _gradient_round(
        self, inputs: Any, targets: Any, part: Part, allowed: Array, before: Snapshot
    ) -> Round:
        optimizer = self.optimizer
        assert optimizer is not None
        check_model(self.model, self.loss)
        check_optimizer(self.model, optimizer)
        optimizer.zero_grad(set_to_none=True)
        try:
            self._batches.verify(self.model, self.loss, inputs, targets)
            capture = per_example(self.model, self.loss, inputs, targets, gram=self.gram)
            capture.check()
        finally:
            before.check()
        changes = part.changes / len(part.inside)
        noise = self._shaped.noise(capture.gram, changes, allowed, part.indices)
        drawn = noise.draw(self._charges.source())
        try:
            # a gradient that is not finite may only be seen here; nothing leaves before the charge
            capture.weighted((part.inside + part.changes.T @ drawn) / len(part.inside))
            check_moving(self.model)
            if noise.spread > 0.0:
                add_isotropic(self.model, noise.spread, self._charges.source())
            else:
                # the coefficients are on a grid, so that the sum is the same float of the same
                # weights whichever input they came from
                let_out_gradients(self.model)
            before.check()
            self._charges.charge(part.indices)
        except BaseException:
            optimizer.zero_grad(set_to_none=True)
            raise
        optimizer.step()
        loss = float(np.asarray(capture.losses)[part.inside].mean()) if part.inside.any() else None
        # by the last layer's Gram matrix alone the energy is not known
        energy = noise.energy if self.gram == "exact" else None
        return self._applied_round(part.indices, energy, noise.design, loss)

    def _local_round(
        self, inputs: Any, targets: Any, part: Part, allowed: Array, before: Snapshot
    ) -> Round:
        if self.local is None:
            raise ValueError("optimizer: expected one, or local, for a step on a batch, got none")
        if not part.inside.all():
            raise ValueError("inside: expected all of the batch beside local steps, got less")
        from tacit.training.local.differences import local_differences

        kept = part.changes == 0.0
        found = local_differences(
            self.model, self.loss, inputs, targets, kept,
            steps=self.local.steps, optimizer=self.local.optimizer,
            groups=self.local.groups, way=self.local.way,
        )  # fmt: skip
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
        """Add noise to parameters, or to the gradient that an optimiser then steps along."""
        own = np.eye(len(indices))
        noise = self._shaped.noise(differences @ differences.T, own, allowed, indices)
        moved = noise.publish(real, differences, self._charges.source())
        self._charges.charge(indices)
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
        self._charges.apply(energy, self.model, self.optimizer)
        return Round(
            number=self._charges.applied,
            loss=loss,
            taking_part=indices.size,
            energy=energy,
            gap=None if design is None else design.gap,
        )

    def _way(self) -> str:
        if self.optimizer is not None:
            shape = "isotropic noise" if self.noise == "isotropic" else f"{self.gram} Gram matrix"
            return f"one step, {shape}"
        return "any outcome" if self.local is None else f"{self.local.steps:,} local steps"

    def _declared(self, squared: Array, participations: int) -> dict[str, Any]:
        return {
            "references": digest_of_names(self.references.names),
            "budgets": squared.tolist() if len(set(squared.tolist())) > 1 else float(squared[0]),
            "participations": int(participations),
            "way": self._way(),
            "seed": self._charges.seed,
            "ledger": self._charges.purse.declared(),
            "about": self._about,
        }
