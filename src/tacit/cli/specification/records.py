"""Labelled records of a file: pictures or vectors of an .npz, texts of a table."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import typer

from tacit._ground.checks import positive
from tacit._ground.files import read_bytes
from tacit._ground.reprs import shown


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
        str, typer.Option(help="Array or column of labels, or array (n, K) by class.")
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
