"""Importance matrices: the importance of each column of each weight, measured by its input activations."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml._core.checks import is_path, items, shown
from pyggml.errors import InvalidParameterError, ModelLoadError, ModelNotFoundError
from pyggml.gguf import GGMLType, GGUFReader, GGUFWriter, ValueType

Floats = npt.NDArray[np.float32]

# Keys of the file, by upstream's common/imatrix-loader.h.
_DATASETS, _N_CHUNKS, _CHUNK_SIZE = "imatrix.datasets", "imatrix.chunk_count", "imatrix.chunk_size"
_SQUARES, _COUNTS, _ACTIVATIONS = ".in_sum2", ".counts", ".in_sum"

# The older format does not store its chunk size; this is upstream's default.
_LEGACY_CHUNK_SIZE = 512


@dataclass(frozen=True, eq=False)
class Importance:
    """The statistics of one tensor.

    Attributes:
        sums: sums of squared activations per column: float32, (n_counts, n_columns).
        counts: number of summed rows: int64, (n_counts,); a single count, or one per expert, 0 for unused experts.
        activation_sums: sums of the activations themselves, shaped like ``sums``; None if the file has none.
    """

    sums: Floats
    counts: npt.NDArray[np.int64]
    activation_sums: Floats | None = None

    @property
    def weights(self) -> Floats:
        """Mean squares of the activations: float32, (n_counts, n_columns); 1 where the count is 0."""
        n_rows = self.counts.astype(np.float32)[:, None]
        return np.where(n_rows > 0, self.sums / np.maximum(n_rows, 1), np.float32(1))


@dataclass(frozen=True, eq=False)
class ImportanceMatrix:
    """The importances of a model's tensors, as :func:`pyggml.quantize` and ``llama-quantize`` use them.

    Attributes:
        entries: tensor name -> its statistics.
        datasets: names of the texts it was computed from, if known.
        chunk_size: tokens per chunk.
        n_chunks: number of chunks.
        path: the file it was read from; None if it was computed.
    """

    entries: Mapping[str, Importance]
    datasets: tuple[str, ...]
    chunk_size: int
    n_chunks: int
    path: Path | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ImportanceMatrix:
        """Read a file, in upstream's GGUF format or the older one (``.dat``).

        Args:
            path: the file.

        Raises:
            ModelNotFoundError: there is no such file.
            ModelLoadError: the file is not an importance matrix, or broken.
            InvalidParameterError: ``path`` is not a path.
        """
        if not is_path(path):
            raise InvalidParameterError(f"an importance matrix must be given as a path, not {shown(path)}")
        file = Path(path)
        try:
            with file.open("rb") as opened:
                is_gguf = opened.read(4) == b"GGUF"
            return _read_gguf(file) if is_gguf else _read_legacy(file)
        except FileNotFoundError as error:
            raise ModelNotFoundError(f"there is no importance matrix at {file}") from error
        except OSError as error:
            raise ModelLoadError(f"{file} cannot be read: {error.strerror}") from error

    @classmethod
    def merged(cls, matrices: Iterable[ImportanceMatrix]) -> ImportanceMatrix:
        """Merge matrices, as if computed from all their texts.

        Args:
            matrices: the matrices, at least one, of the same model.

        Raises:
            InvalidParameterError: there are none, or they belong to different models.
        """
        parts = items("matrices", matrices)
        if not parts:
            raise InvalidParameterError("there are no importance matrices to merge")
        if not all(isinstance(part, cls) for part in parts):
            raise InvalidParameterError(f"importance matrices to merge were expected, not {shown(parts)}")
        names = sorted({name for part in parts for name in part.entries})
        return cls(
            {name: _merged(name, [part.entries[name] for part in parts if name in part.entries]) for name in names},
            tuple(dataset for part in parts for dataset in part.datasets),
            parts[0].chunk_size,
            sum(part.n_chunks for part in parts),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a GGUF file that ``llama-quantize`` and ``llama-imatrix`` can read too.

        Args:
            path: the file to write; an existing one is replaced.

        Raises:
            InvalidParameterError: the path is invalid.
        """
        with GGUFWriter(path) as writer:
            writer.set("general.type", "imatrix")
            writer.set(_DATASETS, list(self.datasets), ValueType.STRING)
            writer.set(_N_CHUNKS, self.n_chunks, ValueType.UINT32)
            writer.set(_CHUNK_SIZE, self.chunk_size, ValueType.UINT32)
            arrays = dict(_arrays(self.entries))
            for name, array in arrays.items():
                writer.add_tensor(name, array.shape, GGMLType.F32)
            for name, array in arrays.items():
                writer.write_tensor(name, array)

    def weights(self, name: str) -> Floats | None:
        """Return the importances of a tensor's columns; None if unknown.

        See :attr:`Importance.weights <pyggml.imatrix.Importance.weights>`.

        Args:
            name: the tensor's name, such as "blk.0.ffn_up.weight".
        """
        if not isinstance(name, str):
            raise InvalidParameterError(f"the name of a tensor was expected, not {shown(name)}")
        entry = self.entries.get(name)
        return None if entry is None else entry.weights

    def __repr__(self) -> str:
        return f"ImportanceMatrix({len(self.entries)} tensors, {self.n_chunks} chunks of {self.chunk_size} tokens)"


