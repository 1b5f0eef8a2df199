"""``tacit adapter``: fine-tune a low-rank adapter privately, audit it, show what it guarantees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias

import typer

from tacit.adapters.settings import PoissonSteps
from tacit.cli.completion import offered
from tacit.cli.console import line, tell_title
from tacit.cli.options import Chosen, Force, Json, Only, grouped
from tacit.cli.output import json_output
from tacit.cli.publishing import (
    Destination,
    Drawing,
    Source,
    Telling,
    kept_beside,
    publish,
    tell_release,
)
from tacit.cli.tables import split_names
from tacit.gradients.methods import DPSGD, DPLoRAFA, LoRAFA, NoisyProjection
from tacit.releases import Table
from tacit.runs import Run

if TYPE_CHECKING:
    import torch

    from tacit.adapters import Pretrained, TrainingRecords
    from tacit.releases import Release

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Folder or name of a checkpoint with a head, or tacit/small.",
        show_default=False,
    ),
]
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help=".txt, .txt.gz or a folder of them; .csv or .jsonl, gzipped or not, with a column "
        "--column, and --label for a model that classifies.",
        show_default=False,
    ),
]
AnyMethod: TypeAlias = Annotated[
    DPLoRAFA | NoisyProjection | DPSGD | LoRAFA,
    Chosen("--method", "dp-lora-fa", "How it is trained."),
]
Lasting: TypeAlias = Annotated[Run, Only("steps", "precision")]
Sampling: TypeAlias = Annotated[PoissonSteps, Only("batch", "sampling_rate", "micro_batch", "rate")]
LENGTH, LARGEST_BATCH, STEPS, EPSILON = 64, 128, 60, 8.0
# Held-out records that are measured, at most.
MEASURED = 500

app = typer.Typer(
    help="Fine-tune a low-rank adapter so that no record can be told from it, and audit it.",
    no_args_is_help=True,
)


@dataclass(frozen=True, kw_only=True)
class AdapterPromiseFlags:
    """The flags of what is promised."""

    panel: ClassVar[str] = "Promise"

    epsilon: Annotated[
        float | None, typer.Option(help="ε of the whole run, with --delta; 8 when left out.")
    ] = None
    delta: Annotated[float, typer.Option(help="δ, with --epsilon.")] = 1e-5
    adjacency: Annotated[
        str,
        typer.Option(
            autocompletion=offered("add-remove", "replace"),
            help="Which records are neighbours: add-remove, one more; or replace.",
        ),
    ] = "add-remove"

    def promise(self, method: Any) -> Table | None:
        """Return the promise asked for; none of a method without noise."""
        # no noise keeps no ε
        if isinstance(method, LoRAFA):
            if self.epsilon is not None:
                raise ValueError(
                    f"--epsilon: expected none beside --method lora-fa, got {self.epsilon}"
                )
            return None
        return Table(
            epsilon=EPSILON if self.epsilon is None else self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,  # type: ignore[arg-type]
        )


@dataclass(frozen=True, kw_only=True)
class AdapterDataFlags:
    """The flags of the records, the model and its layers."""

    panel: ClassVar[str] = "Records"

    model: Model
    data: Data
    target: Annotated[
        str,
        typer.Option(
            "--target-modules",
            help="Names or endings of linear layers, separated by commas. All but a token head "
            "when left out.",
        ),
    ] = "all"
    length: Annotated[
        int | None,
        typer.Option(
            "--longest",
            help="Largest number of tokens of a record. When left out 64, or fewer where the "
            "model takes fewer.",
        ),
    ] = None
    text: Annotated[str, typer.Option("--column", help="Column of the texts in a table.")] = "text"
    label: Annotated[str, typer.Option(help="Column of the class.")] = "label"
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="What --label calls classes 0, 1, …. When left out, the model's own names, or "
            "the numbers from 0.",
        ),
    ] = None
    held_out: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|N",
            help="File like DATA to measure on, best a public one; or N, to measure on the last N "
            "records of DATA, from which nothing is then learned. Nothing is measured when left "
            "out.",
        ),
    ] = None
    device: Annotated[str, typer.Option(help="Where it computes.")] = "cpu"

    @property
    def layers(self) -> str | list[str]:
        """What is adapted."""
        return self.target if self.target == "all" else self.target.split(",")

    def read(self, model: Pretrained) -> TrainingRecords:
        """Return the records to learn from and those to measure on."""
        from tacit.adapters import TrainingRecords, read_records

        # records as long as the model reads, and 64 tokens where it reads more
        most = getattr(model.network.config, "max_position_embeddings", LENGTH)
        length = min(LENGTH, most) if self.length is None else self.length
        classes = None if self.classes is None else split_names("--classes", self.classes)
        asked: dict[str, Any] = {
            "length": length,
            "text": self.text,
            "label": self.label,
            "classes": classes,
        }
        rows, _ = read_records(model, self.data, **asked)
        apart: dict[str, torch.Tensor] | None = None
        # a number counts records at the end of DATA
        if self.held_out is not None and self.held_out.isdecimal():
            rows, apart = last_apart(rows, int(self.held_out))
        elif self.held_out is not None:
            apart, _ = read_records(model, self.held_out, **asked)
        if apart is not None:
            # more would not narrow an interval that anybody reads
            apart = {name: value[:MEASURED] for name, value in apart.items()}
        return TrainingRecords(data=rows, held_out=apart, task=model.task)


@dataclass(frozen=True, kw_only=True)
class AdapterFitFlags(Drawing):
    """The flags of where a fitted adapter goes, and what pays for it."""

    save: Annotated[
        str | None,
        typer.Option("--out", help="Folder that the adapter is written to, as peft reads it."),
    ] = None
    unprotected: Annotated[
        bool,
        typer.Option("--unprotected", help="Write an adapter without noise, not to be published."),
    ] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ledger is not None and self.secret is None:
            raise ValueError("--secret: expected the name that --ledger counts under, got none")


@app.command("fit")
@grouped
def fit(
    *,
    method: AnyMethod,
    promised: AdapterPromiseFlags,
    sampling: Sampling,
    run: Annotated[Run, Only("steps", "precision", "checkpoint")],
    records: AdapterDataFlags,
    flags: AdapterFitFlags,
) -> None:
    """Fine-tune an adapter so that whether any one record was learned from cannot be told beyond ε.

    A record is one row of a table, or --longest tokens of a text. Each step draws every record by a
    coin of its own, clips what it adds and adds noise. The adapter is written in peft's format and
    loaded again before this returns.
    """
    from tacit.adapters import AdaptedLayers, AdapterFolder, load_pretrained, prepare_adapter
    from tacit.ledger.notions import APPROXIMATE_DP

    # flags that contradict each other, before a model is loaded
    promise = promised.promise(method)
    # the model with its head, and records for it
    loaded = load_pretrained(records.model, device=records.device)
    found = records.read(loaded)
    count, save = len(found.data["input_ids"]), flags.save

    def prepare() -> Any:
        folder = None
        if save is not None:
            folder = AdapterFolder(path=save, base=records.model, unprotected=flags.unprotected)
        return prepare_adapter(
            AdaptedLayers(model=loaded.network, targets=records.layers),
            found,
            method,
            promise,
            run.lasting(steps=STEPS),
            steps=_with_batch(sampling, count),
            save=folder,
            rng=flags.seed,
        )

    def tell(destination: Destination, release: Release[Any]) -> None:
        console = destination.json.console
        line(console, "data", f"{count:,} records to learn from")
        tell_release(destination, release, kept_beside(release, save))
        if save is not None:
            line(console, "model", save)

    # files that must not be one
    written = {"--out": save, "--checkpoint": run.checkpoint}
    source = _source(records.data, found)
    publish(prepare, flags, source, spends=APPROXIMATE_DP, others=written, tell=tell)


@app.command("audit")
@grouped
def audit(
    canaries: Annotated[int, typer.Option(help="Canaries; fair coins leave half out.")] = 64,
    *,
    method: AnyMethod,
    promised: AdapterPromiseFlags,
    sampling: Sampling,
    run: Lasting,
    records: AdapterDataFlags,
    flags: Telling,
) -> None:
    """Train as `fit` would, with canaries among the records, and bound ε from below by one run.

    Nothing is saved or spent: the adapter has learned canaries. The bound from below stands beside
    the certified ε, and a certificate that it passes is wrong.
    """
    from tacit.adapters import AdaptedLayers, CanaryAudit, audit_adapter, load_pretrained
    from tacit.ledger.notions import APPROXIMATE_DP

    promise = promised.promise(method)
    loaded = load_pretrained(records.model, device=records.device)
    found = records.read(loaded)
    # where it goes, before the training
    destination = Destination.checked(flags, _source(records.data, found), spends=APPROXIMATE_DP)
    count = len(found.data["input_ids"])
    release = audit_adapter(
        AdaptedLayers(model=loaded.network, targets=records.layers),
        found,
        method,
        promise,
        run.lasting(steps=STEPS),
        audit=CanaryAudit(canaries=canaries),
        steps=_with_batch(sampling, count),
        rng=flags.seed,
    )
    release = destination.stated(release)
    destination.store(release)
    console = destination.json.console
    line(console, "data", f"{count:,} records and {canaries} canaries")
    for remark in release.remarks[-2:]:
        line(console, "audit", remark)
    tell_release(destination, release, kept_beside(release, None))


@app.command("show")
def show(
    folder: Annotated[str, typer.Argument(help="Folder that `tacit adapter fit --out` wrote.")],
    json: Json = None,
    force: Force = False,
) -> None:
    """Print what an adapter guarantees, after holding its weights against the certificate's digest.

    The guarantee is worked out again from the settings; weights or numbers that disagree are
    refused.
    """
    from tacit.adapters import read_adapter
    from tacit.pages.words import lines, verdict

    output = json_output(json, force, {"FOLDER": folder})
    release = read_adapter(folder)
    # the same words as everywhere
    details, console = release.details, output.console
    tell_title(console, verdict(release))
    for label, text in lines(release):
        line(console, label, text)
    for label, text in (
        ("method", f"{release.method}, {details.schedule.steps} steps"),
        ("layers", f"{len(details.layers)}: {', '.join(details.layers[:3])}…"),
        ("publish", "neither A nor B nor BA" if release.withheld else "with A"),
    ):
        line(console, label, text)
    output.write(release.to_dict())
    output.tell()


def last_apart(
    rows: dict[str, torch.Tensor], count: int
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return all records but the last ones, and those: one more or less moves one to learn from."""
    total = len(rows["input_ids"])
    if not 1 <= count < total:
        raise ValueError(f"--held-out: expected 1 to {total - 1} of {total} records, got {count}")
    return (
        {name: value[:-count] for name, value in rows.items()},
        {name: value[-count:] for name, value in rows.items()},
    )


def _with_batch(steps: PoissonSteps, count: int) -> PoissonSteps:
    """Return steps that expect an eighth of the records where nothing else is asked for."""
    if steps.batch is not None:
        return steps
    # an eighth of the records, 128 at most
    return replace(steps, batch=min(max(1, count // 8), LARGEST_BATCH))


def _source(data: str, found: TrainingRecords) -> Source:
    from tacit.runs.identity import digest_of_tensors

    rows = found.data
    return Source(
        path=data,
        name=Path(data).name,
        fingerprint=digest_of_tensors(sorted(rows.items())),
        rows=len(rows["input_ids"]),
    )
