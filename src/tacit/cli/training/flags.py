"""Flags that the commands of training share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from tacit.cli.console import line
from tacit.cli.options import Only
from tacit.cli.publishing import Attacking, Destination
from tacit.runs import Run

if TYPE_CHECKING:
    from tacit.releases import Release
    from tacit.training import Beside, Indistinguishable, PreparedTraining

Passes: TypeAlias = Annotated[Run, Only("passes", "checkpoint")]


@dataclass(frozen=True, kw_only=True)
class TrainingFlags(Attacking):
    """Budget, loop and destination of a training run."""

    epsilon: Annotated[
        float, typer.Option(help="ε of the whole run beside each reference, with --delta.")
    ] = 4.0
    delta: Annotated[float, typer.Option(help="δ, with --epsilon.")] = 1e-5
    batch: Annotated[
        int | None, typer.Option(help="Examples in a round; the command's own when left out.")
    ] = None
    rate: Annotated[
        float | None,
        typer.Option("--learning-rate", help="Learning rate; the command's own when left out."),
    ] = None
    save: Annotated[
        str | None, typer.Option("--out", help="Where the trained model is written.")
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        # the digest of a file names no secret that several trainings share
        if self.ledger is not None and self.secret is None:
            raise ValueError("--secret: expected the name that --ledger counts under, got none")
        # inf and NaN would train to nothing
        if self.rate is not None and not 0.0 < self.rate < float("inf"):
            raise ValueError(
                f"--learning-rate: expected a finite number above 0, got {self.rate:g}"
            )

    @property
    def promise(self) -> Beside:
        """What is promised beside every reference."""
        from tacit.training import Beside

        return Beside(epsilon=self.epsilon, delta=self.delta)

    def written(self, run: Run) -> dict[str, str | None]:
        """Return what is written beside the release, by flag."""
        return {"--out": self.save, "--checkpoint": run.checkpoint}


def saving(
    prepared: PreparedTraining, place: Path | None, save: Callable[[Path], Any]
) -> PreparedTraining:
    """Return a training that writes its model before its release is stored.

    The other way round a release could name a model that is nowhere.

    Args:
        prepared: the training.
        place: where the model goes; None for nowhere.
        save: writes the model.
    """
    if place is None:
        return prepared

    def fit(run: Indistinguishable) -> Release[Any]:
        # trained and paid for
        release = prepared.fit(run)
        save(place)
        return release

    return replace(prepared, fit=fit)


def tell_model(destination: Destination, saved: Path | None) -> None:
    """Say where the model was written, if it was."""
    if saved is not None:
        line(destination.json.console, "model", str(saved))
