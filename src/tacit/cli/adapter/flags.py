"""Flags that training and auditing an adapter share, and what is made of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.publishing import Drawing, Telling

if TYPE_CHECKING:
    import torch

    from tacit.adapters import Method
    from tacit.adapters.texts import Pretrained

DATA = typer.Argument(
    metavar="DATA",
    help=".txt, .txt.gz or a folder of them; .csv or .jsonl, gzipped or not, with a column --text, "
    "and --label for a model that classifies.",
    show_default=False,
)
MODEL = typer.Argument(
    metavar="MODEL",
    help="Folder or name of a checkpoint with a head, or tacit/small.",
    show_default=False,
)
LENGTH, LARGEST_BATCH = 64, 128
RANK, CLIP, EPSILON = 16, 1.0, 8.0
# Held-out records that are measured, at most.
MEASURED = 500


@dataclass(frozen=True, kw_only=True)
class AdapterFlags(Telling):
    """Method, budget, loop and records of a fine-tuning run."""

    method: Annotated[
        str,
        typer.Option(
            help="dp-lora-fa (noise on B, A fixed), noisy-projection (a fresh A a step), dp-sgd "
            "(noise on W), or lora-fa (no noise, no guarantee)."
        ),
    ] = "dp-lora-fa"
    rank: Annotated[
        int | None, typer.Option(help="Rank of the adapter, 16 when left out; dp-sgd has none.")
    ] = None
    clip: Annotated[
        float | None,
        typer.Option(help="Largest norm of a record's gradient, over all layers; 1."),
    ] = None
    clipping: Annotated[
        str | None,
        typer.Option(help="joint (the default): one factor for all layers; layers: each its own."),
    ] = None
    epsilon: Annotated[
        float | None, typer.Option(help="ε of the whole run, with --delta; 8 when left out.")
    ] = None
    delta: Annotated[float, typer.Option(help="δ, with --epsilon.")] = 1e-5
    steps: Annotated[int, typer.Option(help="Steps.")] = 60
    batch: Annotated[
        int | None,
        typer.Option(
            help="Records expected in a step, drawn by coins; an eighth of all, 128 at most."
        ),
    ] = None
    rate: Annotated[float, typer.Option(help="Learning rate of Adam.")] = 0.01
    target: Annotated[
        str,
        typer.Option(help="Names or endings of linear layers, with commas; all but a token head."),
    ] = "all"
    length: Annotated[
        int | None, typer.Option(help="Tokens of a record, at most; 64, or what the model takes.")
    ] = None
    text: Annotated[str, typer.Option(help="Column of a table.")] = "text"
    label: Annotated[str, typer.Option(help="Column of the class.")] = "label"
    held_out: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|N",
            help="File like DATA to measure on, best one that is public, or how many records at "
            "the end of DATA nothing is learned from; nothing is measured when left out.",
        ),
    ] = None
    sampling_rate: Annotated[
        float | None,
        typer.Option(
            help="Probability of each record in a step, declared beside --batch without looking at "
            "the records; --batch over their number when left out, which is then public."
        ),
    ] = None
    micro_batch: Annotated[int, typer.Option(help="Records in one forward pass.")] = 32
    precision: Annotated[str, typer.Option(help="float32, or bfloat16 for the passes.")] = "float32"
    device: Annotated[str, typer.Option(help="Where it computes.")] = "cpu"

    def chosen(self) -> Method:
        """Return the method asked for."""
        from tacit._ground.checks import choice
        from tacit.adapters import DPSGD, DPLoRAFA, LoRAFA, NoisyProjection

        name = choice(
            "--method", self.method, ("dp-lora-fa", "noisy-projection", "dp-sgd", "lora-fa")
        )
        self._check_read(name)
        rank = RANK if self.rank is None else self.rank
        if name == "lora-fa":
            return LoRAFA(rank=rank)
        clipped: dict[str, Any] = {
            "clip": CLIP if self.clip is None else self.clip,
            "clipping": self.clipping or "joint",
        }
        if name == "dp-sgd":
            return DPSGD(**clipped)
        kind: Any = DPLoRAFA if name == "dp-lora-fa" else NoisyProjection
        made: Method = kind(rank=rank, **clipped)
        return made

    def _check_read(self, name: str) -> None:
        """Refuse a flag that the method would not read."""
        unread: dict[str, dict[str, Any]] = {
            "dp-sgd": {"--rank": self.rank},
            "lora-fa": {"--clip": self.clip, "--clipping": self.clipping,
                        "--epsilon": self.epsilon},
        }  # fmt: skip
        for flag, given in unread.get(name, {}).items():
            if given is not None:
                raise ValueError(f"{flag}: expected none beside --method {name}, got {given}")

    def settings(self, count: int) -> dict[str, Any]:
        """Return what `prepare_adapter` takes, for so many records."""
        private = self.method != "lora-fa"
        return {
            "epsilon": (EPSILON if self.epsilon is None else self.epsilon) if private else math.inf,
            "delta": self.delta,
            "steps": self.steps,
            "batch": self._batch(count),
            "sampling_rate": self.sampling_rate,
            "rate": self.rate,
            "targets": self.target if self.target == "all" else self.target.split(","),
            "micro_batch": self.micro_batch,
            "precision": self.precision,
            "rng": self.seed,
            "progress": True,
        }

    def _batch(self, count: int) -> int:
        if self.batch is not None:
            return self.batch
        if self.sampling_rate is not None:
            raise ValueError("--batch: expected the records expected in a step, got none")
        return min(max(1, count // 8), LARGEST_BATCH)

    def read(self, model: Pretrained, data: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return the records to learn from and those to measure on."""
        from tacit.adapters import read_records

        taken = getattr(model.network.config, "max_position_embeddings", LENGTH)
        length = min(LENGTH, taken) if self.length is None else self.length
        asked: dict[str, Any] = {"length": length, "text": self.text, "label": self.label}
        rows, classes = read_records(model, data, **asked)
        if self.held_out is None:
            return rows, None
        if self.held_out.isdecimal():
            rows, apart = last_apart(rows, int(self.held_out))
        else:
            apart, _ = read_records(model, self.held_out, **asked, classes=classes or None)
        return rows, {name: value[:MEASURED] for name, value in apart.items()}


@dataclass(frozen=True, kw_only=True)
class FitFlags(AdapterFlags, Drawing):
    """The same, and what pays for a run that is released."""

    def __post_init__(self) -> None:
        Drawing.__post_init__(self)
        if self.ledger is not None and self.secret is None:
            raise ValueError("--secret: expected the name that --ledger counts under, got none")


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


def digest_of(rows: dict[str, torch.Tensor]) -> str:
    """Return the SHA-256 of records."""
    import hashlib

    found = hashlib.sha256()
    for name in sorted(rows):
        found.update(f"{name}{tuple(rows[name].shape)}".encode())
        found.update(rows[name].contiguous().numpy().tobytes())
    return f"sha256:{found.hexdigest()}"
