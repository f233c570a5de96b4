"""GGUF files: metadata and tensors, read and written through the engine's own parser and writer.

Shapes are in numpy's order, columns last; the file stores them reversed (``ne``), without leading dimensions of 1.
Invalid UTF-8 is read as lone surrogates (``surrogateescape``) and can be written back unchanged; the engine cuts text
at the first NUL.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pyggml import errors, quant
from pyggml._checks import c_string, each_of, flag, is_path, shown
from pyggml._ffi import ffi, lib
from pyggml._gguf_values import MetadataValue, ValueType, decode, encode, read_value, value_type, write_value
from pyggml._owner import Owner
from pyggml._turns import Turns
from pyggml.files.disk import target_path
from pyggml.files.partial import PartialFile
from pyggml.mapped_file import MappedFile
from pyggml.quant import GGMLType

if TYPE_CHECKING:
    from typing_extensions import Self

    from pyggml._ffi import CData

__all__ = ["GGMLType", "GGUFReader", "GGUFWriter", "MetadataValue", "TensorInfo", "ValueType"]


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a file.

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


class GGUFReader(Owner):
    """An open GGUF file. Thread-safe; also a context manager.

    Arrays from :meth:`tensor` stay valid after :meth:`close`. Do not truncate the file while one is in use: reading
    bytes that are no longer on disk kills the process.

    Attributes:
        path: the file's path.
        version: version of the format.
    """

    _instead_of_a_copy = "share this one between threads, or open the file again"

    def __init__(self, path: str | os.PathLike[str], *, header_only: bool = False) -> None:
        """Reads the header, and maps the data without reading it.

        Args:
            path: the file's path.
            header_only: do not map the data, which may then be missing or incomplete.

        Raises:
            InvalidParameterError: it is not a path.
            ModelNotFoundError: there is no such file.
            ModelLoadError: it is not a GGUF file, has another version or byte order, is inconsistent, or cut short.
        """
        self.path, header_only = Path(_path_text(path)), flag("header_only", header_only)
        opens = lib.pyg_gguf_open_header if header_only else lib.pyg_gguf_open
        handle = errors.create("pyg_gguf", lib.pyg_gguf_free, opens, os.fsencode(self.path))
        raw = lib.pyg_gguf_get(handle)
        self.version = lib.gguf_get_version(raw)
        self._metadata = _Metadata(handle, self.path)
        self._tensors = MappingProxyType({info.name: info for info in _tensor_infos(raw)})
        self._has_data = not header_only
        self._mapped: MappedFile | None = MappedFile(self.path) if self._has_data else None

    @property
    def metadata(self) -> Mapping[str, MetadataValue]:
        """The key-value pairs, in the file's order; each value is read on first access and then kept.

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
        """The ``pyg_gguf *``, *borrowed* while a reference to it is held.

        Raises:
            ClosedError: the reader is closed.
        """
        return self._metadata.handle

    def value_type(self, key: str) -> ValueType:
        """Returns the stored type of a metadata value, or of an array's elements.

        Raises:
            KeyError: there is no such key.
            InvalidParameterError: the key is not text.
            ClosedError: the reader is closed.
        """
        c_string("key", key)
        return self._metadata.value_type(key)

    def tensor(self, name: str) -> npt.NDArray[np.generic]:
        """Returns a tensor's raw data: a read-only view of the mapped file, not a copy.

        Returns:
            F32, F16, F64 and integers: that dtype and the tensor's shape. BF16: its bits as uint16, the tensor's shape.
            Quantised types: uint8, ``(*shape[:-1], bytes per row)``.

        Raises:
            InvalidParameterError: there is no such tensor, or only the header was opened.
            ModelLoadError: the file was cut short since it was opened, or cannot be read any more, and an array of it
                was touched where nothing is left, which reads as zeros (on Linux).
            ClosedError: the reader is closed.
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
        return raw.view(info.type.dtype).reshape(quant.raw_shape(info.type, info.shape))

    def dequantized(self, name: str) -> npt.NDArray[np.float32]:
        """Returns a tensor's values as float32, in the tensor's shape: a copy. Runs on one thread, without the GIL.

        Raises:
            InvalidParameterError: there is no such tensor, its type is an integer or F64, or its bytes are not valid
                for its type.
            ModelLoadError: the file was cut short since it was opened, or cannot be read any more.
            ClosedError: the reader is closed.
        """
        info = self._find(name)
        values = quant.dequantize(self.tensor(name), info.type, info.shape)
        if self._mapped is not None:
            self._mapped.require_whole()
        return values

    def close(self) -> None:
        """Closes the file. Can be called repeatedly."""
        self._metadata.close()
        self._mapped = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

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
        handle = self._open_handle()
        if key not in self._values:
            self._values[key] = read_value(lib.pyg_gguf_get(handle), self._key_ids[key])
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        self._open_handle()
        return iter(self._key_ids)

    def __len__(self) -> int:
        self._open_handle()
        return len(self._key_ids)

    def value_type(self, key: str) -> ValueType:
        handle = self._open_handle()
        return value_type(lib.pyg_gguf_get(handle), self._key_ids[key])

    @property
    def handle(self) -> CData:
        return self._open_handle()

    def close(self) -> None:
        self._handle = None

    def _open_handle(self) -> CData:
        handle = self._handle
        if handle is None:
            raise errors.ClosedError(f"the reader of {self._path} has been closed")
        return handle


class GGUFWriter(Owner):
    """Writes a GGUF file, with at most the metadata and one tensor in memory.

    First declare everything with :meth:`set` and :meth:`add_tensor`, then write the tensors' data with
    :meth:`write_tensor`, in any order. :meth:`finish` moves the file to its final name; until then, the data goes to a
    temporary file beside it, which is removed if anything fails::

        with GGUFWriter("tiny.gguf") as writer:
            writer.set("general.architecture", "llama")
            writer.add_tensor("output.weight", (n_vocab, n_embd), GGMLType.Q8_0)
            writer.write_tensor("output.weight", quant.quantize(weights, GGMLType.Q8_0))

    Leaving the ``with`` block finishes the file; leaving it by an exception discards it. Thread-safe: calls take turns.
    File system errors (no space, no permission) are raised as OSError.

    Attributes:
        path: the finished file's path; an existing file is replaced.
    """

    _instead_of_a_copy = "share this one between threads; two cannot write one file"

    def __init__(self, path: str | os.PathLike[str], *, file: PartialFile | None = None) -> None:
        """Prepares a file; nothing is written yet.

        Args:
            path: the finished file's path.
            file: the unfinished file to write, which the writer publishes or discards. None: a new
                :class:`~pyggml.files.partial.PartialFile`.

        Raises:
            InvalidParameterError: the path is a directory, its directory does not exist, or it is too long.
        """
        self.path = target_path("path", path)
        if file is not None and not isinstance(file, PartialFile):
            raise errors.InvalidParameterError(f"file must be a PartialFile or None, not {shown(file)}")
        self._handle: CData | None = errors.create("pyg_gguf", lib.pyg_gguf_free, lib.pyg_gguf_new)
        self._turns = Turns("a method of a GGUFWriter")
        self._declared: dict[str, TensorInfo] = {}
        self._numbers: dict[str, int] = {}
        self._missing: set[str] = set()
        self._file = file
        self._has_begun = False
        self._is_finished = False

    def set(self, key: str, value: object, type: ValueType | None = None) -> None:
        """Adds a metadata value.

        Args:
            key: a new key, such as "llama.block_count".
            value: a bool, int, float or str, a numpy scalar, or a one-dimensional array, list or tuple of these.
            type: the type of the value or of an array's elements. None infers it: numpy's own dtype; FLOAT32 for
                float; for int (or a list of them) the first of UINT32, INT32, UINT64 and INT64 that holds all values.

        Raises:
            InvalidParameterError: the key is unusable or already set, the value does not fit the type, a list is empty
                without a type, text has a NUL, the alignment is not the format's default, or data has already been
                written.
            ClosedError: the writer is finished or closed.
        """
        with self._turns.mine():
            write_value(lib.pyg_gguf_get(self._declaring()), key, value, type)

    def add_tensor(self, name: str, shape: Sequence[int], type: GGMLType) -> None:
        """Declares a tensor, at the end of the file.

        Args:
            name: a new name, at most 63 bytes.
            shape: 1 to 4 sizes in numpy's order, columns last.
            type: the type of its elements.

        Raises:
            InvalidParameterError: the name, shape or type is invalid, or data has already been written.
            ClosedError: the writer is finished or closed.
        """
        type, shape = quant.ggml_type(type), quant.checked_shape(shape)
        nbytes = quant.nbytes(type, shape)
        ne = [*reversed(shape)]
        with self._turns.mine():
            handle = self._declaring()
            encoded = encode("a tensor name", name)
            errors.call(lib.pyg_gguf_add_tensor, handle, encoded, type, ne, len(ne))
            raw = lib.pyg_gguf_get(handle)
            offset = lib.gguf_get_tensor_offset(raw, lib.gguf_get_n_tensors(raw) - 1)  # within the data section
            self._numbers[name] = len(self._numbers)
            self._declared[name] = TensorInfo(name, type, tuple(reversed(ne)), offset, nbytes)
            self._missing.add(name)

    def missing(self) -> frozenset[str]:
        """Returns the names of declared tensors without data. After this call, nothing can be declared.

        Raises:
            ClosedError: the writer is finished or closed.
        """
        with self._turns.mine():
            self._begun()
            return frozenset(self._missing)

    @property
    def n_bytes(self) -> int:
        """Size of the finished file, with what has been declared so far.

        Raises:
            ClosedError: the writer is finished or closed.
        """
        with self._turns.mine():
            return len(_meta_data(self._open_handle())) + self._n_body

    def write_tensor(self, name: str, data: npt.NDArray[np.generic]) -> None:
        """Writes the data of a declared tensor unchanged.

        Args:
            name: the name of a tensor without data.
            data: in the form that :meth:`GGUFReader.tensor` returns, or as uint8 as from :func:`pyggml.quant.quantize`.

        Raises:
            InvalidParameterError: there is no such tensor, it has its data already, or dtype or shape do not fit.
            ClosedError: the writer is finished or closed.
        """
        with self._turns.mine():
            info, file = self._begin(name)
            _require_fitting(info, data)
            file.write(info.offset, np.ascontiguousarray(data))
            self._complete(name, file)

    def write_tensor_parts(self, name: str, parts: Iterable[npt.NDArray[np.generic]]) -> None:
        """Writes the data of a declared tensor in parts, so that it is never in memory as a whole.

        Args:
            name: the name of a tensor without data.
            parts: arrays whose bytes, concatenated in C order, are the data. If the iterable raises, the exception is
                passed on and the tensor still has no data.

        Raises:
            InvalidParameterError: there is no such tensor, it has its data already, or the parts are too short or long.
            ClosedError: the writer is finished or closed.
        """
        with self._turns.mine():
            info, file = self._begin(name)
            n_written = 0
            for part in each_of("parts", parts):
                _require_array(part)
                if n_written + part.nbytes > info.nbytes:
                    raise errors.InvalidParameterError(
                        f"the parts have more than the {info.nbytes} bytes of tensor {shown(name)}"
                    )
                self._open_handle()  # what makes the parts may close it
                file.write(info.offset + n_written, np.ascontiguousarray(part))
                n_written += part.nbytes
            if n_written != info.nbytes:
                raise errors.InvalidParameterError(
                    f"the parts have {n_written} bytes, but tensor {shown(name)} needs {info.nbytes}"
                )
            self._complete(name, file)

    def finish(self) -> None:
        """Completes the file and moves it to its final name, atomically. Does nothing if already done.

        Raises:
            InvalidParameterError: a declared tensor has no data.
            ClosedError: the writer is closed.
        """
        with self._turns.mine():
            if self._is_finished:
                return
            file = self._begun()
            if self._missing:
                first = ", ".join(sorted(self._missing)[:5])
                raise errors.InvalidParameterError(
                    f"{len(self._missing)} of {len(self._declared)} tensors have no data: {first} ..."
                )
            file.publish()
            self._is_finished = True
            self._handle = None

    def finish_without_data(self) -> None:
        """Finishes a file whose tensors read as zeros and, on most file systems, take no space.

        Raises:
            ClosedError: the writer is finished or closed.
        """
        with self._turns.mine():
            self._begun().publish(is_lasting=False)
            self._is_finished = True
            self._handle = None

    def close(self) -> None:
        """Discards an unfinished file. Can be called repeatedly."""
        with self._turns.mine_or_ours():
            self._handle = None
            if self._file is not None:
                self._file.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self.close()

    def _begin(self, name: str) -> tuple[TensorInfo, PartialFile]:
        """The tensor to write next, and the file."""
        file = self._begun()
        if not isinstance(name, str) or name not in self._missing:
            is_known = isinstance(name, str) and name in self._declared
            state = "already has its data" if is_known else "was not declared"
            raise errors.InvalidParameterError(f"tensor {shown(name)} {state}")
        return self._declared[name], file

    def _complete(self, name: str, file: PartialFile) -> None:
        self._missing.remove(name)
        file.complete(self._numbers[name])

    def _begun(self) -> PartialFile:
        """The file for the data; after the first call, nothing can be declared."""
        handle = self._open_handle()
        if self._file is None:
            self._file = PartialFile(self.path)
        if not self._has_begun:
            there = self._file.begin(_meta_data(handle), self._n_body, len(self._declared))
            self._missing -= {name for name, number in self._numbers.items() if number in there}
            self._has_begun = True
        return self._file

    @property
    def _n_body(self) -> int:
        return max((_padded(info.offset + info.nbytes) for info in self._declared.values()), default=0)

    def _open_handle(self) -> CData:
        if self._handle is None:
            state = "finished" if self._is_finished else "closed"
            raise errors.ClosedError(f"the writer of {self.path} has been {state}")
        return self._handle

    def _declaring(self) -> CData:
        handle = self._open_handle()
        if self._has_begun:
            raise errors.InvalidParameterError(
                "the metadata has already been written: set all keys and add all tensors before the first "
                "write_tensor()"
            )
        return handle


def _meta_data(handle: CData) -> bytes:
    """The part of the file before the tensor data."""
    size = ffi.new("size_t *")
    errors.call(lib.pyg_gguf_meta_size, handle, size)
    block = ffi.new("char[]", size[0])
    errors.call(lib.pyg_gguf_meta_data, handle, block, size[0])
    return bytes(ffi.buffer(block))


def _require_array(data: object) -> None:
    if not isinstance(data, np.ndarray):
        raise errors.InvalidParameterError(f"a tensor's data must be a numpy array, not {shown(data)}")


def _require_fitting(info: TensorInfo, data: npt.NDArray[np.generic]) -> None:
    _require_array(data)
    raw = (info.type.dtype, quant.raw_shape(info.type, info.shape))
    encoded = (np.dtype(np.uint8), (*info.shape[:-1], quant.nbytes(info.type, info.shape[-1:])))
    if (data.dtype, data.shape) not in (raw, encoded):
        raise errors.InvalidParameterError(
            f"tensor {shown(info.name)} is {info.type.name} {info.shape}: its data must be {raw[0]} {raw[1]}, "
            f"not {data.dtype} {data.shape}"
        )


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


def _padded(n_bytes: int) -> int:
    alignment = lib.GGUF_DEFAULT_ALIGNMENT
    return -(-n_bytes // alignment) * alignment


def _path_text(path: str | bytes | os.PathLike[str]) -> str:
    if not isinstance(path, bytes) and not is_path(path):
        raise errors.InvalidParameterError(f"a path without a NUL was expected, not {shown(path)}")
    return os.fsdecode(path)
