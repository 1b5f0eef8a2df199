"""Flags that the commands of training share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from tacit.cli.publishing import Attacking


@dataclass(frozen=True, kw_only=True)
class TrainingFlags(Attacking):
    """Budget, loop and destination of a training run."""

    epsilon: Annotated[
        float, typer.Option(help="ε of the whole run beside each reference, with --delta.")
    ] = 4.0
    delta: Annotated[float, typer.Option(help="δ, with --epsilon.")] = 1e-5
    passes: Annotated[
        int | None, typer.Option(help="Passes over the data; the command's own when left out.")
    ] = None
    batch: Annotated[
        int | None, typer.Option(help="Examples in a round; the command's own when left out.")
    ] = None
    rate: Annotated[
        float | None, typer.Option(help="Learning rate; the command's own when left out.")
    ] = None
    noise: Annotated[
        str, typer.Option(help="optimal, or isotropic of the same certificate, to compare with.")
    ] = "optimal"
    checkpoint: Annotated[
        str | None,
        typer.Option(help="Folder that survives a crash: the same command goes on from it."),
    ] = None
    save: Annotated[str | None, typer.Option(help="Where the trained model is written.")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ledger is not None and self.secret is None:
            raise ValueError("--secret: expected the name that --ledger counts under, got none")
        if self.rate is not None and not 0.0 < self.rate < float("inf"):
            raise ValueError(f"--rate: expected a finite number above 0, got {self.rate:g}")

    def written(self) -> dict[str, str | None]:
        """Return what is written beside the release, by flag."""
        return {"--save": self.save, "--checkpoint": self.checkpoint}


@dataclass(frozen=True, kw_only=True)
class ShapedFlags(TrainingFlags):
    """The same, where what shapes the noise can be chosen."""

    gram: Annotated[
        str,
        typer.Option(
            help="What shapes the noise: the inner products of all gradients (exact), of the last "
            "layer's (forward), or none."
        ),
    ] = "exact"
