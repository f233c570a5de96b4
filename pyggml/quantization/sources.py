"""A GGUF file, or a set of split ones, as something to make another file of."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pyggml import quant
from pyggml.errors import ModelLoadError, ModelNotFoundError
from pyggml.files.model_files import ModelFiles
from pyggml.gguf import GGUFReader, MetadataValue, TensorInfo, ValueType
from pyggml.importer.plan import PlannedTensor
from pyggml.weights import Floats, Rows, Weight

if TYPE_CHECKING:
    from typing_extensions import Self


# Keys that say how a file is laid out, which is the writer's business.
_LAYOUT_KEYS = ("general.alignment", "split.no", "split.count", "split.tensors.count")
_SPLIT_COUNT = "split.count"
_MOST_SPLITS = 2**16 - 1  # beyond, the engine does not take the file


class GGUFSource:
    """The metadata and tensors of one model. A context manager.

    Attributes:
        path: of the file, or the first of a split set.
        paths: of all.
        tensors: of all, in the order in which upstream's quantiser writes them: layer by layer, by name.
    """

    def __init__(self, files: ModelFiles) -> None:
        """Reads what is there, and none of the data.

        Raises:
            ModelNotFoundError: there is no such file, or one of the set is missing.
            ModelLoadError: one is broken, or not the first of its set.
        """
        self.path = files.path
        with contextlib.ExitStack() as stack:
            self._first = stack.enter_context(GGUFReader(self.path))
            self.paths = [self.path, *_other_splits(self._first, files)]
            readers = [self._first, *(stack.enter_context(_open_split(other, self.path)) for other in self.paths[1:])]
            self.tensors = sorted(_tensors(readers), key=lambda tensor: _place(tensor.name))
            self._open = stack.pop_all()

    @property
    def architecture(self) -> str:
        """What ``general.architecture`` says."""
        return str(self._first.metadata.get("general.architecture", ""))

    def metadata(self) -> Iterator[tuple[str, MetadataValue, ValueType]]:
        """Key, value and the type that it is stored in; what is about the layout of the files aside."""
        for key, value in self._first.metadata.items():
            if key not in _LAYOUT_KEYS:
                yield key, value, self._first.value_type(key)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()


class Stored(Weight):
    """A tensor of a file: as many matrices below each other as it has."""

    def __init__(self, path: Path, info: TensorInfo) -> None:
        """Remembers where it lies. Rows are read when they are asked for, so that memory holds few of them."""
        self.n_rows, self.n_cols = math.prod(info.shape[:-1]), info.shape[-1]
        self.type = info.type
        self._path, self._offset = path, info.offset
        self._row_bytes = quant.nbytes(info.type, info.shape[-1:])

    def floats(self, rows: Rows) -> Floats:
        """See :class:`Weight`."""
        raw = self.stored(rows)
        return quant.dequantize(raw, self.type, (len(raw), self.n_cols))

    def stored(self, rows: Rows) -> npt.NDArray[np.generic]:
        """Some rows as they are in the file: uint8, (n, bytes of a row)."""
        if not isinstance(rows, slice):
            raise TypeError("the rows of a file are read in the order they are in")
        start, stop, _ = rows.indices(self.n_rows)
        n_bytes = (stop - start) * self._row_bytes
        raw = np.fromfile(self._path, np.uint8, n_bytes, offset=self._offset + start * self._row_bytes)
        if len(raw) != n_bytes:
            raise ModelLoadError(f"{self._path} was cut short while it was read")
        return raw.reshape(stop - start, self._row_bytes)


def _other_splits(first: GGUFReader, files: ModelFiles) -> tuple[Path, ...]:
    n_splits = _integer(first.metadata, _SPLIT_COUNT)
    if not 2 <= n_splits <= _MOST_SPLITS:
        return ()
    if _integer(first.metadata, "split.no") != 0:
        raise ModelLoadError(f"{first.path} is one of {n_splits} files of a model; name the first of them")
    if len(files.files) != n_splits or files.files[0] != first.path:
        raise ModelLoadError(
            f"{first.path} is the first of {n_splits} files of a model, but its name does not end in "
            f"-00001-of-{n_splits:05}.gguf, so that the others could be found"
        )
    return files.files[1:]


def _open_split(path: Path, first: Path) -> GGUFReader:
    try:
        return GGUFReader(path)
    except ModelNotFoundError:
        raise ModelNotFoundError(f"{first} is one of several files of a model, and {path} is missing") from None


def _integer(metadata: Mapping[str, MetadataValue], key: str) -> int:
    value = metadata.get(key, 0)
    return value if isinstance(value, int) else 0


def _tensors(readers: list[GGUFReader]) -> Iterator[PlannedTensor]:
    seen: dict[str, Path] = {}
    for reader in readers:
        for info in reader.tensors.values():
            if info.name in seen:
                raise ModelLoadError(f"tensor {info.name!r} is both in {seen[info.name]} and in {reader.path}")
            seen[info.name] = reader.path
            yield PlannedTensor(info.name, info.shape, Stored(reader.path, info), is_float=False)


def _place(name: str) -> tuple[int, bytes]:
    layer = re.match(r"blk\.(\d+)", name)
    return (int(layer[1]) if layer else -1, name.encode("utf-8", "surrogateescape"))
