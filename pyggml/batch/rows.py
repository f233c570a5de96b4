"""The rows of a job: a file of JSON lines, plain or in the format of OpenAI's batch API, or a Parquet file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from functools import cached_property  # noqa: TID251 -- a front end, of objects that no other thread has
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyggml import InvalidParameterError, MissingPackageError

if TYPE_CHECKING:
    import pyarrow as pa

_READ_BYTES = 2**20
_ROWS_AT_ONCE = 1024
_OPENAI = {"custom_id", "url", "body"}

Row = dict[str, Any]


class Broken(str):
    """What is wrong with a row that could not be read."""

    __slots__ = ()


class Rows:
    """The rows of a file, which is read anew by every loop.

    Attributes:
        path: the file.
        is_parquet: whether it is a Parquet file, which its name says.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Names the file.

        Raises:
            InvalidParameterError: there is no such file, or it is not what its name says.
            MissingPackageError: it is a Parquet file, and pyarrow is not installed.
        """
        self.path = Path(path)
        self.is_parquet = is_parquet(self.path)
        if not self.path.is_file():
            raise InvalidParameterError(f"there is no file {self.path} with rows to answer")
        if self.is_parquet:
            require_pyarrow()
            _require_readable(self.path)

    def __iter__(self) -> Iterator[Row | Broken]:
        """Each row in order, or what is wrong with it. Empty lines are no rows."""
        return self._of_parquet() if self.is_parquet else self._of_lines()

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the file."""
        found = hashlib.sha256()
        with self.path.open("rb") as file:
            while part := file.read(_READ_BYTES):
                found.update(part)
        return found.hexdigest()

    @cached_property
    def n_rows(self) -> int:
        """Number of rows."""
        if self.is_parquet:
            import pyarrow.parquet as pq

            return int(pq.read_metadata(self.path).num_rows)
        with self.path.open("rb") as file:
            return sum(not line.isspace() for line in file)

    @cached_property
    def first(self) -> Row:
        """The first row that is not broken; an empty one if there is none."""
        return next((row for row in self if isinstance(row, dict)), {})

    @property
    def is_openai(self) -> bool:
        """Whether the rows are requests in the format of OpenAI's batch API, which the first one says."""
        return self.first.keys() >= _OPENAI

    def schema(self) -> pa.Schema:
        """The types of the columns that an Arrow table of the rows has.

        Those of a Parquet file are kept. In lines, a column whose values are all bool, all int64, all numbers or all
        text has that type; any other has JSON as text.
        """
        import pyarrow as pa

        if self.is_parquet:
            import pyarrow.parquet as pq

            return pq.read_schema(self.path).remove_metadata()
        kinds: dict[str, set[str]] = {}
        for row in self:
            if isinstance(row, dict):
                for name, value in row.items():
                    kinds.setdefault(name, set()).add(_kind(value))
        types = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64()}
        return pa.schema([(name, types.get(_common(found), pa.string())) for name, found in kinds.items()])

    def _of_lines(self) -> Iterator[Row | Broken]:
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.isspace():
                    yield _parsed(line, number)

    def _of_parquet(self) -> Iterator[Row | Broken]:
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE):
                yield from batch.to_pylist()


def is_parquet(path: Path) -> bool:
    """Whether a file's name says that it is a Parquet file."""
    return path.suffix.lower() in (".parquet", ".pq")


def require_pyarrow() -> None:
    """Makes sure that Parquet files can be read and written.

    Raises:
        MissingPackageError: pyarrow is not installed.
    """
    try:
        import pyarrow.parquet  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            'Parquet files need pyarrow: pip install "pyggml[parquet]", or use a .jsonl file'
        ) from error


def _require_readable(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        pq.read_metadata(path)
    except pa.ArrowException as error:
        raise InvalidParameterError(f"{path} is called a Parquet file and is none: {error}") from None


def _parsed(line: bytes, number: int) -> Row | Broken:
    try:
        row = json.loads(line)
    except RecursionError:
        return Broken(f"line {number} is nested too deeply")
    except ValueError as error:  # UnicodeDecodeError is one
        return Broken(f"line {number} is not JSON: {error}")
    return row if isinstance(row, dict) else Broken(f"line {number} is not a JSON object")


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return "other"
    return {bool: "bool", int: "int", float: "float", str: "str"}.get(type(value), "other")


def _common(kinds: set[str]) -> str:
    known = kinds - {"null"}
    if known == {"int", "float"}:
        return "float"
    return known.pop() if len(known) == 1 else "other"
