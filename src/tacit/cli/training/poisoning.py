"""``tacit training poisoning``: one source hides a trigger; how much of it the model learns."""

from __future__ import annotations

from typing import Annotated

import typer

from tacit.cli.console import line
from tacit.cli.options import grouped
from tacit.cli.output import new_file
from tacit.cli.publishing import Destination, tell_prepared, tell_release
from tacit.cli.training.flags import TrainingFlags

RATE, PASSES, BATCH = 0.05, 1, 400
Images = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help=".npz of labelled images: images, labels and is_test; or x_train, y_train, x_test and "
        "y_test; or jpeg and offsets instead of images.",
    ),
]


@grouped
def poisoning(
    *,
    data: Images,
    sources: Annotated[int, typer.Option(help="Among how many sources the images are split.")],
    trigger: Annotated[
        str, typer.Option(help="blended (squares of random colours) or low-frequency (smooth).")
    ],
    target: Annotated[int, typer.Option(help="Class that the malicious source wants.")],
    alpha: Annotated[float, typer.Option(help="Share of a blended pattern in an image.")] = 0.2,
    norm: Annotated[
        float, typer.Option(help="Norm of a low-frequency pattern, of pixels in 0 … 1.")
    ] = 3.0,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:FUNCTION",
            help="What makes the module, called with channels and classes; a small convolutional "
            "network with group normalisation when left out.",
        ),
    ] = None,
    public: Annotated[
        int,
        typer.Option(help="So many training images belong to no source: learned without noise."),
    ] = 0,
    angle: Annotated[
        float, typer.Option(help="Degrees from the mean direction that a gradient may have.")
    ] = 90.0,
    iterations: Annotated[
        int, typer.Option(help="Steps of a round; more than 1 trains once more a source.")
    ] = 1,
    repeats: Annotated[
        int, typer.Option(help="Runs of the reference without the malicious source.")
    ] = 2,
    compare: Annotated[
        bool, typer.Option("--compare", help="Train with isotropic noise of the same ε as well.")
    ] = False,
    flags: TrainingFlags,
) -> None:
    """Poison one of several sources on purpose and measure what a model learns of it.

    The model is certified beside what each source left out would have given; clean accuracy and
    attack success are measured with and without noise.
    """
    from tacit._ground.checks import choice
    from tacit.cli.training.images import problem_of, save_model
    from tacit.ledger.notions import GAUSSIAN_DP
    from tacit.training import blended, low_frequency, prepare_poisoning
    from tacit.training.poisoning.triggers import TRIGGERS

    wanted = choice("--trigger", trigger, TRIGGERS)
    destination = Destination.checked(flags, data, None, spends=GAUSSIAN_DP, others=flags.written())
    saved = new_file("--save", flags.save, flags.force)
    rate = RATE if flags.rate is None else flags.rate
    problem = problem_of(data, model, public=public, rate=rate)
    shape = problem.shape
    prepared = prepare_poisoning(
        problem.model,
        problem.data,
        test=problem.test,
        trigger=blended(shape, alpha=alpha)
        if wanted == "blended"
        else low_frequency(shape, norm=norm, frequencies=min(4, *shape[1:])),
        target=target,
        sources=sources,
        optimizer=problem.optimizer,
        epsilon=flags.epsilon,
        delta=flags.delta,
        passes=PASSES if flags.passes is None else flags.passes,
        batch=BATCH if flags.batch is None else flags.batch,
        iterations=iterations,
        angle=angle,
        noise=flags.noise,
        attack=flags.attack,
        repeats=repeats,
        compare=compare,
        checkpoint=flags.checkpoint,
        notes=problem.notes,
        rng=flags.seed,
        progress=True,
    )
    if flags.dry_run:
        tell_prepared(prepared, destination.json)
        return
    destination = destination.opened()
    release = destination.draw(prepared)
    if saved is not None:
        save_model(saved, problem)
    told = destination.provenance_of(data, fingerprint=problem.fingerprint, rows=len(problem.data))
    destination.store(release, told)
    line(destination.json.console, "data", problem.told)
    tell_release(destination, release, saved)
