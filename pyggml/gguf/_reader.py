"""A reader of GGUF files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pyggml import errors, quant
from pyggml._core import c_calls
from pyggml._core.checks import c_string, flag, is_path, shown
from pyggml._core.ffi import lib
from pyggml._core.mapped_file import MappedFile
from pyggml._core.owner import ClosableOwner, Owner
from pyggml.gguf.values import MetadataValue, ValueType, decode, read_value, value_type
from pyggml.quant import GGMLType

if TYPE_CHECKING:
    from pyggml._core.ffi import CData


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a file.

    Attributes:
        name: its name, unique in the file.
        type: the type of its elements.
        shape: its shape in numpy's order, columns last.
        offset: offset of its first byte in the file.
        nbytes: size of its data.
    """

    name: str
    type: GGMLType
    shape: tuple[int, ...]
    offset: int
    nbytes: int


class GGUFReader(ClosableOwner):
    """An open GGUF file. Thread-safe; also a context manager.

    After :meth:`close`, arrays from :meth:`tensor` stay valid; reading more raises ClosedError. Do not truncate the
    file while one is in use: bytes that are no longer on disk read as zeros on Linux, and crash the process elsewhere.

    Attributes:
        path: the file's path.
        version: version of the format.
    """

    _instead_of_a_copy = "share this one between threads, or open the file again"

    def __init__(self, path: str | os.PathLike[str], *, header_only: bool = False) -> None:
        """Read the header, and map the data without reading it.

        Args:
            path: the file's path.
            header_only: do not map the data, which may then be missing or incomplete.

        Raises:
            InvalidParameterError: it is not a path.
            ModelNotFoundError: there is no such file.
            ModelLoadError: it is not a GGUF file, has another version or byte order, is inconsistent, or truncated.
        """
        self.path, header_only = Path(_path_text(path)), flag("header_only", header_only)
        opens = lib.pyg_gguf_open_header if header_only else lib.pyg_gguf_open
        handle = c_calls.create("pyg_gguf", lib.pyg_gguf_free, opens, os.fsencode(self.path))
        raw = lib.pyg_gguf_get(handle)
        self.version = lib.gguf_get_version(raw)
        self._metadata = _Metadata(handle, self.path)
        self._tensors = MappingProxyType({info.name: info for info in _tensor_infos(raw)})
        self._has_data = not header_only
        self._mapped: MappedFile | None = MappedFile(self.path) if self._has_data else None

    @property
    def metadata(self) -> Mapping[str, MetadataValue]:
        """The key-value pairs, in the file's order; each value is read on first access and then cached.

        Values are copies: bool, int, float, str; arrays of numbers as read-only numpy arrays with the file's dtype;
        arrays of text as tuples of str. After :meth:`close`, the mapping raises ClosedError.
        """
        return self._metadata

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """The tensors by name, in the file's order; read-only, and still valid after :meth:`close`."""
        return self._tensors

    @property
    def handle(self) -> CData:
        """The ``pyg_gguf *``, *borrowed* while a reference to it is held."""
        return self._metadata.handle

    def value_type(self, key: str) -> ValueType:
        """Return the stored type of a metadata value, or of an array's elements.

        Args:
            key: the key of the value.

        Raises:
            KeyError: there is no such key.
            InvalidParameterError: the key is not text.
        """
        c_string("key", key)
        return self._metadata.value_type(key)

    def tensor(self, name: str) -> npt.NDArray[np.generic]:
        """Return a tensor's raw data: a read-only view of the mapped file, not a copy.

        Args:
            name: the tensor's name, such as "blk.0.attn_q.weight".

        Returns:
            F32, F16, F64 and integers: that dtype and the tensor's shape. BF16: its bits as uint16, the tensor's shape.
            Quantised types: uint8, ``(*shape[:-1], bytes per row)``.

        Raises:
            InvalidParameterError: there is no such tensor, or only the header was opened.
            ModelLoadError: its shape is impossible; or the file was truncated since it was opened, or became
                unreadable, and an array was read beyond its end, where it has zeros (on Linux).
        """
        info, mapped = self._find(name), self._mapped
        if not self._has_data:
            raise errors.InvalidParameterError(
                f"{self.path} was opened with header_only=True: open it without to read data"
            )
        if mapped is None:
            raise errors.ClosedError(f"the reader of {self.path} has been closed")
        mapped.require_whole()
        raw = mapped.data[info.offset : info.offset + info.nbytes]
        try:
            return raw.view(info.type.dtype).reshape(quant.raw_shape(info.type, info.shape))
        except ValueError:  # no elements, of a shape whose other dimensions are too large for any array
            raise errors.ModelLoadError(
                f"{self.path}: the tensor {name!r} has an impossible shape, {info.shape}: the file is damaged"
            ) from None

    def dequantized(self, name: str) -> npt.NDArray[np.float32]:
        """Return a tensor's values as float32, in the tensor's shape: a copy. Runs on one thread, without the GIL.

        Args:
            name: the tensor's name, such as "blk.0.attn_q.weight".

        Raises:
            InvalidParameterError: there is no such tensor, its type is an integer or F64, or its bytes are not valid
                for its type.
            ModelLoadError: the file was truncated since it was opened, or became unreadable.
        """
        info = self._find(name)
        values = quant.dequantize(self.tensor(name), info.type, info.shape)
        if self._mapped is not None:
            self._mapped.require_whole()
        return values

    def close(self) -> None:
        """Close the file. Can be called repeatedly."""
        self._metadata.close()
        self._mapped = None

    def _find(self, name: str) -> TensorInfo:
        info = self._tensors.get(name) if isinstance(name, str) else None
        if info is None:
            raise errors.InvalidParameterError(
                f"{self.path} has no tensor {shown(name)} among its {len(self._tensors)}"
            )
        return info


