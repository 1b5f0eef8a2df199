"""``tacit specification make``: describe a model or a task, with noise, in one file."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from tacit.cli.console import line
from tacit.cli.options import grouped
from tacit.cli.publishing import Destination, Drawing, tell_release
from tacit.cli.specification.records import read_records


@grouped
def make(
    *,
    data: Annotated[
        str, typer.Argument(help="Labelled records: an .npz, or a table of texts (.csv, .jsonl).")
    ],
    output: Annotated[
        str,
        typer.Option("--output", "-o", help="File to write, with its release beside it as .json."),
    ],
    classes: Annotated[
        str | None,
        typer.Option(help="Number of classes, or their names with commas: what is public of them."),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="ε for replacing one record. Needed unless --no-noise.")
    ] = None,
    delta: Annotated[float, typer.Option(help="δ.")] = 1e-5,
    no_noise: Annotated[
        bool,
        typer.Option("--no-noise", help="Draw no noise: no guarantee, to be kept and not sent."),
    ] = False,
    task: Annotated[
        bool, typer.Option("--task", help="Describe what is asked for; else what a model can do.")
    ] = False,
    backbone: Annotated[
        str,
        typer.Option(help="tacit/vision, tacit/small, a Hugging Face name or a folder."),
    ] = "tacit/vision",
    objective: Annotated[
        str,
        typer.Option(
            help="labels: classes of one name are alike. scatter: names do not matter. mean: what "
            "the inputs are, whatever their labels."
        ),
    ] = "labels",
    targets: Annotated[
        str,
        typer.Option(
            help="labels; for a model's outputs independent, where it was not trained on these "
            "records, or given-model, where it was."
        ),
    ] = "labels",
    inputs_name: Annotated[
        str, typer.Option("--inputs", help="Array of inputs, or column of texts.")
    ] = "inputs",
    labels_name: Annotated[
        str, typer.Option("--labels", help="Array or column of labels, or array (n, K) by class.")
    ] = "labels",
    max_pixel: Annotated[
        float | None,
        typer.Option(
            help="Largest number that a pixel can have, whatever yours have: 255 of integers and 1 "
            "of other numbers when left out.",
            show_default=False,
        ),
    ] = None,
    rank: Annotated[int | None, typer.Option(help="Columns of the compact factors.")] = None,
    all_numbers: Annotated[
        bool,
        typer.Option("--all-numbers", help="Keep every number of the factors: no public subspace."),
    ] = False,
    clip: Annotated[
        float | None,
        typer.Option(help="Longest that a record may be, chosen without looking at the records."),
    ] = None,
    steps: Annotated[int, typer.Option(help="Noisy steps, each of which moves the network.")] = 1,
    sampling_rate: Annotated[
        float, typer.Option(help="Chance of every record to be in a step.")
    ] = 1.0,
    step_size: Annotated[
        float, typer.Option(help="How far a step moves the layers, as a share of their norm.")
    ] = 0.05,
    title: Annotated[str | None, typer.Option(help="What is described.")] = None,
    flags: Drawing,
) -> None:
    """Describe a model or a task by a noisy step of a shared public network, or several.

    Each record's gradient by the network's last layers is multiplied by a shared random matrix,
    projected to public directions and clipped; their mean gets Gaussian noise. Files of the same
    backbone and settings are compared by their cosine.
    """
    from tacit.ledger.notions import APPROXIMATE_DP, GAUSSIAN_DP
    from tacit.specifications import prepare_specification

    if no_noise and epsilon is not None:
        raise ValueError("--epsilon: expected none beside --no-noise")
    destination = Destination.checked(
        flags, data, None, spends=GAUSSIAN_DP if sampling_rate == 1.0 else APPROXIMATE_DP,
        others={"--output": output, "--output (its release)": _beside(output)},
    )  # fmt: skip
    place = _new(output, flags.force)
    records = read_records(data, inputs_name, labels_name, max_pixel)
    prepared = prepare_specification(
        records.targets, records.inputs, backbone,
        kind="task" if task else "model", objective=objective, classes=_classes(classes),
        targets=targets, rank=rank, subspace=None if all_numbers else "public",
        method="compact" if no_noise else "dp", epsilon=epsilon, delta=delta, clip=clip,
        steps=steps, sampling_rate=sampling_rate, step_size=step_size, title=title, rng=flags.seed,
    )  # fmt: skip
    if flags.dry_run:
        _tell(prepared, destination)
        return
    destination = destination.opened()
    release = destination.draw(prepared)
    told = destination.provenance_of(
        data, fingerprint=records.fingerprint, rows=prepared.subject.count
    )
    release.save(place)
    destination.store(release, told)
    line(destination.json.console, "data", f"{prepared.subject.count:,} records")
    line(destination.json.console, "file", f"{place}, {release.specification.revision[:23]}…")
    beside = os.path.basename(_beside(output))
    if release.specification.guarantees:
        both = f"{os.path.basename(place)} and {beside}"
        kept = f"this output is the holder's: what may be published is {both}"
    else:
        kept = "both files and this output are the holder's: none of it may be published"
    tell_release(destination, release, kept=kept)


def _new(output: str, force: bool) -> str:
    from tacit.cli.output import new_file

    found = new_file("--output", output, force)
    new_file("--output", _beside(output), force)
    return str(found)


def _beside(output: str) -> str:
    """Return where the release of a specification goes."""
    if not output.endswith(".safetensors"):
        raise ValueError(f"--output: expected a name that ends in .safetensors, got {output!r}")
    return f"{output.removesuffix('.safetensors')}.json"


def _classes(given: str | None) -> int | list[str] | None:
    if given is None:
        return None
    return int(given) if given.isdigit() else [name.strip() for name in given.split(",")]


def _tell(prepared: object, destination: Destination) -> None:
    """Say what the release would be: all of its numbers have one error."""
    from tacit.specifications import PreparedSpecification
    from tacit.text import significant

    assert isinstance(prepared, PreparedSpecification)
    console, errors = destination.json.console, [held.error for held in prepared.expected]
    for guarantee in prepared.guarantees:
        line(console, "guarantee", guarantee.describe())
    told = f"± {significant(errors[0])} (one deviation) in each of {len(errors)} numbers"
    line(console, "error", f"{told}, {significant(errors[0] / prepared.asked.clip)} of the clip")
    line(console, "drawn", "nothing: this was a dry run")
    destination.json.write(
        {
            "guarantees": [guarantee.to_dict() for guarantee in prepared.guarantees],
            "expected": [vars(expected) for expected in prepared.expected],
            "description": prepared.description,
            "reproducible": prepared.reproducible,
        }
    )
    destination.tell()
