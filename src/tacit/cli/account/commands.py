"""``tacit account``: what a mechanism guarantees, or the noise that a guarantee needs."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from tacit.cli.account.answer import Mechanism, Output, answer
from tacit.cli.account.rivals import guessed_noise, projection_rivals
from tacit.cli.options import grouped

app = typer.Typer(
    help="Account for a mechanism: δ(ε), composed and subsampled, exact but for rounding up.\n\n"
    "Given its noise, print ε at --delta (or δ at --epsilon), the advantage and the success of any "
    "attacker. Without it, find the least noise for --epsilon and --delta. Published bounds stand "
    "beside ours where there are any.",
    no_args_is_help=True,
)

Steps = Annotated[int, typer.Option(help="How many releases are composed.")]
Dim = Annotated[int, typer.Option(help="Dimension d.")]
Rank = Annotated[int, typer.Option(help="Rank r of the projection or sketch.")]
Sensitivity = Annotated[float, typer.Option(help="Largest distance of two neighbours' outputs.")]
Rate = Annotated[float, typer.Option(help="Probability that a record is in a step's sample.")]
Neighbours = Annotated[str, typer.Option(help="add-remove or replace (one record).")]
Multiplier = Annotated[
    float | None, typer.Option(help="Noise standard deviation over the clipping norm.")
]


@app.command()
@grouped
def gaussian(
    noise_std: Annotated[float | None, typer.Option(help="Noise standard deviation.")] = None,
    sensitivity: Sensitivity = 1.0,
    steps: Steps = 1,
    *,
    output: Output,
) -> None:
    """Gaussian noise on a vector (exact at every ε, unlike the classical calibration)."""
    from tacit._ground.checks import integer
    from tacit.accounting import gaussian as profile

    # T shifts of a Gaussian compose to one shift, √T times as long
    length = math.sqrt(integer("--steps", steps, minimum=1)) * (1 + 1e-15)
    mechanism = Mechanism(
        "gaussian",
        "noise-std",
        noise_std,
        {"sensitivity": sensitivity, "steps": steps},
        lambda std: profile(sensitivity * length, std),
    )
    answer(mechanism, output)


@app.command()
@grouped
def laplace(
    scale: Annotated[float | None, typer.Option(help="Scale of the Laplace noise.")] = None,
    sensitivity: Sensitivity = 1.0,
    steps: Steps = 1,
    *,
    output: Output,
) -> None:
    """Laplace noise on a number."""
    from tacit.accounting import laplace as profile

    mechanism = Mechanism(
        "laplace",
        "scale",
        scale,
        {"sensitivity": sensitivity, "steps": steps},
        lambda width: profile(sensitivity, width) * steps,
    )
    answer(mechanism, output)


@app.command()
@grouped
def randomized_response(
    truth_probability: Annotated[
        float | None, typer.Option(help="Probability of reporting the truth.")
    ] = None,
    categories: Annotated[int, typer.Option(help="Number of answers.")] = 2,
    steps: Steps = 1,
    *,
    output: Output,
) -> None:
    """Report the truth with some probability, any other answer otherwise."""
    from scipy.special import expit

    from tacit._ground.checks import integer
    from tacit.accounting import randomized_response as profile

    others = integer("--categories", categories, minimum=2) - 1
    mechanism = Mechanism(
        "randomized-response",
        "truth-probability",
        truth_probability,
        {"categories": categories, "steps": steps},
        lambda truth: profile(None, categories, truth_probability=truth) * steps,
        of_search=lambda s: float(expit(1 / s - math.log(others))),
        grows=False,
    )
    answer(mechanism, output)


@app.command()
@grouped
def subsampled_gaussian(
    sampling_rate: Rate,
    steps: Steps,
    noise_multiplier: Multiplier = None,
    neighbours: Neighbours = "add-remove",
    *,
    output: Output,
) -> None:
    """DP-SGD: Gaussian noise on clipped gradients of Poisson samples."""
    from tacit.accounting import subsampled_gaussian as profile

    settings = {"sampling_rate": sampling_rate, "steps": steps, "neighbours": neighbours}
    mechanism = Mechanism(
        "subsampled-gaussian",
        "noise-multiplier",
        noise_multiplier,
        settings,
        lambda noise: profile(sampling_rate, noise, steps, neighbours),
        start=lambda target, failure: guessed_noise(settings, target, failure),
    )
    answer(mechanism, output)


@app.command()
@grouped
def random_allocation(
    steps: Annotated[int, typer.Option(help="Steps of one epoch.")],
    noise_multiplier: Multiplier = None,
    participations: Annotated[
        int, typer.Option(help="Steps of an epoch in which a record takes part.")
    ] = 1,
    epochs: Annotated[int, typer.Option(help="Number of epochs.")] = 1,
    neighbours: Neighbours = "add-remove",
    *,
    output: Output,
) -> None:
    """DP-SGD in epochs: every record draws its own k of the t steps, anew each epoch."""
    from tacit._ground.checks import integer
    from tacit.accounting import random_allocation as profile

    settings = {
        "steps": integer("--steps", steps, minimum=1),
        "participations": integer("--participations", participations, minimum=1),
        "epochs": integer("--epochs", epochs, minimum=1),
        "neighbours": neighbours,
    }
    likened = {"sampling_rate": min(participations / steps, 1.0), "steps": steps * epochs}
    mechanism = Mechanism(
        "random-allocation",
        "noise-multiplier",
        noise_multiplier,
        settings,
        lambda noise: profile(
            noise,
            steps=steps,
            participations=participations,
            epochs=epochs,
            neighbours=neighbours,
        ),
        start=lambda target, failure: guessed_noise(likened, target, failure),
    )
    answer(mechanism, output)


@app.command()
@grouped
def vector_projection(
    dim: Dim,
    rank: Rank,
    alignment: Annotated[
        float | None, typer.Option(help="Least cosine of two neighbours' unit vectors.")
    ] = None,
    steps: Steps = 1,
    *,
    output: Output,
) -> None:
    """Multiply a unit vector by a secret random projection, without noise."""
    from tacit.accounting.mechanisms.projection import vector_projection as profile
    from tacit.accounting.published import lora_theorem_1

    mechanism = Mechanism(
        "vector-projection",
        "alignment",
        alignment,
        {"dim": dim, "rank": rank, "steps": steps},
        lambda cosine: profile(dim=dim, rank=rank, alignment=cosine) * steps,
        of_search=lambda s: 1 - 1 / (1 + s),
        claim=None
        if steps > 1
        else lambda cosine, failure: lora_theorem_1(
            dim=dim, rank=rank, alignment=cosine, delta=failure
        ),
    )
    answer(mechanism, output)


@app.command()
@grouped
def noisy_projection(
    dim: Dim,
    rank: Rank,
    noise_multiplier: Multiplier = None,
    steps: Steps = 1,
    sampling_rate: Rate = 1.0,
    difference_rank: Annotated[
        int | None,
        typer.Option(help="1 where a record's gradient has rank one; any when left out."),
    ] = None,
    neighbours: Neighbours = "add-remove",
    *,
    output: Output,
) -> None:
    """M2: project gradients with their noise, M(V + Ξ), a fresh public M each step."""
    from tacit._ground.checks import integer
    from tacit.accounting import noisy_projection_steps
    from tacit.accounting.published import lora_theorem_5_steps

    settings: dict[str, Any] = {
        "dim": integer("--dim", dim, minimum=1),
        "rank": integer("--rank", rank, minimum=1),
        "sampling_rate": sampling_rate,
        "steps": steps,
        "difference_rank": difference_rank,
        "neighbours": neighbours,
    }
    spread = 1 if difference_rank is None else difference_rank
    mechanism = Mechanism(
        "noisy-projection",
        "noise-multiplier",
        noise_multiplier,
        settings,
        lambda noise: noisy_projection_steps(
            dim=dim,
            rank=rank,
            sampling_rate=sampling_rate,
            noise_multiplier=noise,
            steps=steps,
            difference_rank=difference_rank,
            neighbours=neighbours,
        ),
        claim=lambda noise, failure: lora_theorem_5_steps(
            dim=dim,
            rank=rank,
            sampling_rate=sampling_rate,
            noise_multiplier=noise,
            steps=steps,
            delta=failure,
            difference_rank=spread,
            neighbours=neighbours,
        ),
        # a projection captures about r/d of a difference's energy
        start=lambda target, failure: (
            guessed_noise(settings, target, failure) * math.sqrt(min(rank / dim, 1.0))
        ),
        rivals=lambda noise, target, failure: projection_rivals(settings, noise, target, failure),
    )
    answer(mechanism, output)


@app.command()
@grouped
def projected_plus_noise(
    dim: Dim,
    rank: Rank,
    noise_std: Annotated[
        float | None, typer.Option(help="Noise standard deviation, added after the projection.")
    ] = None,
    sensitivity: Sensitivity = 1.0,
    alignment: Annotated[
        float | None, typer.Option(help="Least cosine, where V is one column of fixed norm.")
    ] = None,
    difference_rank: Annotated[
        int | None, typer.Option(help="1 where one column changes; any when left out.")
    ] = None,
    steps: Steps = 1,
    *,
    output: Output,
) -> None:
    """M1: noise after the projection, MV + Ξ."""
    from tacit._ground.checks import integer, positive
    from tacit.accounting.mechanisms.projected_noise import projected_plus_noise as profile

    settings = {
        "dim": integer("--dim", dim, minimum=2),
        "rank": integer("--rank", rank, minimum=1),
        "sensitivity": positive("--sensitivity", sensitivity),
        "alignment": alignment,
        "difference_rank": difference_rank,
        "steps": steps,
    }
    # E M² = ((d + 1)/r + 1) I
    length = sensitivity * math.sqrt((dim + 1) / rank + 1)
    whole = {"sampling_rate": 1.0, "steps": steps}
    mechanism = Mechanism(
        "projected-plus-noise",
        "noise-std",
        noise_std,
        settings,
        lambda std: (
            profile(
                dim=dim,
                rank=rank,
                sensitivity=sensitivity,
                noise_std=std,
                alignment=alignment,
                difference_rank=difference_rank,
            )
            * steps
        ),
        start=lambda target, failure: length * guessed_noise(whole, target, failure),
    )
    answer(mechanism, output)


@app.command()
@grouped
def sketch(
    dim: Dim,
    rank: Rank,
    gamma: Annotated[
        float | None, typer.Option(help="Covariance stability: ratio in [1-γ, 1+γ].")
    ] = None,
    one_order: Annotated[
        bool, typer.Option("--one-order", help="Stability is known in one order only.")
    ] = False,
    steps: Steps = 1,
    *,
    output: Output,
) -> None:
    """PAVE: a compact specification, columns of a Gaussian sketch whose matrix stays secret."""
    from tacit.accounting.mechanisms.sketch import sketch as profile
    from tacit.accounting.published import pave_theorem_3_5

    mechanism = Mechanism(
        "sketch",
        "gamma",
        gamma,
        {"dim": dim, "rank": rank, "both_orders": not one_order, "steps": steps},
        lambda gamma: profile(rank=rank, dim=dim, gamma=gamma, both_orders=not one_order) * steps,
        of_search=lambda s: 1 / (1 + s),
        grows=False,
        claim=None
        if steps > 1
        else lambda stability, failure: pave_theorem_3_5(
            rank=rank, dim=dim, gamma=stability, delta=failure, both_orders=not one_order
        ),
    )
    answer(mechanism, output)