def open_imatrix(imatrix: ImportanceMatrix | str | os.PathLike[str] | None) -> ImportanceMatrix | None:
    """Return the importance matrix for an argument, reading it from a file if needed.

    Raises:
        As :meth:`ImportanceMatrix.load`.
    """
    return imatrix if imatrix is None or isinstance(imatrix, ImportanceMatrix) else ImportanceMatrix.load(imatrix)


def quantizer_metadata(matrix: ImportanceMatrix) -> dict[str, tuple[Any, ValueType]]:
    """Return the metadata that upstream's quantiser writes about the matrix that it used."""
    metadata: dict[str, tuple[Any, ValueType]] = {}
    if matrix.path is not None:
        metadata["quantize.imatrix.file"] = str(matrix.path), ValueType.STRING
    if matrix.datasets:
        metadata["quantize.imatrix.dataset"] = matrix.datasets[0], ValueType.STRING
    metadata["quantize.imatrix.entries_count"] = len(matrix.entries), ValueType.UINT32
    if matrix.n_chunks > 0:
        metadata["quantize.imatrix.chunks_count"] = matrix.n_chunks, ValueType.UINT32
    return metadata


def _merged(name: str, parts: list[Importance]) -> Importance:
    shapes = {part.sums.shape for part in parts}
    if len({part.sums.size for part in parts}) > 1:
        raise InvalidParameterError(
            f"the importance matrices belong to different models: {shown(name)} has shapes "
            f"{' and '.join(map(str, shapes))}"
        )
    # Older files have one count for all experts.
    shape = max(shapes)
    sums = sum((part.sums.reshape(shape) for part in parts), np.zeros(shape, np.float32))
    counts = sum((np.broadcast_to(part.counts, shape[:1]) for part in parts), np.zeros(shape[:1], np.int64))
    activations = [part.activation_sums.reshape(shape) for part in parts if part.activation_sums is not None]
    if len(activations) < len(parts):
        return Importance(sums, counts)
    return Importance(sums, counts, sum(activations, np.zeros(shape, np.float32)))


def _arrays(entries: Mapping[str, Importance]) -> Iterator[tuple[str, Floats]]:
    for name in sorted(entries):
        entry = entries[name]
        yield name + _SQUARES, entry.sums
        yield name + _COUNTS, entry.counts.astype(np.float32)[:, None]
        if entry.activation_sums is not None:
            yield name + _ACTIVATIONS, entry.activation_sums


