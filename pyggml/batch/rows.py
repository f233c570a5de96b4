"""The rows of a job: JSON lines, plain or in the format of OpenAI's batch API, CSV, plain text or a Parquet file."""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property  # noqa: TID251 -- a front end, of objects that no other thread has
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyggml import InvalidParameterError, MissingPackageError

if TYPE_CHECKING:
    import pyarrow as pa

_READ_BYTES = 2**20
_READ_BATCH_ROWS = 1024
#: Fields of a row in the format of OpenAI's batch API.
OPENAI_FIELDS = {"custom_id", "url", "body"}

#: Extension of a file -> its format; files of rows with another one hold JSON lines.
_FORMATS = {
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    ".txt": "text",
}
_READABLE = "JSON lines (.jsonl), CSV (.csv, .tsv), plain text with a prompt per line (.txt) or Parquet (.parquet)"

Row = dict[str, Any]


class InvalidRow(str):
    """A row that cannot be read: the error message."""

    __slots__ = ()


class Rows:
    """The rows of a file. Each iteration reads the file again.

    Attributes:
        path: the file.
        format: "jsonl", "csv", "text" or "parquet", according to its extension.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Check that the file can be read.

        Raises:
            InvalidParameterError: there is no such file, its content does not match its extension, or no line of it is
                a row.
            MissingPackageError: it is a Parquet file, and pyarrow is not installed.
        """
        if not isinstance(path, (str, os.PathLike)):
            raise InvalidParameterError(
                f"source must be the path of a file of rows, not {type(path).__name__}: llm.generate_batch(prompts) "
                "and llm.chat_batch(conversations) take lists"
            )
        self.path = Path(path)
        self.format = _FORMATS.get(self.path.suffix.lower(), "jsonl")
        if not self.path.is_file():
            raise InvalidParameterError(f"there is no file {self.path} with rows to answer")
        if self.is_parquet:
            require_pyarrow()
            import pyarrow as pa
            import pyarrow.parquet as pq

            try:
                pq.read_metadata(self.path)
            except pa.ArrowException as error:
                reason = f"is not a Parquet file, despite its extension: {error}"
                raise InvalidParameterError(f"{self.path} {reason}") from None
            return
        invalid = None
        for row in self:
            if isinstance(row, dict):
                return
            invalid = invalid or row
        if invalid is not None:
            raise InvalidParameterError(f"{self.path} has no row to answer: {invalid}. Rows are {_READABLE}")

    @property
    def is_parquet(self) -> bool:
        """True for a Parquet file."""
        return self.format == "parquet"

    @property
    def is_table(self) -> bool:
        """True if all rows have the same fields, the columns of a CSV or Parquet file."""
        return self.format in ("csv", "parquet")

    def __iter__(self) -> Iterator[Row | InvalidRow]:
        """Iterate over the rows in order, skipping empty lines."""
        if self.is_parquet:
            return self._read_parquet()
        return self._read_csv() if self.format == "csv" else self._read_lines()

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of the file."""
        found = hashlib.sha256()
        with self.path.open("rb") as file:
            while chunk := file.read(_READ_BYTES):
                found.update(chunk)
        return found.hexdigest()

    @cached_property
    def n_rows(self) -> int:
        """Number of rows."""
        if self.is_parquet:
            import pyarrow.parquet as pq

            return int(pq.read_metadata(self.path).num_rows)
        return sum(1 for _ in self)

    @cached_property
    def first(self) -> Row:
        """The first valid row; an empty one if there is none."""
        return next((row for row in self if isinstance(row, dict)), {})

    @property
    def is_openai(self) -> bool:
        """True if the first row has the fields of OpenAI's batch API."""
        return self.first.keys() >= OPENAI_FIELDS

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the rows.

        A Parquet file has its own. For JSON lines, the type of a column is bool, int64, float64 or string if all values
        have it; any other column holds JSON strings.
        """
        import pyarrow as pa

        if self.is_parquet:
            import pyarrow.parquet as pq

            return pq.read_schema(self.path).remove_metadata()
        kinds = defaultdict[str, set[str]](set)
        for row in self:
            for name, value in row.items() if isinstance(row, dict) else ():
                kinds[name].add(_json_type(value))
        types = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64()}
        return pa.schema([(name, types.get(_common_type(found), pa.string())) for name, found in kinds.items()])

    def _read_lines(self) -> Iterator[Row | InvalidRow]:
        parse = _parse_text if self.format == "text" else _parse_line
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.isspace():
                    yield parse(line, number)

    def _read_csv(self) -> Iterator[Row | InvalidRow]:
        dialect = "excel-tab" if self.path.suffix.lower() == ".tsv" else "excel"
        with self.path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, dialect=dialect)
            try:
                for row in reader:
                    more = row.pop(None, None)  # the key of values without a column
                    yield row if more is None else InvalidRow(f"line {reader.line_num} has more values than columns")
            except (csv.Error, UnicodeDecodeError) as error:
                raise InvalidParameterError(f"{self.path} is not CSV in UTF-8: {error}") from None

    def _read_parquet(self) -> Iterator[Row | InvalidRow]:
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path) as file:
            for batch in file.iter_batches(_READ_BATCH_ROWS):
                yield from batch.to_pylist()


def is_parquet(path: Path) -> bool:
    """Return True if a file has an extension of Parquet files."""
    return _FORMATS.get(path.suffix.lower()) == "parquet"


def require_writable(path: Path) -> None:
    """Raise InvalidParameterError if the extension of an output file is not that of a format which can be written."""
    if str(path) in ("-", "/dev/stdout"):
        raise InvalidParameterError(
            "answers are not written to standard output, since a job that is killed resumes from its file: name one, "
            "such as answers.jsonl"
        )
    if _FORMATS.get(path.suffix.lower()) not in ("jsonl", "parquet"):
        raise InvalidParameterError(
            f"{path} must end in .jsonl or .parquet, the formats of answers: name it {path.stem or 'answers'}.jsonl"
        )


def require_pyarrow() -> None:
    """Raise MissingPackageError if pyarrow, which reads and writes Parquet files, is not installed."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            'Parquet files need pyarrow: pip install "pyggml[parquet]", or use a .jsonl file'
        ) from error


def _parse_line(line: bytes, number: int) -> Row | InvalidRow:
    try:
        row = json.loads(line)
    except RecursionError:
        return InvalidRow(f"line {number} is nested too deeply")
    except json.JSONDecodeError as error:
        return InvalidRow(f"line {number} is not JSON: {error.msg} at column {error.colno}")
    except UnicodeDecodeError as error:
        return InvalidRow(f"line {number} is not JSON in UTF-8: {error}")
    return row if isinstance(row, dict) else InvalidRow(f"line {number} is not a JSON object")


def _parse_text(line: bytes, number: int) -> Row | InvalidRow:
    try:
        return {"prompt": line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")}
    except UnicodeDecodeError as error:
        return InvalidRow(f"line {number} is not UTF-8: {error}")


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return "other"
    return {bool: "bool", int: "int", float: "float", str: "str"}.get(type(value), "other")


def _common_type(kinds: set[str]) -> str:
    known = kinds - {"null"}
    if known == {"int", "float"}:
        return "float"
    return known.pop() if len(known) == 1 else "other"
