"""``tacit training poisoning``: one source hides a trigger; how much of it the model learns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from tacit.cli.completion import offered
from tacit.cli.console import line
from tacit.cli.options import Only, grouped
from tacit.cli.output import new_file
from tacit.cli.publishing import Destination, Source, kept_beside, publish, tell_release
from tacit.cli.training.flags import Passes, TrainingFlags, saving, tell_model
from tacit.training.rounds import OneStep

RATE, PASSES, BATCH = 0.05, 1, 400
Images = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help=".npz of labelled images: images, labels and is_test; or x_train, y_train, x_test and "
        "y_test; or jpeg and offsets instead of images.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class PoisonFlags:
    """What the malicious source does."""

    panel: ClassVar[str] = "Poison"

    sources: Annotated[int, typer.Option(help="Number of sources that the images are split among.")]
    trigger: Annotated[
        str,
        typer.Option(
            autocompletion=offered("blended", "low-frequency"),
            help="blended (squares of random colours) or low-frequency (smooth).",
        ),
    ]
    target: Annotated[
        int, typer.Option("--target-class", help="Class that the malicious source wants.")
    ]
    alpha: Annotated[float, typer.Option(help="Share of a blended pattern in an image.")] = 0.2
    norm: Annotated[
        float, typer.Option(help="Norm of a low-frequency pattern, of pixels in 0 … 1.")
    ] = 3.0


@dataclass(frozen=True, kw_only=True)
class DefenceFlags:
    """What stands against it, and what it is measured beside."""

    panel: ClassVar[str] = "Defence"

    public: Annotated[
        int,
        typer.Option(
            "--public-images",
            help="Number of training images that belong to no source. They are learned from "
            "without noise.",
        ),
    ] = 0
    angle: Annotated[
        float,
        typer.Option(help="Largest angle between a gradient and the mean direction, in degrees."),
    ] = 90.0
    iterations: Annotated[
        int,
        typer.Option(
            help="Steps of a round. With more than 1, each round trains once more for every source."
        ),
    ] = 1
    repeats: Annotated[
        int, typer.Option(help="Runs of the reference without the malicious source.")
    ] = 2
    compare: Annotated[
        bool, typer.Option("--compare", help="Train with isotropic noise of the same ε as well.")
    ] = False


@grouped
def poisoning(
    data: Images,
    *,
    poison: PoisonFlags,
    model: Annotated[
        str | None,
        typer.Option(
            "--network",
            metavar="FILE.py:FUNCTION",
            help="What makes the module, called with channels and classes; a small convolutional "
            "network with group normalisation when left out.",
        ),
    ] = None,
    defence: DefenceFlags,
    method: Annotated[OneStep, Only("noise")],
    run: Passes,
    flags: TrainingFlags,
) -> None:
    """Poison one of several sources on purpose and measure what a model learns of it.

    The model is certified beside what each source left out would have given; clean accuracy and
    attack success are measured with and without noise.

    One pass where --epochs is left out.
    """
    from tacit._ground.checks import choice
    from tacit.ledger.notions import GAUSSIAN_DP
    from tacit.training import TrainingRecipe
    from tacit_lab.cli.images import problem_of
    from tacit_lab.poisoning import (
        PoisonedImages,
        PoisoningComparison,
        RobustAggregation,
        prepare_poisoning,
    )
    from tacit_lab.poisoning.sources import TRIGGERS, blended, low_frequency

    # refused before the images are read
    wanted = choice("--trigger", poison.trigger, TRIGGERS)
    saved = new_file("--out", flags.save, flags.force)
    rate = RATE if flags.rate is None else flags.rate
    problem = problem_of(data, model, public=defence.public, rate=rate)
    shape = problem.shape

    def prepare() -> Any:
        images = PoisonedImages(
            data=problem.data,
            test=problem.test,
            trigger=blended(shape, alpha=poison.alpha)
            if wanted == "blended"
            else low_frequency(shape, norm=poison.norm, frequencies=min(4, *shape[1:])),
            target=poison.target,
            sources=poison.sources,
            batch=BATCH if flags.batch is None else flags.batch,
            remarks=problem.remarks,
        )
        # without noise, on images that belong to no source
        problem.pretrain()
        prepared = prepare_poisoning(
            TrainingRecipe(model=problem.model, optimizer=problem.optimizer),
            images,
            flags.promise,
            run.lasting(passes=PASSES),
            method=RobustAggregation(
                angle=defence.angle, iterations=defence.iterations, noise=method.noise
            ),
            # --no-attack plays no attack
            comparison=PoisoningComparison(
                repeats=defence.repeats if flags.attack else 0, compare=defence.compare
            ),
            rng=flags.seed,
        )
        return saving(prepared, saved, problem.save)

    def tell(destination: Destination, release: Any) -> None:
        line(destination.json.console, "data", problem.told)
        tell_release(destination, release, kept_beside(release, flags.save))
        tell_model(destination, saved)

    source = Source(
        path=data, name=Path(data).name, fingerprint=problem.fingerprint, rows=len(problem.data)
    )
    publish(prepare, flags, source, spends=GAUSSIAN_DP, others=flags.written(run), tell=tell)
