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
            help="File like DATA to measure on, best one that is public; a tenth of DATA's records "
            "is kept apart when left out, each picked by itself. At most 500 are measured."
        ),
    ] = None
    most: Annotated[
        int | None,
        typer.Option("--records", help="Learn from about so many records, each picked by itself."),
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
            "batch": min(max(1, count // 8), LARGEST_BATCH) if self.batch is None else self.batch,
            "rate": self.rate,
            "targets": self.target if self.target == "all" else self.target.split(","),
            "micro_batch": self.micro_batch,
            "precision": self.precision,
            "rng": self.seed,
            "progress": True,
        }

    def read(self, model: Pretrained, data: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the records to learn from and those to measure on."""
        from tacit._ground.checks import integer
        from tacit.adapters import kept_apart, read_records

        taken = getattr(model.network.config, "max_position_embeddings", LENGTH)
        length = min(LENGTH, taken) if self.length is None else self.length
        asked: dict[str, Any] = {"length": length, "text": self.text, "label": self.label}
        rows, classes = read_records(model, data, **asked)
        if self.held_out is not None:
            apart, _ = read_records(model, self.held_out, **asked, classes=classes or None)
        else:
            rows, apart = kept_apart(rows)
        apart = {name: value[:MEASURED] for name, value in apart.items()}
        if self.most is not None:
            # by a share, for a record that displaces another changes two
            share = integer("--records", self.most, minimum=1) / len(rows["input_ids"])
            rows = rows if share >= 1.0 else kept_apart(rows, share, order=1)[1]
        return rows, apart


@dataclass(frozen=True, kw_only=True)
class FitFlags(AdapterFlags, Drawing):
    """The same, and what pays for a run that is released."""

    def __post_init__(self) -> None:
        Drawing.__post_init__(self)
        if self.ledger is not None and self.secret is None:
            raise ValueError("--secret: expected the name that --ledger counts under, got none")


def digest_of(rows: dict[str, torch.Tensor]) -> str:
    """Return the SHA-256 of records."""
    import hashlib

    found = hashlib.sha256()
    for name in sorted(rows):
        found.update(f"{name}{tuple(rows[name].shape)}".encode())
        found.update(rows[name].contiguous().numpy().tobytes())
    return f"sha256:{found.hexdigest()}"
