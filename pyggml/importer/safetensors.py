"""Checkpoints in safetensors files, single or sharded, read through memory maps.

A file consists of the length of its header (8 bytes, little-endian), the header (JSON: tensor name -> dtype, shape and
the begin and end of its bytes), and the bytes of all tensors without overlaps or gaps:
https://github.com/huggingface/safetensors#format. Files are not trusted: every number in the header is checked against
the file's size before any data is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pyggml._core.cached_property import cached_property
from pyggml._core.checks import shown
from pyggml._core.mapped_file import MappedFile
from pyggml.errors import ModelLoadError, ModelNotFoundError
from pyggml.files.json_file import MAX_BYTES, parse_object
from pyggml.files.model_files import INDEX, SINGLE, ModelFiles, explain_missing_weights, shards
from pyggml.files.regular_file import RegularFile

_MAX_DIMENSIONS = 8
#: How the files begin that Git LFS leaves in a clone until it downloads the real ones.
_LFS_POINTER = b"version "

#: The format's types -> numpy dtypes for their bytes; BF16 as its bits, 8-bit floats as bytes.
DTYPES: Mapping[str, np.dtype[np.generic]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "F8_E4M3": np.dtype("u1"),
    "F8_E5M2": np.dtype("u1"),
    "F8_E8M0": np.dtype("u1"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}


class TruncatedFileError(ModelLoadError):
    """A file is shorter than its header implies."""


class WrongShapeError(ModelLoadError):
    """A tensor's shape contradicts the configuration."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file of a checkpoint.

    Attributes:
        name: its name, unique in the checkpoint.
        dtype: the format's name for its type, a key of :data:`DTYPES`.
        shape: its shape, columns last.
        offset: offset of its first byte in the file.
        nbytes: size of its data.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    offset: int
    nbytes: int

    def require_shape(self, shape: tuple[int, ...]) -> None:
        """Raise WrongShapeError if the tensor has another shape than the configuration implies."""
        if self.shape != shape:
            raise WrongShapeError(
                f"{self.path}: tensor {self.name!r:.100} has shape {self.shape}; by config.json it must be {shape}"
            )


class Checkpoint(Mapping[str, StoredTensor]):
    """All tensors of a checkpoint by name. Thread-safe for reading.

    An index only gives the names of the files, as in transformers: published ones also list weights that were not
    stored because they are shared, or lack tensors. If two files hold a tensor, the index decides which one counts.

    Do not truncate the files while arrays from them are in use: reading bytes that are no longer on disk kills the
    process.

    Attributes:
        files: the files that hold the tensors, sorted by name.
    """

    def __init__(self, model: ModelFiles) -> None:
        """Check the headers of all files; no data is read.

        Raises:
            ModelNotFoundError: there is no checkpoint, or a shard is missing.
            ModelLoadError: a file cannot be read, is not a safetensors file, or contradicts itself or the index.
        """
        if model.weights == "none":
            names = [file.name for file in model.path.iterdir()]
            reason = explain_missing_weights(str(model.path), names)
            raise ModelNotFoundError(
                reason or f"{model.path} has neither {SINGLE} nor {INDEX}: copy or download the weights as well"
            )
        listed = {} if model.index is None else shards(model.index)
        self.files = model.files or tuple(model.path / name for name in sorted(listed))
        self._index = model.index
        self._listed = {name: file for file, names in listed.items() for name in names}
        self._tensors: dict[str, StoredTensor] = {}
        for file in self.files:
            for name, tensor in self._tensors_of(file).items():
                if name not in self._tensors or self._listed.get(name) == file.name:
                    self._tensors[name] = tensor
        self._maps: dict[Path, MappedFile] = {}

    def array(self, name: str) -> npt.NDArray[np.generic]:
        """Return a tensor's data: a read-only view of the mapped file, with the dtype from :data:`DTYPES`."""
        tensor = self._tensors[name]
        mapped = self._maps.get(tensor.path)
        if mapped is None:
            mapped = self._maps[tensor.path] = MappedFile(tensor.path)
        raw = mapped.data[tensor.offset : tensor.offset + tensor.nbytes]
        if raw.nbytes != tensor.nbytes:
            raise ModelLoadError(f"{tensor.path} has become shorter since its header was read")
        return raw.view(DTYPES[tensor.dtype]).reshape(tensor.shape)

    def require_whole(self) -> None:
        """Check that the files were complete while arrays were read. Call it before using these arrays.

        Raises:
            ModelLoadError: a file was truncated, or could not be read; missing bytes were read as zeros.
        """
        for mapped in self._maps.values():
            mapped.require_whole()

    def no_tensor(self, name: str) -> ModelNotFoundError:
        """Return the error to raise for a missing tensor."""
        if name in self._listed:
            where = f"{self._index} lists tensor {name!r:.80} in {self._listed[name]}, which does not have it"
            return ModelNotFoundError(where)
        first, *others = self.files
        where = f"none of the {len(self.files)} files of {first.parent}" if others else str(first)
        return ModelNotFoundError(f"{where} has no tensor {name!r:.80}")

    @cached_property
    def nbytes(self) -> int:
        """Size of all tensors' data."""
        return sum(tensor.nbytes for tensor in self._tensors.values())

    def _tensors_of(self, file: Path) -> dict[str, StoredTensor]:
        try:
            return _tensors_of(file)
        except ModelNotFoundError as error:
            if self._index is None:
                raise
            raise ModelNotFoundError(f"{error}, which {self._index.name} lists: copy or download it as well") from None

    def __getitem__(self, name: str) -> StoredTensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def _tensors_of(path: Path) -> dict[str, StoredTensor]:
    """The tensors in one file, by its header."""
    with RegularFile(path) as file:
        if file.size >= 8 and file.read(0, 8) == _LFS_POINTER:
            raise ModelLoadError(
                f"{path} only points to the weights, as a clone without Git LFS leaves it: run git lfs pull in its "
                "directory, or download the file"
            )
        try:
            return _read(file)
        except ModelLoadError as error:
            raise type(error)(f"{error}: copy or download it again") from None


