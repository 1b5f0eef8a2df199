"""``tacit specification make``: describe a model or a task, with noise, in one file."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import typer

from tacit._ground.checks import positive
from tacit._ground.files import read_bytes
from tacit._ground.reprs import shown
from tacit.cli.console import line
from tacit.cli.options import Chosen, Only, grouped
from tacit.cli.output import json_output, new_file
from tacit.cli.publishing import Destination, Drawing, Source, publish, tell_release
from tacit.releases import Release
from tacit.specifications.methods import (
    ClassScatter,
    Description,
    FeatureMean,
    LabelCodes,
    ReplacedRecord,
    SharedFactors,
)
from tacit.specifications.schedule import DELTA

if TYPE_CHECKING:
    from tacit.specifications import PreparedSpecification


@dataclass(frozen=True, eq=False)
class FileRecords:
    """What a file holds.

    Attributes:
        inputs: as a backbone reads them.
        targets: (n,) labels, or (n, K) numbers by class.
        fingerprint: SHA-256 of the file.
    """

    inputs: Any
    targets: Any
    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class RecordFlags:
    """The flags of how records are read."""

    panel: ClassVar[str] = "Records"

    inputs: Annotated[str, typer.Option(help="Array of inputs, or column of texts.")] = "inputs"
    labels: Annotated[
        str,
        typer.Option("--label", help="Array or column of labels, or array (n, K) by class."),
    ] = "labels"
    max_pixel: Annotated[
        float | None,
        typer.Option(
            help="Largest number that a pixel can have, whatever yours have: 255 of integers and 1 "
            "of other numbers when left out.",
            show_default=False,
        ),
    ] = None

    def read(self, path: str) -> FileRecords:
        """Return the records of a file.

        Raises:
            ValueError: as ``read_records``.
        """
        return read_records(path, self.inputs, self.labels, self.max_pixel)


def read_records(
    path: str, inputs: str, targets: str, max_pixel: float | None = None
) -> FileRecords:
    """Return the records of an .npz (arrays by name) or of a table (columns by name).

    Args:
        path: ``.npz``, ``.csv``, ``.csv.gz``, ``.jsonl`` or ``.jsonl.gz``.
        inputs: name of the array of inputs, or of the column of texts.
        targets: name of the labels; in an .npz also of (n, K) numbers by class.
        max_pixel: by which the inputs are divided; None for not at all.

    Raises:
        ValueError: no such file, array or column, arrays of different length, or inputs that are
            no numbers beside ``max_pixel``.
    """
    from tacit.adapters.tables import KINDS, read_table

    if max_pixel is not None:
        positive("--max-pixel", max_pixel)
    # read once: the digest is of the bytes that are used
    content = read_bytes("data", path)
    fingerprint = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if max_pixel is not None and not path.endswith(".npz"):
        raise ValueError("--max-pixel: expected pictures of an .npz beside it")
    if path.endswith(KINDS):
        rows = read_table(Path(path), (inputs, targets))
        return FileRecords([row[0] for row in rows], [row[1] for row in rows], fingerprint)
    if not path.endswith(".npz"):
        raise ValueError(
            f"data: expected an .npz or a table ({', '.join(KINDS)}), got {shown(path)}"
        )
    try:
        # objects in an archive would run code
        with np.load(io.BytesIO(content), allow_pickle=False) as held:
            missing = [name for name in (inputs, targets) if name not in held.files]
            if missing:
                raise ValueError(
                    f"data: expected an array {missing[0]!r} among the {len(held.files)} of "
                    f"{path}, got none"
                )
            found, labels = held[inputs], held[targets]
    except (zipfile.BadZipFile, EOFError, OSError, KeyError):
        raise ValueError(f"data: cannot read {path}: it is no .npz, or is damaged") from None
    except ValueError as error:
        raise ValueError(
            str(error) if str(error).startswith("data: ") else f"data: cannot read {path}"
        ) from None
    if found.ndim == 0 or labels.ndim == 0 or len(found) != len(labels):
        raise ValueError(f"data: expected {inputs!r} and {targets!r} of one length in {path}")
    if max_pixel is not None:
        if found.dtype.kind not in "fiub":
            raise ValueError("--max-pixel: expected pictures beside it, got other inputs")
        found = found / max_pixel
    return FileRecords(found, labels, fingerprint)


@dataclass(frozen=True, kw_only=True)
class SpecificationPromiseFlags:
    """The flags of what is promised."""

    panel: ClassVar[str] = "Promise"

    epsilon: Annotated[
        float | None, typer.Option(help="ε for replacing one record. Needed unless --unprotected.")
    ] = None
    delta: Annotated[float, typer.Option(help="δ.")] = DELTA
    no_noise: Annotated[
        bool,
        typer.Option("--unprotected", help="Draw no noise: no guarantee, to be kept and not sent."),
    ] = False

    def promise(self) -> ReplacedRecord | None:
        """Return the promise asked for; none without noise."""
        if self.no_noise:
            if self.epsilon is not None:
                raise ValueError("--epsilon: expected none beside --unprotected")
            return None
        if self.epsilon is None:
            raise ValueError("--epsilon: expected a number > 0, or --unprotected, got none")
        try:
            return ReplacedRecord(epsilon=self.epsilon, delta=self.delta)
        except ValueError as error:
            raise ValueError(f"--{error}") from None


@dataclass(frozen=True, kw_only=True)
class SharedNetworkFlags:
    """The flags of the network that everyone shares."""

    panel: ClassVar[str] = "Shared network"

    backbone: Annotated[
        str,
        typer.Option(help="tacit/vision, tacit/small, a Hugging Face name or a folder."),
    ] = "tacit/vision"
    all_numbers: Annotated[
        bool,
        typer.Option(
            "--all-numbers",
            help="Keep every number of the factors, without projecting them to a public subspace.",
        ),
    ] = False

    def space(self, factors: SharedFactors) -> str | SharedFactors:
        """Return what records are described in."""
        if self.all_numbers:
            return factors
        if factors != SharedFactors():
            raise ValueError(
                "--rank, --target-modules: expected --all-numbers beside them, as a public "
                "subspace has its own"
            )
        return "public"


@dataclass(frozen=True, kw_only=True)
class DescribedRecords(RecordFlags):
    """The records that are described."""

    data: Annotated[
        str, typer.Argument(help="Labelled records: an .npz, or a table of texts (.csv, .jsonl).")
    ]


@dataclass(frozen=True, kw_only=True)
class SpecificationFile(Drawing):
    """The file of a specification, and where else its release goes."""

    output: Annotated[
        str,
        typer.Option("--out", help="File to write, with its release beside it as .json."),
    ]


@grouped
def make(
    *,
    task: Annotated[
        bool, typer.Option("--task", help="Describe what is asked for; else what a model can do.")
    ] = False,
    about: Annotated[Description, Only("classes", "targets", "title")],
    promised: SpecificationPromiseFlags,
    objective: Annotated[
        LabelCodes | ClassScatter | FeatureMean,
        Chosen("--objective", "labels", "What is described of the records."),
    ],
    shared: SharedNetworkFlags,
    factors: Annotated[SharedFactors, Only("rank", "layers")],
    reading: DescribedRecords,
    flags: SpecificationFile,
) -> None:
    """Describe a model or a task by a noisy step of a shared public network, or several.

    Each record's gradient by the network's last layers is multiplied by a shared random matrix,
    projected to public directions and clipped; their mean gets Gaussian noise. Files of the same
    backbone and settings are compared by their cosine.
    """
    from tacit.ledger.notions import APPROXIMATE_DP, GAUSSIAN_DP
    from tacit.specifications import prepare_specification, save_specification

    # flags that contradict each other and files that exist, before anything is read
    promise, space = promised.promise(), shared.space(factors)
    if flags.ledger is not None and flags.secret is None:
        raise ValueError("--secret: expected the name that --ledger counts under, got none")
    if promise is None and flags.certificate is not None:
        raise ValueError(
            "--certificate: expected none beside --unprotected, which guarantees nothing"
        )
    data, output = reading.data, flags.output
    beside = _beside(output)
    place = new_file("--out", output, flags.force)
    new_file("--out", beside, flags.force)
    records = reading.read(data)
    # the digest is the file's: records of another file are another secret
    source = Source(
        path=data,
        name=Path(data).name,
        fingerprint=records.fingerprint,
        rows=len(records.targets),
    )

    def prepare() -> PreparedSpecification:
        made = prepare_specification(
            records.targets,
            records.inputs,
            promise,
            objective,
            about=replace(about, kind="task" if task else "model"),
            backbone=shared.backbone,
            space=space,
            rng=flags.seed,
        )
        if flags.dry_run:
            _tell_clip(made, flags)
        return made

    def tell(destination: Destination, release: Release[Any]) -> None:
        console, made = destination.json.console, release.details.specification
        line(console, "data", f"{release.details.records:,} records")
        line(console, "file", f"{place}, {made.revision[:23]}…")
        tell_release(destination, release, kept=_kept(release, output, beside))

    # drawn, paid for, written and told as every release is
    publish(
        prepare,
        flags,
        source,
        spends=GAUSSIAN_DP if objective.schedule.full else APPROXIMATE_DP,
        others={"--out": output, "--out (its release)": beside},
        store=lambda release: save_specification(release, str(place)),
        tell=tell,
    )


def _beside(output: str) -> str:
    """Return where the release of a specification goes."""
    if not output.endswith(".safetensors"):
        raise ValueError(f"--out: expected a name that ends in .safetensors, got {output!r}")
    return f"{output.removesuffix('.safetensors')}.json"


def _kept(release: Release[Any], output: str, beside: str) -> str:
    """Say what of all that was written is the holder's."""
    if not release.details.specification.guarantees:
        return "both files and this output are the holder's: none of it may be published"
    both = f"{os.path.basename(output)} and {os.path.basename(beside)}"
    return f"this output is the holder's: what may be published is {both}"


def _tell_clip(prepared: PreparedSpecification, flags: Drawing) -> None:
    """Say how large the noise is beside what one record may add."""
    from tacit.text import significant

    clip, error = prepared.asked.clip, prepared.expected[0].error
    words = f"{significant(clip)}: one deviation of the noise is {significant(error / clip)} of it"
    line(json_output(flags.json, flags.force).console, "clip", words)
