"""``tacit hidden``: the geometry of a layer, releases of its states, attacks on them."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer
from rich.text import Text

from tacit._ground.checks import integer, positive
from tacit.cli.console import line
from tacit.cli.hidden.inputs import (
    Bank,
    Calibration,
    Codewords,
    KlBudgets,
    Layer,
    Prompts,
    Source,
    listed,
    sizes_of,
    words,
)
from tacit.cli.options import Force, Json, grouped
from tacit.cli.output import json_output, new_file
from tacit.compute import progress_reports

app = typer.Typer(
    help="Hidden states of a language model: measure a layer, release it, attack it.",
    no_args_is_help=True,
)

Mechanism = Annotated[str, typer.Option(help="A Gaussian design, such as isotropic.")]
KlBudget = Annotated[float, typer.Option(help="K = ½ tr(FΣ) that the noise may cost, in nats.")]
Out = Annotated[str, typer.Option(help="Safetensors file to write.")]


@app.command()
@grouped
def geometry(
    layer: Layer,
    calibration: Calibration = 2000,
    json: Json = None,
    force: Force = False,
    *,
    source: Source,
) -> None:
    """Measure where a layer's last state carries the prediction, and where prompts differ."""
    output = json_output(json, force, {"--texts": source.texts})
    found, prefixes = source.prepare(layer, bank=1, calibration=calibration)
    from tacit.hidden_states.geometry.estimation import measure_geometry as measure

    result = measure(found, layer, prefixes.calibration, rng=source.seed)
    numbers = {
        field.name: value
        for field in dataclasses.fields(result)
        if isinstance(value := getattr(result, field.name), (int, float, str))
    }
    output.write({**numbers, "notes": list(result.notes), "spectrum": result.spectrum.tolist()})
    console = output.console
    console.print(
        Text(
            f"Layer {layer} of {found.name}: {result.effective_rank} of {result.width} directions "
            "hold 95% of the Fisher information.",
            "bold",
        )
    )
    line(console, "energy", f"{result.energy:.1%} in the {result.rank} leading directions")
    line(console, "coupling", f"{result.coupling:.2f} (1 for a random subspace)")
    line(console, "gain", f"{result.mahalanobis_gain:.2f} against a Mahalanobis attacker")
    for note in result.notes:
        line(console, "note", note)


@app.command()
@grouped
def sweep(
    layers: Annotated[str, typer.Option(help="Layers, separated by commas.")],
    mechanisms: Annotated[
        str, typer.Option(help="Mechanisms, separated by commas.")
    ] = "isotropic,inverse-fisher-diagonal,mahalanobis-optimal,codebook-behaviour,argmax",
    kl_budgets: KlBudgets = "1,4,16",
    epsilons: Annotated[
        str, typer.Option(help="Rényi ε of order 2 to scale noise to, separated by commas.")
    ] = "",
    codewords: Codewords = "64,256,1024",
    readings: Annotated[
        str, typer.Option(help="raw, posterior-mean, wiener, trained, posterior-behaviour.")
    ] = "raw,posterior-mean,posterior-behaviour",
    attackers: Annotated[
        str, typer.Option(help="euclidean, complement, weighted, mahalanobis.")
    ] = "euclidean,mahalanobis",
    bank: Bank = 5000,
    calibration: Calibration = 20_000,
    prompts: Prompts = 1000,
    out: Annotated[
        str | None, typer.Option(help="JSON lines to write, and to resume from.")
    ] = None,
    json: Json = None,
    force: Force = False,
    *,
    source: Source,
) -> None:
    """Measure every mechanism at every budget: what is left of the model, what it gives away."""
    output = json_output(json, force, {"--texts": source.texts, "--out": out})
    levels = listed("--layers", layers, int)
    budgets = listed("--kl-budgets", kl_budgets, float)
    targets = listed("--epsilons", epsilons, float)
    cells = listed("--codewords", codewords, int)
    names = words(mechanisms)
    found, prefixes = source.prepare(*levels, bank=bank, calibration=calibration)
    from tacit.hidden_states import sweep as measure

    with progress_reports("preparing") as progress:
        points = measure(
            found,
            levels,
            names,
            budgets,
            words(attackers),
            prefixes=prefixes,
            codewords=cells,
            epsilons=targets,
            readings=words(readings),
            sizes=sizes_of(prompts),
            out=out,
            rng=source.seed,
            progress=progress,
        )
    output.write([point.to_dict() for point in points])
    console = output.console
    counts = ", ".join(
        f"{sum(point.in_middle for point in read)} of {len(read)} under protocol {protocol}"
        for protocol in ("A", "B")
        if (read := [point for point in points if point.protocol == protocol])
    )
    console.print(Text(f"In the middle that is said to be empty: {counts}.", "bold"))
    for point in points:
        bound = "" if point.bound is None else f", at most {point.bound:.2%} proven"
        line(
            console,
            f"layer {point.layer}",
            f"{point.label}: agreement {point.agreement.value:.1%}, KL {point.kl.value:.2f}, "
            f"attack {point.best_attack.top1.value:.1%}{bound}",
        )