def _read_gguf(path: Path) -> ImportanceMatrix:
    with GGUFReader(path) as reader:
        names = [name.removesuffix(_SQUARES) for name in reader.tensors if name.endswith(_SQUARES)]
        if not names:
            raise ModelLoadError(f"{path} is not an importance matrix: it has no tensor whose name ends in {_SQUARES}")
        metadata = reader.metadata
        datasets = metadata.get(_DATASETS, ())
        return ImportanceMatrix(
            {name: _read_entry(reader, name) for name in names},
            tuple(datasets) if isinstance(datasets, tuple) else (),
            _number(metadata.get(_CHUNK_SIZE)),
            _number(metadata.get(_N_CHUNKS)),
            path,
        )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _read_entry(reader: GGUFReader, name: str) -> Importance:
    sums, counts = _floats(reader, name + _SQUARES), _floats(reader, name + _COUNTS).reshape(-1)
    if len(counts) == 0 or sums.size % len(counts):
        raise ModelLoadError(f"{reader.path}: {shown(name)} has {sums.size} sums for {len(counts)} counts")
    shape = (len(counts), sums.size // len(counts))
    activations = None
    if name + _ACTIVATIONS in reader.tensors:
        activations = _floats(reader, name + _ACTIVATIONS)
        if activations.size != sums.size:
            raise ModelLoadError(
                f"{reader.path}: {shown(name)} has {sums.size} sums of squares but {activations.size} sums of "
                "activations"
            )
        activations = activations.reshape(shape)
    _require_sound(reader.path, name, sums)
    if not ((counts >= 0) & (counts < 2**62)).all():
        raise ModelLoadError(f"{reader.path}: {shown(name)} has invalid counts")
    return Importance(sums.reshape(shape), np.rint(counts).astype(np.int64), activations)


def _floats(reader: GGUFReader, name: str) -> Floats:
    info = reader.tensors.get(name)
    if info is None or info.type != GGMLType.F32:
        raise ModelLoadError(
            f"{reader.path} is a broken importance matrix: {shown(name)} is "
            + ("missing" if info is None else f"of type {info.type.name}, not F32")
        )
    return np.array(reader.tensor(name), np.float32)


def _require_sound(path: Path, name: str, sums: Floats) -> None:
    if not (np.isfinite(sums).all() and (sums >= 0).all()):
        raise ModelLoadError(f"{path}: {shown(name)} has invalid sums of squares: they must be finite and not negative")


def _read_legacy(path: Path) -> ImportanceMatrix:
    """Read entries (name, number of chunks, mean squares times that), the number of chunks and the text's name."""
    file = _BinaryReader(path, path.read_bytes())
    entries = {}
    for _ in range(file.count()):
        name = file.text()
        n_chunks = max(file.count(), 1)
        sums = file.floats(file.count())
        _require_sound(path, name, sums)
        # The file does not say whether these are experts, so all share one count.
        counts = np.array([n_chunks * _LEGACY_CHUNK_SIZE], np.int64)
        entries[name] = Importance((sums * np.float32(_LEGACY_CHUNK_SIZE))[None], counts)
    if not entries:
        raise ModelLoadError(f"{path} is not an importance matrix: it has no entries")
    n_chunks = file.count() if file.has_more else 0
    datasets = (file.text(),) if file.has_more else ()
    return ImportanceMatrix(entries, datasets, _LEGACY_CHUNK_SIZE, n_chunks, path)


class _BinaryReader:
    """A reader of the binary content of an older file."""

    def __init__(self, path: Path, data: bytes) -> None:
        self._path, self._data, self._offset = path, data, 0

    @property
    def has_more(self) -> bool:
        return self._offset < len(self._data)

    def count(self) -> int:
        number: int = struct.unpack("<i", self._take(4))[0]
        if number < 0:
            raise ModelLoadError(f"{self._path} is not an importance matrix: it has a length of {number}")
        return number

    def text(self) -> str:
        return self._take(self.count()).decode("utf-8", "surrogateescape")

    def floats(self, n: int) -> Floats:
        return np.frombuffer(self._take(4 * n), "<f4").astype(np.float32)

    def _take(self, n: int) -> bytes:
        start, self._offset = self._offset, self._offset + n
        if self._offset > len(self._data):
            raise ModelLoadError(
                f"{self._path} is not an importance matrix, or cut short: {n} bytes are missing at offset {start}"
            )
        return self._data[start : self._offset]
