"""A training run that is certified and not yet begun: prepare, reserve, draw."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tacit._ground.checks import boolean
from tacit.releases.prepared import Book, Prepared
from tacit.training.indistinguishable import Indistinguishable
from tacit.training.parameters import digest_of
from tacit.training.references import References
from tacit.training.release import TrainingRelease, promised
from tacit.training.settings import LocalSteps
from tacit.training.spending import counted


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedTraining(Prepared[TrainingRelease]):
    """A run whose guarantees are known before its first round.

    Attributes:
        begin: makes the run, with ``ledger``, ``secret`` and ``no_budget``.
        fit: trains from ``run.charges`` on, measures and returns the release.
    """

    begin: Callable[..., Indistinguishable]
    fit: Callable[[Indistinguishable], TrainingRelease]

    def draw(
        self,
        *,
        ledger: Book | None = None,
        secret: str | Mapping[str, str] | None = None,
        no_budget: bool = False,
    ) -> TrainingRelease:
        """Reserve the whole budget, train, measure, and return the release.

        A run with a checkpoint is taken up where it stopped, and reserves nothing twice.

        Args:
            ledger: what the run spends from, a ``tacit.Ledger``; None for none.
            secret: its name there, or the name for each reference.
            no_budget: train though the secret has no budget and others have one.

        Raises:
            ValueError: drawn before, a ledger without a secret, or a refusal, before anything is
                drawn.
        """
        boolean("no_budget", no_budget)
        if ledger is None and no_budget:
            raise ValueError("ledger: expected one beside no_budget, got none")
        with self._once.lock:
            self._refuse_again()
            run = self.begin(ledger=ledger, secret=secret, no_budget=no_budget)
            self._once.drawn = True
        try:
            return self.fit(run)
        except ValueError:
            # what was refused before the first charge may be asked for again
            self._once.drawn = run.charges > 0
            raise

    def _drawn(self) -> TrainingRelease:
        return self.fit(self.begin(ledger=None, secret=None, no_budget=False))


def prepare_training(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None,
    references: References,
    *,
    loss: Callable[..., torch.Tensor],
    rounds: int,
    fit: Callable[[Indistinguishable], TrainingRelease],
    description: str,
    about: Sequence[Any] = (),
    epsilon: Any = None,
    delta: Any = None,
    mu: Any = None,
    participations: int | None = None,
    gram: str = "exact",
    noise: str = "optimal",
    local: LocalSteps | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    rng: int | None = None,
) -> PreparedTraining:
    """Certify a run of `Indistinguishable` before it begins; nothing is drawn or written.

    Args:
        model: as `Indistinguishable` takes it; it is trained in place.
        optimizer: of its parameters.
        references: what is safe.
        loss: a loss for each example.
        rounds: T.
        fit: trains from ``run.charges`` to T, measures, and returns ``run.release(…)``. The batch
            of a round must be a function of its number alone, so that a run can be taken up; a
            round that was charged and lost in a crash is passed over.
        description: what is trained, for whoever reads the dry run.
        about: data and settings that make the run what it is: arrays, tensors, numbers, texts. With
            them and the model as it is now, a checkpoint of another run is refused.
        epsilon: ε, a number or one for each reference, with ``delta``.
        delta: δ in (0, 1).
        mu: instead of both.
        participations: K; T if left out.
        gram: what the noise is shaped by.
        noise: ``"optimal"`` or ``"isotropic"``.
        local: K local steps instead of one.
        checkpoint: folder that survives a crash.
        rng: a seed voids the guarantee.

    Raises:
        ValueError: an argument is outside its range.

    Example:
        >>> import torch
        >>> model, optimizer = torch.nn.Linear(3, 1), None
        >>> data = torch.randn(8, 3), torch.randn(8)
        >>> def fit(run):
        ...     for _ in range(run.charges, 2):
        ...         run.step(data, range(8))
        ...     return run.release("a regression")
        >>> prepared = prepare_training(
        ...     model, torch.optim.SGD(model.parameters(), lr=0.1), References.leave_out(8),
        ...     loss=lambda m, x, y: (m(x)[:, 0] - y).square(), rounds=2, mu=1.0, fit=fit,
        ...     description="a regression",
        ... )
        >>> print(f"{prepared.guarantees[0].success:.3f}", prepared.draw().rounds)
        0.691 2

    Source: dsi, Algorithm 2.
    """
    given: dict[str, Any] = {
        "loss": loss, "rounds": rounds, "epsilon": epsilon, "delta": delta, "mu": mu,
        "participations": participations, "gram": gram, "noise": noise, "local": local, "rng": rng,
    }  # fmt: skip
    trial = Indistinguishable(model, optimizer, references, **given)
    given["about"] = _fingerprint(model, optimizer, about)

    def begin(**spending: Any) -> Indistinguishable:
        return Indistinguishable(
            model, optimizer, references, **given, checkpoint=checkpoint, **spending
        )

    return PreparedTraining(
        guarantees=promised(references, trial.budgets, trial.delta),
        spends=(counted(float(trial.budgets.mu.max())),),
        expected=(),
        description=description,
        reproducible=rng is not None,
        begin=begin,
        fit=fit,
    )


def _fingerprint(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer | None, about: Sequence[Any]
) -> str:
    """Return the SHA-256 of what a run is: its model, its optimiser, its data and settings."""
    found = hashlib.sha256(digest_of(model).encode())
    if optimizer is not None:
        settings = [
            {name: value for name, value in group.items() if name != "params"}
            for group in optimizer.param_groups
        ]
        found.update(f"{type(optimizer).__qualname__}{settings!r}".encode())
    for part in about:
        if isinstance(part, (torch.Tensor, np.ndarray)):
            array = np.ascontiguousarray(
                part.detach().cpu().numpy() if isinstance(part, torch.Tensor) else part
            )
            found.update(f"{array.dtype}{array.shape}".encode())
            found.update(array.tobytes())
        else:
            found.update(repr(part).encode())
    return f"sha256:{found.hexdigest()}"
