"""The output file of a job: JSON lines or Parquet, every row once and in order, renamed into place when complete."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyggml.batch.journal import Journal, fsync_directory
from pyggml.batch.row_processor import answer_fields
from pyggml.batch.rows import InvalidRow, Row, Rows, is_parquet

if TYPE_CHECKING:
    import pyarrow as pa

_WRITE_BATCH_ROWS = 4096


def write(path: Path, rows: Rows, journal: Journal, column: str) -> None:
    """Write the output of a job whose rows all have answers, and flush it to the disk.

    The extension of the file sets the format. An existing file is replaced atomically.
    """
    unfinished = path.with_name(f"{path.name}.writing")
    merged = _merged(rows, journal)
    if is_parquet(path):
        _write_parquet(unfinished, rows, merged, column)
    else:
        with unfinished.open("w", encoding="utf-8", errors="backslashreplace") as lines:
            lines.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in merged)
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    unfinished.replace(path)
    fsync_directory(path.parent)


def _merged(rows: Rows, journal: Journal) -> Iterator[Row]:
    for index, row in enumerate(rows):
        answer = journal[index]
        yield answer if rows.is_openai or isinstance(row, InvalidRow) else {**row, **answer}


def _write_parquet(path: Path, rows: Rows, merged: Iterator[Row], column: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema(rows, column)
    with pq.ParquetWriter(path, schema) as writer:
        while part := list(islice(merged, _WRITE_BATCH_ROWS)):
            fitted = [{field.name: fit_to_column(row.get(field.name), field.type) for field in schema} for row in part]
            writer.write_table(pa.Table.from_pylist(fitted, schema))


def _schema(rows: Rows, column: str) -> pa.Schema:
    import pyarrow as pa

    if rows.is_openai:
        return pa.schema([(name, pa.string()) for name in ("id", "custom_id", "response", "error")])
    known = rows.schema()
    taken = answer_fields(column)
    return pa.schema([*(field for field in known if field.name not in taken), *answer_schema(column)])


def answer_schema(column: str) -> pa.Schema:
    """Return the Arrow schema of the fields that answers add to prompt rows.

    Args:
        column: name of the field with the answer.
    """
    import pyarrow as pa

    fields = answer_fields(column).items()
    return pa.schema([(name, pa.int64() if kind is int else pa.string()) for name, kind in fields])


def fit_to_column(value: Any, kind: pa.DataType) -> Any:
    """Convert a value to its column's type: in a string column, other values become JSON.

    Args:
        value: the value.
        kind: the column's Arrow type.
    """
    import pyarrow as pa

    if value is None or not pa.types.is_string(kind):
        return value
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else json.dumps(value)