def _read(file: RegularFile) -> dict[str, StoredTensor]:
    path, header = file.path, _header(file)
    data_offset = 8 + len(header)
    n_data = file.size - data_offset
    entries = parse_object(header, f"the header of {path}")
    entries.pop("__metadata__", None)
    tensors = [_tensor(path, data_offset, name, entry) for name, entry in entries.items()]
    tensors.sort(key=lambda tensor: (tensor.offset, tensor.nbytes))
    _require_gapless(path, tensors, data_offset, n_data)
    return {tensor.name: tensor for tensor in tensors}


def _header(file: RegularFile) -> bytes:
    if file.size < 8:
        raise ModelLoadError(f"{file.path} has {file.size} bytes, too few for a safetensors file")
    n = int.from_bytes(file.read(0, 8), "little")
    if n > MAX_BYTES:
        raise ModelLoadError(
            f"{file.path} is not a safetensors file: it claims a header of {n} bytes, and pyggml reads at most "
            f"{MAX_BYTES}"
        )
    if n > file.size - 8:
        raise TruncatedFileError(f"{file.path} is cut short: its header needs {n} bytes, but the file has {file.size}")
    return file.read(8, n)


def _tensor(path: Path, data_offset: int, name: str, entry: object) -> StoredTensor:
    where = f"{path}: tensor {name!r:.80}"
    if not isinstance(entry, dict) or not entry.keys() >= {"dtype", "shape", "data_offsets"}:
        raise ModelLoadError(f"{where} lacks dtype, shape or data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ModelLoadError(f"{where} is of type {dtype!r:.80}; pyggml reads {', '.join(DTYPES)}")
    if not _are_sizes(shape) or len(shape) > _MAX_DIMENSIONS:
        raise ModelLoadError(f"{where} has an invalid shape: {shape!r:.80}")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise ModelLoadError(f"{where}: data_offsets is {offsets!r:.80}; two offsets were expected")
    begin, end = offsets
    expected = math.prod(shape) * DTYPES[dtype].itemsize
    if end - begin != expected:
        raise ModelLoadError(
            f"{where}: shape {tuple(shape)} and type {dtype} need {expected} bytes, but data_offsets are {begin} to "
            f"{end}"
        )
    return StoredTensor(name, dtype, tuple(shape), path, data_offset + begin, expected)


def _are_sizes(values: object) -> bool:
    # type() and not isinstance(): bool is an int in Python but not in JSON
    return isinstance(values, list) and all(type(n) is int and 0 <= n < 2**63 for n in values)


def _require_gapless(path: Path, tensors: list[StoredTensor], data_offset: int, n_data: int) -> None:
    end, previous = data_offset, "the header"
    for tensor in tensors:
        if tensor.offset != end:
            flaw = "overlaps" if tensor.offset < end else "leaves a gap after"
            raise ModelLoadError(f"{path}: tensor {shown(tensor.name)} {flaw} {previous}")
        end, previous = tensor.offset + tensor.nbytes, f"tensor {shown(tensor.name)}"
    if end != data_offset + n_data:
        is_cut = end > data_offset + n_data
        flaw, kind = ("is cut short", TruncatedFileError) if is_cut else ("has bytes without a tensor", ModelLoadError)
        raise kind(f"{path} {flaw}: its tensors end at byte {end}, the file at {data_offset + n_data}")
