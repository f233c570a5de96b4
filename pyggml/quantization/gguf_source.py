"""A GGUF file or split set as the source of another file."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyggml.errors import ModelLoadError, ModelNotFoundError
from pyggml.files.model_files import ModelFiles
from pyggml.gguf import GGUFReader, MetadataValue, ValueType
from pyggml.importer.gguf_weight import GGUFWeight
from pyggml.importer.plan import PlannedTensor

# Keys of a file's layout, which the writer sets itself.
_LAYOUT_KEYS = ("general.alignment", "split.no", "split.count", "split.tensors.count")
_SPLIT_COUNT = "split.count"
_MAX_SPLITS = 2**16 - 1  # limit of the engine


class GGUFSource(contextlib.AbstractContextManager["GGUFSource"]):
    """The metadata and tensors of one model. A context manager.

    Attributes:
        path: the file, or the first of a split set.
        paths: all files of the set.
        tensors: all tensors, in the order of upstream's quantiser: by layer, then by name.
    """

    def __init__(self, files: ModelFiles) -> None:
        """Read the headers.

        Raises:
            ModelNotFoundError: there is no such file, or one of the set is missing.
            ModelLoadError: a file is broken, or not the first of its set.
        """
        self.path = files.path
        with contextlib.ExitStack() as stack:
            self._first = stack.enter_context(GGUFReader(self.path))
            self.paths = [self.path, *_other_splits(self._first, files)]
            readers = [self._first, *(stack.enter_context(_open_split(other, self.path)) for other in self.paths[1:])]
            self.tensors = sorted(_tensors(readers), key=_sort_key)
            self._open = stack.pop_all()

    @property
    def architecture(self) -> str:
        """The value of ``general.architecture``."""
        return str(self._first.metadata.get("general.architecture", ""))

    def metadata(self) -> Iterator[tuple[str, MetadataValue, ValueType]]:
        """Yield keys, values and their stored types, except keys of the files' layout."""
        for key, value in self._first.metadata.items():
            if key not in _LAYOUT_KEYS:
                yield key, value, self._first.value_type(key)

    def __exit__(self, *_: object) -> None:
        self._open.close()


def _other_splits(first: GGUFReader, files: ModelFiles) -> tuple[Path, ...]:
    n_splits = _integer(first.metadata, _SPLIT_COUNT)
    if not 2 <= n_splits <= _MAX_SPLITS:
        return ()
    if _integer(first.metadata, "split.no") != 0:
        raise ModelLoadError(f"{first.path} is one of {n_splits} files of a model; pass the first one")
    if len(files.files) != n_splits or files.files[0] != first.path:
        raise ModelLoadError(
            f"{first.path} is the first of {n_splits} files of a model, but the others cannot be found, because its "
            f"name does not end in -00001-of-{n_splits:05}.gguf"
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
                raise ModelLoadError(f"tensor {info.name!r} is in both {seen[info.name]} and {reader.path}")
            seen[info.name] = reader.path
            yield PlannedTensor(info.name, info.shape, GGUFWeight(reader.path, info), is_float=False)


def _sort_key(tensor: PlannedTensor) -> tuple[int, bytes]:
    layer = re.match(r"blk\.(\d+)", tensor.name)
    return (int(layer[1]) if layer else -1, tensor.name.encode("utf-8", "surrogateescape"))
