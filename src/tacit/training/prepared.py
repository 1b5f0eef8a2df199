"""A training run that is certified and not yet begun: prepare, reserve, draw, measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tacit.releases import Attack, Prepared, Release, Use
from tacit.releases.prepared import Book
from tacit.training.charges import ledger_cost
from tacit.training.indistinguishable import Indistinguishable
from tacit.training.release import TrainedModel, certified, group_references


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PreparedTraining(Prepared[TrainedModel]):
    """A run whose guarantees are known before its first round.

    Attributes:
        run: not begun yet.
        fit: trains from ``run.charges`` on, measures and returns the release.
    """

    run: Indistinguishable = field(repr=False)
    fit: Callable[[Indistinguishable], Release[TrainedModel]] = field(repr=False)

    def draw(
        self,
        *,
        ledger: Book | None = None,
        secret: str | Mapping[str, str] | None = None,
        no_budget: bool = False,
    ) -> Release[TrainedModel]:
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
        # two draws at once are one and a refusal
        with self._once.lock:
            self._refuse_again()
            self.run.begin(ledger=ledger, secret=secret, no_budget=no_budget)
            self._once.drawn = True
        try:
            return self._drawn()
        except ValueError:
            # what was refused before the first charge may be asked for again
            self._once.drawn = self.run.charges > 0
            raise

    def _drawn(self) -> Release[TrainedModel]:
        # checked where the run closes its ledger
        return self.fit(self.run)


def prepare_training(
    run: Indistinguishable,
    fit: Callable[[Indistinguishable], Release[TrainedModel]],
    *,
    description: str,
) -> PreparedTraining:
    """Certify a run before it begins; nothing is drawn or written.

    With a checkpoint the model as it is now, its optimizer and ``about`` of the run make it what
    it is: the folder of another is refused.

    Args:
        run: that was not begun; its model is trained in place.
        fit: trains from ``run.charges`` to T, measures, and returns ``run.release(…)``. The batch
            of a round must be a function of its number alone, so that a run can be taken up; a
            round that was charged and lost in a crash is passed over.
        description: what is trained, for whoever reads the dry run.

    Raises:
        ValueError: the run was begun already.

    Example:
        >>> import torch
        >>> from tacit import Run
        >>> from tacit.training import Beside, References
        >>> model = torch.nn.Linear(3, 1)
        >>> data = torch.randn(8, 3), torch.randn(8)
        >>> run = Indistinguishable(
        ...     model, torch.optim.SGD(model.parameters(), lr=0.1),
        ...     Beside(references=References.leave_out(8), mu=1.0), run=Run(steps=2),
        ...     loss=lambda m, x, y: (m(x)[:, 0] - y).square(),
        ... )
        >>> def fit(run):
        ...     for _ in range(run.charges, 2):
        ...         run.step(data, range(8))
        ...     return run.release("a regression")
        >>> prepared = prepare_training(run, fit, description="a regression")
        >>> print(f"{prepared.guarantees[0].success:.3f}", prepared.draw().details.rounds)
        0.691 2

    Source: dsi, Algorithm 2.
    """
    if not isinstance(run, Indistinguishable):
        raise ValueError(f"run: expected an Indistinguishable, got {type(run).__name__}")
    run.identify()
    # nobody has taken part yet
    none = np.zeros(len(run.references), dtype=np.int64)
    # as the release will name them
    names, _, squared, _ = group_references(run.references, run.budgets, none)
    return PreparedTraining(
        guarantees=certified(names, squared, run.delta),
        spends=(ledger_cost(float(run.budgets.mu.max())),),
        expected=(),
        description=description,
        reproducible=run.seed is not None,
        run=run,
        fit=fit,
    )


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """What was measured of a trained model: attacks, use and remarks for a release."""

    attacks: tuple[Attack, ...] = ()
    use: tuple[Use, ...] = ()
    remarks: tuple[str, ...] = ()


def attempt(measure: Callable[[], Measurements]) -> Measurements:
    """Return what is measured, or a remark that it could not be: the model must not be lost.

    Its budget is spent by then.

    Args:
        measure: may fail, or be interrupted.

    Example:
        >>> attempt(lambda: Measurements(remarks=(str(1 / 0),))).remarks
        ('Nothing was measured of the model: ZeroDivisionError.',)
    """
    try:
        return measure()
    except (Exception, KeyboardInterrupt) as error:
        failed = f"Nothing was measured of the model: {type(error).__name__}."
        return Measurements(remarks=(failed,))
