"""Checkpoints in safetensors files, single or in shards, mapped into memory and believed only after a check.

A file is the length of its header (8 bytes, little-endian), the header (JSON: tensor name -> dtype, shape and where
its bytes begin and end), and the bytes of all tensors without overlap or hole:
https://github.com/huggingface/safetensors#format. Nothing in a file is taken on trust: every number in the header is
held against the file's size before a byte of data is looked at.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pyggml.errors import ModelLoadError, ModelNotFoundError

if TYPE_CHECKING:
    from typing_extensions import Self

#: Name of the file that says which shard holds which tensor.
INDEX = "model.safetensors.index.json"
#: Name of a checkpoint that is one file.
SINGLE = "model.safetensors"
#: The same in the layout that Meta and Mistral publish beside Hugging Face's.
CONSOLIDATED = "consolidated.safetensors"

# The largest headers and indices of known models have 10 MB; more is an attack on the time and memory of the reader.
_MAX_JSON_BYTES = 32 * 2**20
_MAX_DIMENSIONS = 8

#: The format's types and numpy's that holds their bytes; BF16 as its bits, 8-bit floats as bytes.
DTYPES: Mapping[str, np.dtype[np.generic]] = MappingProxyType(
    {
        "F64": np.dtype("<f8"),
        "F32": np.dtype("<f4"),
        "F16": np.dtype("<f2"),
        "BF16": np.dtype("<u2"),
        "F8_E4M3": np.dtype("u1"),
        "F8_E5M2": np.dtype("u1"),
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
)


class CutShortError(ModelLoadError):
    """A file ends before what its header says."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file of a checkpoint.

    Attributes:
        name: unique in the checkpoint.
        dtype: the format's name for its type, a key of :data:`DTYPES`.
        shape: rows last.
        path: of the file.
        offset: of its first byte from the beginning of the file.
        nbytes: of its data.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    offset: int
    nbytes: int


class Checkpoint(Mapping[str, StoredTensor]):
    """All tensors of a checkpoint by name. Any thread may read.

    The files must not be shortened while arrays of them are in use: reading bytes that are gone from the disk ends
    the process.

    Attributes:
        files: that hold its tensors, in the order of their names.
    """

    def __init__(self, directory: Path) -> None:
        """Finds the files in a directory and checks all of their headers; no data is read.

        Raises:
            ModelNotFoundError: there is no checkpoint in it, or a shard is missing.
            ModelLoadError: a file that cannot be read, is no safetensors file, or contradicts itself or the index.
        """
        index = directory / INDEX
        if _exists(directory / SINGLE) or not _exists(index):
            self.files: tuple[Path, ...] = (_single_file(directory),)
            self._tensors = _SafetensorsFile(self.files[0]).tensors
        else:
            wanted = _read_index(index)
            self.files = tuple(directory / name for name in sorted(wanted))
            self._tensors = {}
            for file in self.files:
                found = _SafetensorsFile(file).tensors
                _require_same_names(index, file, wanted[file.name], found)
                self._tensors |= found
        self._maps: dict[Path, npt.NDArray[np.uint8]] = {}

    def array(self, name: str) -> npt.NDArray[np.generic]:
        """The data of a tensor: a read-only view of the mapped file, of the dtype that :data:`DTYPES` says.

        Raises:
            KeyError: there is no such tensor.
        """
        tensor = self._tensors[name]
        mapped = self._maps.get(tensor.path)
        if mapped is None:
            mapped = self._maps[tensor.path] = np.memmap(tensor.path, np.uint8, "r").view(np.ndarray)
        raw = mapped[tensor.offset : tensor.offset + tensor.nbytes]
        if raw.nbytes != tensor.nbytes:
            raise ModelLoadError(f"{tensor.path} has become shorter since its header was read")
        return raw.view(DTYPES[tensor.dtype]).reshape(tensor.shape)

    @cached_property
    def nbytes(self) -> int:
        """Of the data of all tensors."""
        return sum(tensor.nbytes for tensor in self._tensors.values())

    def __getitem__(self, name: str) -> StoredTensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def read_json(path: Path) -> dict[str, object]:
    """The object in a JSON file.

    Raises:
        ModelNotFoundError: there is no such file.
        ModelLoadError: it cannot be read, is too long, or holds something else.
    """
    with _OpenFile(path) as file:
        if file.size > _MAX_JSON_BYTES:
            raise ModelLoadError(f"{path} has {file.size} bytes; {_MAX_JSON_BYTES} are the most such a file can have")
        return parse_object(path, "", file.read(0, file.size))


