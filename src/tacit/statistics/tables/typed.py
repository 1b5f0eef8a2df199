"""Tables whose columns have types: Parquet and Arrow files, data frames, results of a query."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from tacit.statistics.tables.cells import plain_text

ROWS_AT_A_TIME = 1 << 16
PARQUET, ARROW = b"PAR1", b"ARROW1"


class TypedTable:
    """Record batches with named columns; rows are counted from 1, as a database does.

    Attributes:
        names: of the columns.
        notes: what has to be said of how it was read.
    """

    notes: tuple[str, ...] = ()

    def __init__(self, names: Sequence[Any], batches: Iterable[list[Any]]) -> None:
        self.names = tuple(plain_text(str(name)) for name in names)
        self._batches = batches

    def batches(self) -> Iterator[list[Any]]:
        """Yield the columns of some rows, then of the next ones."""
        yield from self._batches

    def place(self, row: int) -> str:
        """Return ``"row 7"`` for a row counted from 0."""
        return f"row {row + 1}"

    def close(self) -> None:
        """Stop reading."""
        if isinstance(self._batches, Generator):
            self._batches.close()


def typed_file(content: bytes, label: str) -> TypedTable | None:
    """Return the table of a Parquet or Arrow file, None for a file of another kind.

    Raises:
        ValueError: a file of that kind that is damaged.
    """
    try:
        if content.startswith(PARQUET):
            from pyarrow import parquet

            file = parquet.ParquetFile(pa.BufferReader(content))
            rows = file.iter_batches(ROWS_AT_A_TIME)
            return TypedTable(file.schema_arrow.names, _whole(rows, label))
        if content.startswith(ARROW):
            reader = pa.ipc.open_file(pa.BufferReader(content))
            batches = (reader.get_batch(place) for place in range(reader.num_record_batches))
            return TypedTable(reader.schema.names, _whole(batches, label))
    except (pa.ArrowException, OSError):
        raise _damaged(label) from None
    return None


def frame(source: Any) -> TypedTable:
    """Return the table of a data frame that exports itself to Arrow; its index is left out."""
    kind = type(source).__name__
    if len(getattr(source, "shape", (0, 0))) != 2:
        raise ValueError(f"data: expected a data frame, got a {kind}; give it as a frame")
    if type(source).__module__.partition(".")[0] == "pandas":
        # its own export makes columns of an index
        columns = [_series(source.iloc[:, place]) for place in range(source.shape[1])]
        return TypedTable(source.columns, [columns])
    try:
        reader = pa.RecordBatchReader.from_stream(source)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ValueError(
            f"data: expected columns that Arrow can hold, got a {kind} with others, such as "
            "integers of 128 bits"
        ) from None
    return TypedTable(reader.schema.names, (batch.columns for batch in reader))


def as_column(cells: list[Any]) -> Any:
    """Return Python values as an Arrow column: as texts where they are of several kinds."""
    try:
        return pa.array(cells)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return pa.array([None if cell is None else str(cell) for cell in cells], pa.large_string())


def _series(series: Any) -> Any:
    try:
        return _one_array(pa.Array.from_pandas(series))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        absent = series.isna().tolist()
        cells = zip(series.tolist(), absent, strict=True)
        return as_column([None if nothing else str(cell) for cell, nothing in cells])


def _one_array(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _whole(batches: Iterable[Any], label: str) -> Iterator[list[Any]]:
    try:
        for batch in batches:
            yield batch.columns
    except (pa.ArrowException, OSError):
        raise _damaged(label) from None


def _damaged(label: str) -> ValueError:
    return ValueError(f"data: {label} is not whole: it cannot be read as the table it begins as")