class _Metadata(Owner, Mapping[str, MetadataValue]):
    """The key-value pairs of an open file, and the native object that holds them."""

    _instead_of_a_copy = "dict(metadata) is a copy"

    def __init__(self, handle: CData, path: Path) -> None:
        raw = lib.pyg_gguf_get(handle)
        # A running call has its own reference, so close() need not wait: the last reference frees the object.
        self._handle: CData | None = handle
        self._path = path
        self._key_ids = {decode(lib.gguf_get_key(raw, i)): i for i in range(lib.gguf_get_n_kv(raw))}
        self._values: dict[str, MetadataValue] = {}

    def __getitem__(self, key: str) -> MetadataValue:
        handle = self.handle
        if key not in self._values:
            self._values[key] = read_value(lib.pyg_gguf_get(handle), self._key_ids[key])
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        _ = self.handle  # raises ClosedError
        return iter(self._key_ids)

    def __len__(self) -> int:
        _ = self.handle
        return len(self._key_ids)

    def value_type(self, key: str) -> ValueType:
        return value_type(lib.pyg_gguf_get(self.handle), self._key_ids[key])

    def close(self) -> None:
        self._handle = None

    @property
    def handle(self) -> CData:
        handle = self._handle
        if handle is None:
            raise errors.ClosedError(f"the reader of {self._path} has been closed")
        return handle


def _tensor_infos(raw: CData) -> Iterator[TensorInfo]:
    data_offset = lib.gguf_get_data_offset(raw)
    for i in range(lib.gguf_get_n_tensors(raw)):
        ne = list(lib.gguf_get_tensor_ne(raw, i)[0 : lib.GGML_MAX_DIMS])
        while len(ne) > 1 and ne[-1] == 1:
            ne.pop()
        yield TensorInfo(
            name=decode(lib.gguf_get_tensor_name(raw, i)),
            type=GGMLType(lib.gguf_get_tensor_type(raw, i)),
            shape=tuple(reversed(ne)),
            offset=data_offset + lib.gguf_get_tensor_offset(raw, i),
            nbytes=lib.gguf_get_tensor_size(raw, i),
        )


def _path_text(path: str | bytes | os.PathLike[str]) -> str:
    if not isinstance(path, bytes) and not is_path(path):
        raise errors.InvalidParameterError(f"a path without a NUL was expected, not {shown(path)}")
    return os.fsdecode(path)