@app.command()
@grouped
def release(
    layer: Layer,
    out: Out,
    kl_budget: KlBudget = 4.0,
    mechanism: Mechanism = "isotropic",
    bank: Bank = 1000,
    calibration: Calibration = 2000,
    clean: Annotated[
        str | None, typer.Option(help="Also write the clean states, to this file.")
    ] = None,
    json: Json = None,
    force: Force = False,
    *,
    source: Source,
) -> None:
    """Write noisy states of the bank, with their guarantee; the noise is the operating system's."""
    output = json_output(json, force, {"--texts": source.texts, "--out": out, "--clean": clean})
    from tacit.hidden_states.noise.shapes import SHAPES
    from tacit.hidden_states.spelling import read_one

    new_file("--out", out, force)
    new_file("--clean", clean, force)
    positive("--kl-budget", kl_budget)
    shape = read_one("--mechanism", mechanism, SHAPES)
    found, prefixes = source.prepare(layer, bank=bank, calibration=calibration)
    from tacit.hidden_states.geometry.estimation import measure_geometry as measure
    from tacit.hidden_states.geometry.spread import adjacency_differences
    from tacit.hidden_states.noise.release import release as draw
    from tacit.hidden_states.noise.shapes import Designs

    public = found.states(prefixes.calibration, layer).double().cpu().numpy()
    differences = adjacency_differences(
        public, min(1000, len(public)), kind="nearest", rng=source.seed
    )
    measured = measure(found, layer, prefixes.calibration, difference_scale="raw", rng=source.seed)
    design = Designs(measured, differences).at(shape, kl_budget)
    states = found.states(prefixes.bank, layer)
    result = draw(states, design, differences=differences)
    result.save(out)
    if clean is not None:
        _write_states(clean, states)
    assert result.guarantee is not None
    output.write(
        {"guarantee": result.guarantee.to_dict(), "out": out, "states": list(states.shape)}
    )
    console = output.console
    console.print(Text(result.guarantee.describe(), "bold"))
    line(console, "released", f"{len(states):,} states of {states.shape[1]} numbers in {out}")
    line(console, "cost", f"K = {design.cost:g} nats by the quadratic prediction")


@app.command()
@grouped
def attack(
    layer: Layer,
    released: Annotated[str, typer.Argument(help="Safetensors file that release wrote.")],
    metric: Annotated[str, typer.Option(help="euclidean or mahalanobis.")] = "mahalanobis",
    bank: Bank = 1000,
    calibration: Calibration = 2000,
    json: Json = None,
    force: Force = False,
    *,
    source: Source,
) -> None:
    """Find the prompts behind released states, knowing the bank and the covariance.

    Give the model, texts, sizes and seed that the release was made with.
    """
    output = json_output(json, force, {"--texts": source.texts, "RELEASED": released})
    import numpy as np

    from tacit._ground.checks import choice

    choice("--metric", metric, ("euclidean", "mahalanobis"))
    from tacit.hidden_states.noise.release import HiddenRelease

    found_release = HiddenRelease.load(released)
    integer("--bank", bank, minimum=len(found_release.states))
    found, prefixes = source.prepare(layer, bank=bank, calibration=calibration)
    from tacit.attacks.retrieval.attack import retrieve

    options: dict[str, Any] = (
        {} if metric == "euclidean" else {"covariance": found_release.design.covariance}
    )
    result = retrieve(
        found.states(prefixes.bank, layer),
        found_release.states,
        np.arange(len(found_release.states)),
        metric=metric,
        last_tokens=prefixes.bank[:, -1].numpy(),
        rng=source.seed,
        **options,
    )
    output.write(result.to_dict())
    console = output.console
    low, high = result.top1_interval
    console.print(
        Text(
            f"The {metric} attacker names {result.top1:.1%} [{low:.1%}, {high:.1%}] of "
            f"{result.queries:,} prompts among {result.bank:,}.",
            "bold",
        )
    )
    line(console, "top 10", f"{result.top10:.1%}")
    line(console, "top 100", f"{result.top100:.1%}")


@app.command()
@grouped
def codebook(
    layer: Layer,
    out: Out,
    codewords: Annotated[int, typer.Option(help="C, codewords.")] = 256,
    metric: Annotated[
        str, typer.Option(help="euclidean, fisher, behaviour, decision or argmax.")
    ] = "behaviour",
    bank: Bank = 1000,
    calibration: Calibration = 5000,
    json: Json = None,
    force: Force = False,
    *,
    source: Source,
) -> None:
    """Fit a codebook on public prompts, save it, and certify its codes of the bank."""
    output = json_output(json, force, {"--texts": source.texts, "--out": out})
    from tacit.hidden_states.audit.cells import read_code

    new_file("--out", out, force)
    mechanism = read_code("--metric", metric)
    integer("--codewords", codewords, minimum=2, maximum=calibration)
    found, prefixes = source.prepare(layer, bank=bank, calibration=calibration)
    from tacit.hidden_states.audit.cell_points import CodeTrial
    from tacit.hidden_states.audit.laboratory import Laboratory, Sizes

    sizes = Sizes(prompts=2, generated=0)
    laboratory = Laboratory.prepare(found, layer, prefixes, sizes, seed=source.seed)
    book = mechanism.book(laboratory, codewords, source.seed)
    certificate = CodeTrial(laboratory, book).certificate
    book.save(out)
    output.write(
        {
            "out": out,
            "codewords": book.size,
            "occupied": certificate.occupied,
            "success": certificate.success.to_dict(),
            "information": certificate.information.to_dict(),
        }
    )
    console = output.console
    console.print(Text(certificate.success.describe(), "bold"))
    line(console, "information", certificate.information.describe())
    line(console, "codebook", f"{book.size:,} codewords in {out}")


def _write_states(path: str, states: Any) -> None:
    from safetensors.torch import save

    from tacit._ground.files import write_bytes_atomic

    content = save({"states": states.contiguous()}, {"format": "tacit-clean-states-1"})
    write_bytes_atomic("--clean", path, content)