def parse_object(path: Path, what: str, data: bytes) -> dict[str, object]:
    """The JSON object that ``data`` is, which may name no key twice.

    Args:
        path: of the file, for messages.
        what: of the file this is, for messages: "" or such as "header of ".
        data: UTF-8.

    Raises:
        ModelLoadError: it is something else.
    """
    try:
        value = json.loads(data.decode(), object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise ModelLoadError(f"the {what}{path} is not usable JSON: {reason}") from None
    if not isinstance(value, dict):
        raise ModelLoadError(f"the {what}{path} holds {_kind(value)} where an object was expected")
    return value


class _OpenFile:
    """A regular file, opened for a check: no directory, no pipe that would wait for a writer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # Opening a pipe for reading would wait for its writer.
            self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        except FileNotFoundError:
            raise ModelNotFoundError(f"there is no file {path}") from None
        except OSError as error:
            raise ModelLoadError(f"{path} cannot be read: {error.strerror}") from None
        status = os.fstat(self._descriptor)
        self.size = status.st_size
        if not stat.S_ISREG(status.st_mode):
            os.close(self._descriptor)
            raise ModelLoadError(f"{path} is not a file")

    def read(self, offset: int, n: int) -> bytes:
        parts = []
        while n:
            part = os.pread(self._descriptor, n, offset)
            if not part:
                raise ModelLoadError(f"{self.path} ends while it is being read")
            parts.append(part)
            offset, n = offset + len(part), n - len(part)
        return b"".join(parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


class _SafetensorsFile:
    """The checked header of one file."""

    def __init__(self, path: Path) -> None:
        with _OpenFile(path) as file:
            header = _header(file)
            data_offset = 8 + len(header)
            n_data = file.size - data_offset
        entries = parse_object(path, "header of ", header)
        entries.pop("__metadata__", None)
        tensors = [_tensor(path, data_offset, name, entry) for name, entry in entries.items()]
        tensors.sort(key=lambda tensor: (tensor.offset, tensor.nbytes))
        _require_gapless(path, tensors, data_offset, n_data)
        self.tensors = {tensor.name: tensor for tensor in tensors}


def _header(file: _OpenFile) -> bytes:
    if file.size < 8:
        raise ModelLoadError(f"{file.path} has {file.size} bytes, too few for a safetensors file")
    n = int.from_bytes(file.read(0, 8), "little")
    if n > _MAX_JSON_BYTES:
        raise ModelLoadError(
            f"{file.path} is no safetensors file: it claims a header of {n} bytes, and {_MAX_JSON_BYTES} are the most "
            "that pyggml reads"
        )
    if n > file.size - 8:
        raise CutShortError(f"{file.path} is cut short: its header has {n} bytes, and the file {file.size}")
    return file.read(8, n)


def _tensor(path: Path, data_offset: int, name: str, entry: object) -> StoredTensor:
    where = f"{path}: tensor {_short(name)}"
    if not isinstance(entry, dict) or not entry.keys() >= {"dtype", "shape", "data_offsets"}:
        raise ModelLoadError(f"{where} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ModelLoadError(f"{where} is of type {_short(dtype)}; pyggml reads {', '.join(DTYPES)}")
    if not _are_sizes(shape) or len(shape) > _MAX_DIMENSIONS:
        raise ModelLoadError(f"{where} has shape {_short(shape)}, which is none")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise ModelLoadError(f"{where} lies at {_short(offsets)}; two offsets were expected")
    begin, end = offsets
    expected = math.prod(shape) * DTYPES[dtype].itemsize
    if end - begin != expected:
        raise ModelLoadError(
            f"{where} of shape {tuple(shape)} and type {dtype} takes {expected} bytes, and lies at {begin} to {end}"
        )
    return StoredTensor(name, dtype, tuple(shape), path, data_offset + begin, expected)


def _are_sizes(values: object) -> bool:
    # bool is an int in Python, and none in JSON
    return isinstance(values, list) and all(type(n) is int and 0 <= n < 2**63 for n in values)


def _require_gapless(path: Path, tensors: list[StoredTensor], data_offset: int, n_data: int) -> None:
    end, previous = data_offset, "the header"
    for tensor in tensors:
        if tensor.offset != end:
            flaw = "overlaps" if tensor.offset < end else "leaves a hole after"
            raise ModelLoadError(f"{path}: tensor {tensor.name!r} {flaw} {previous}")
        end, previous = tensor.offset + tensor.nbytes, f"tensor {tensor.name!r}"
    if end != data_offset + n_data:
        is_cut = end > data_offset + n_data
        flaw, kind = (
            ("is cut short", CutShortError) if is_cut else ("has bytes that belong to no tensor", ModelLoadError)
        )
        raise kind(f"{path} {flaw}: its tensors end at byte {end}, and the file at {data_offset + n_data}")


def _single_file(directory: Path) -> Path:
    for name in (SINGLE, CONSOLIDATED):
        if _exists(directory / name):
            return directory / name
    shards = sorted(file.name for file in directory.glob("*.safetensors"))
    if shards:
        raise ModelNotFoundError(
            f"{directory} holds {', '.join(shards[:3])} ..., but no {INDEX} that says what is where"
        )
    pickles = sorted(file.name for file in directory.iterdir() if file.suffix in (".bin", ".pth", ".pt"))
    if pickles:
        raise ModelNotFoundError(
            f"{directory} holds its weights as {pickles[0]}, a format that can run code and that pyggml does not open; "
            "save them as safetensors"
        )
    raise ModelNotFoundError(f"there is neither {SINGLE} nor {INDEX} in {directory}")


def _exists(path: Path) -> bool:
    """Whether a name is there, whatever it leads to: a broken link is an error, not an absence."""
    return os.path.lexists(path)


def _read_index(index: Path) -> dict[str, set[str]]:
    """File name -> names of the tensors in it."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelLoadError(f"{index} has no weight_map")
    wanted: dict[str, set[str]] = {}
    for tensor, file in weight_map.items():
        if not isinstance(file, str) or not _is_plain_name(file):
            raise ModelLoadError(
                f"{index} says that tensor {_short(tensor)} is in {_short(file)}, which is no file of this directory"
            )
        wanted.setdefault(file, set()).add(tensor)
    return wanted


def _is_plain_name(name: str) -> bool:
    return name not in ("", ".", "..") and len(name) < 256 and not any(character in name for character in "/\\\0:")


def _require_same_names(index: Path, file: Path, wanted: set[str], found: Mapping[str, StoredTensor]) -> None:
    missing, unknown = sorted(wanted - found.keys()), sorted(found.keys() - wanted)
    if missing:
        raise ModelLoadError(f"{index} says that tensor {_short(missing[0])} is in {file.name}, and it is not")
    if unknown:
        raise ModelLoadError(f"{file} holds tensor {_short(unknown[0])}, which {index.name} does not say")


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise ValueError(f"{_short(counts.most_common(1)[0][0])} is there twice")
    return values


def _kind(value: object) -> str:
    return {list: "a list", str: "text", type(None): "null", bool: "a truth value"}.get(type(value), "a number")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
