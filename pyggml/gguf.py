"""GGUF files: metadata and tensors, read and written through the engine's own parser and writer.

Shapes are in numpy's order, rows last; the file stores them the other way round (``ne``, rows first), and
without leading dimensions of 1. Text that is no UTF-8 comes as lone surrogates (``surrogateescape``) and can
be written back unchanged; the engine cuts text at the first NUL.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pyggml import errors, quant
from pyggml._ffi import ffi, lib
from pyggml._gguf_values import MetadataValue, ValueType, decode, encode, read_value, value_type, write_value
from pyggml.files.partial import PartialFile
from pyggml.quant import GGMLType

if TYPE_CHECKING:
    from typing_extensions import Self

    from pyggml._ffi import CData

__all__ = ["GGMLType", "GGUFReader", "GGUFWriter", "MetadataValue", "TensorInfo", "ValueType"]


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a file.

    Attributes:
        name: unique in the file.
        type: of its elements.
        shape: in numpy's order, rows last.
        offset: of its first byte from the beginning of the file.
        nbytes: of its data.
    """

    name: str
    type: GGMLType
    shape: tuple[int, ...]
    offset: int
    nbytes: int


class GGUFReader:
    """An open GGUF file. Any thread may read; also usable as a context manager.

    Arrays that :meth:`tensor` gave out stay valid after :meth:`close`. The file must not be shortened while
    one of them is in use: reading bytes that are gone from the disk ends the process.

    Attributes:
        path: of the file.
        version: of the format.
    """

    def __init__(self, path: str | os.PathLike[str], *, header_only: bool = False) -> None:
        """Reads the names of all there is, and maps the data without reading it.

        Args:
            path: of the file.
            header_only: the data may be missing, in part or all of it, and is not given out.

        Raises:
            ModelNotFoundError: there is no such file.
            ModelLoadError: it is no GGUF file, of another version or byte order, inconsistent, or cut short.
        """
        self.path = Path(path)
        opens = lib.pyg_gguf_open_header if header_only else lib.pyg_gguf_open
        handle = errors.create("pyg_gguf", lib.pyg_gguf_free, opens, _path_bytes(path))
        raw = lib.pyg_gguf_get(handle)
        self.version = lib.gguf_get_version(raw)
        self._metadata = _Metadata(handle, self.path)
        self._tensors = MappingProxyType({info.name: info for info in _tensor_infos(raw)})
        self._has_data = not header_only
        self._data: npt.NDArray[np.uint8] | None = None
        if self._has_data:
            self._data = np.memmap(self.path, np.uint8, "r").view(np.ndarray)

    @property
    def metadata(self) -> Mapping[str, MetadataValue]:
        """The key-value pairs, in the file's order, each read when it is asked for and then kept.

        Values are copies: bool, int, float, str; arrays of numbers as read-only numpy arrays of the file's
            dtype;
        arrays of text as tuples of str. After :meth:`close` the mapping raises ClosedError.
        """
        return self._metadata

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """The tensors by name, in the file's order; read-only, and of use after :meth:`close` as well."""
        return self._tensors

    @property
    def handle(self) -> CData:
        """The ``pyg_gguf *``, *borrowed* while a reference to it is held.

        Raises:
            ClosedError: the reader is closed.
        """
        return self._metadata.handle

    def value_type(self, key: str) -> ValueType:
        """The type a metadata value is stored as, or an array's elements.

        Raises:
            KeyError: there is no such key.
            ClosedError: the reader is closed.
        """
        return self._metadata.value_type(key)

    def tensor(self, name: str) -> npt.NDArray[np.generic]:
        """The data of a tensor as it is in the file: a read-only view of the mapped file, no copy.

        Returns:
            F32, F16, F64 and integers: that dtype and the tensor's shape. BF16: its bits as uint16, the
                tensor's
            shape. Quantised types: uint8, ``(*shape[:-1], bytes of a row)``.

        Raises:
            InvalidParameterError: there is no such tensor, or only the header was opened.
            ClosedError: the reader is closed.
        """
        info, data = self._find(name), self._data
        if not self._has_data:
            raise errors.InvalidParameterError(f"only the header of {self.path} was opened, so it gives out no data")
        if data is None:
            raise errors.ClosedError(f"the reader of {self.path} has been closed")
        raw = data[info.offset : info.offset + info.nbytes]
        return raw.view(info.type.dtype).reshape(quant.raw_shape(info.type, info.shape))

    def dequantized(self, name: str) -> npt.NDArray[np.float32]:
        """The values of a tensor as float32, in the tensor's shape: a copy. Without the GIL, on one thread.

        Raises:
            InvalidParameterError: there is no such tensor, it holds plain numbers (integers, F64), or its
                bytes cannot be data of its type.
            ClosedError: the reader is closed.
        """
        info = self._find(name)
        return quant.dequantize(self.tensor(name), info.type, info.shape)

    def close(self) -> None:
        """Lets go of the file. May be repeated."""
        self._metadata.close()
        self._data = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _find(self, name: str) -> TensorInfo:
        info = self._tensors.get(name)
        if info is None:
            raise errors.InvalidParameterError(
                f"{self.path} has no tensor {name!r}; it has {len(self._tensors)} others"
            )
        return info


class _Metadata(Mapping[str, MetadataValue]):
    """The key-value pairs of an open file, and the native object that holds them."""

    def __init__(self, handle: CData, path: Path) -> None:
        raw = lib.pyg_gguf_get(handle)
        # A call in flight holds a reference of its own: close() need not wait, the last reference frees.
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


class GGUFWriter:
    """Writes a GGUF file, one tensor at a time: memory holds the metadata and one tensor at most.

    First everything is declared, with :meth:`set` and :meth:`add_tensor`; then :meth:`write_tensor` brings
    the data of each tensor, in any order; :meth:`finish` makes the file appear. Until then the data goes to a
    file beside it, of which nothing is left if anything fails::

        with GGUFWriter("tiny.gguf") as writer:
            writer.set("general.architecture", "llama")
            writer.add_tensor("output.weight", (n_vocab, n_embd), GGMLType.Q8_0)
            writer.write_tensor("output.weight", quant.quantize(weights, GGMLType.Q8_0))

    Leaving the ``with`` block finishes the file, leaving it by an exception discards it. Any thread may call;
    calls take turns. Errors of the file system (no room, no permission) are the OSError they are.

    Attributes:
        path: where the file will appear, replacing what is there.
    """

    def __init__(self, path: str | os.PathLike[str], *, file: PartialFile | None = None) -> None:
        """Prepares a file; nothing is written yet.

        Args:
            path: where the file will appear.
            file: what becomes it; the writer publishes or discards it. None: a new one of the usual kind.

        Raises:
            InvalidParameterError: the path is a directory, or its directory does not exist.
        """
        _path_bytes(path)
        self.path = Path(path)
        if self.path.is_dir():
            raise errors.InvalidParameterError(f"{self.path} is a directory; the path of a file was expected")
        if not self.path.parent.is_dir():
            raise errors.InvalidParameterError(f"there is no directory {self.path.parent} to write {self.path.name} in")
        self._handle: CData | None = errors.create("pyg_gguf", lib.pyg_gguf_free, lib.pyg_gguf_new)
        self._lock = threading.Lock()
        self._declared: dict[str, TensorInfo] = {}
        self._numbers: dict[str, int] = {}
        self._missing: set[str] = set()
        self._file = file
        self._has_begun = False
        self._is_finished = False

    def set(self, key: str, value: object, type: ValueType | None = None) -> None:
        """Adds a metadata value.

        Args:
            key: such as "llama.block_count"; not set before.
            value: a bool, int, float or str, a numpy scalar, or a one-dimensional array, list or tuple of
                these.
            type: of the value, or of an array's elements. None infers it: numpy's own dtype; FLOAT32 for
                float; for int the first of UINT32, INT32, UINT64 and INT64 that holds it, or all of a list.

        Raises:
            InvalidParameterError: an unusable key or one that is set already, a value that does not fit the
                type, an empty list without a type, text with a NUL, an alignment other than the format's
                default, or data has been written already.
            ClosedError: the writer is finished or closed.
        """
        with self._lock:
            write_value(lib.pyg_gguf_get(self._declaring()), key, value, type)

    def add_tensor(self, name: str, shape: Sequence[int], type: GGMLType) -> None:
        """Declares a tensor, at the end of the file.

        Args:
            name: new, at most 63 bytes.
            shape: 1 to 4 sizes in numpy's order, rows last.
            type: of its elements.

        Raises:
            InvalidParameterError: a name, shape or type that does not do, or data has been written already.
            ClosedError: the writer is finished or closed.
        """
        type = quant.ggml_type(type)
        nbytes = quant.nbytes(type, shape)
        ne = [int(n) for n in reversed(shape)]
        if max(ne) >= 2**63:
            raise errors.InvalidParameterError(f"tensor {name!r} of shape {tuple(shape)} is larger than a file can be")
        with self._lock:
            handle = self._declaring()
            encoded = encode("a tensor name", name)
            errors.call(lib.pyg_gguf_add_tensor, handle, encoded, type, ne, len(ne))
            raw = lib.pyg_gguf_get(handle)
            offset = lib.gguf_get_tensor_offset(raw, lib.gguf_get_n_tensors(raw) - 1)  # within the data section
            self._numbers[name] = len(self._numbers)
            self._declared[name] = TensorInfo(name, type, tuple(reversed(ne)), offset, nbytes)
            self._missing.add(name)

    def missing(self) -> frozenset[str]:
        """Names of the declared tensors that have no data yet. Nothing can be declared any more.

        Raises:
            ClosedError: the writer is finished or closed.
        """
        with self._lock:
            self._begun()
            return frozenset(self._missing)

    def write_tensor(self, name: str, data: npt.NDArray[np.generic]) -> None:
        """Writes the data of a declared tensor, as it is.

        Args:
            name: of a tensor that has no data yet.
            data: as :meth:`GGUFReader.tensor` gives it, or as uint8 as :func:`pyggml.quant.quantize` gives
                it.

        Raises:
            InvalidParameterError: no such tensor, data of it is there already, or dtype or shape do not fit.
            ClosedError: the writer is finished or closed.
        """
        with self._lock:
            info, file = self._begin(name)
            _require_fitting(info, data)
            file.write(info.offset, np.ascontiguousarray(data))
            self._complete(name, file)

    def write_tensor_parts(self, name: str, parts: Iterable[npt.NDArray[np.generic]]) -> None:
        """Writes the data of a declared tensor piece by piece, so that memory never holds all of it.

        Args:
            name: of a tensor that has no data yet.
            parts: arrays whose bytes, one after the other and in C order, are the data. What making them raises is
                passed on, and the tensor still lacks its data.

        Raises:
            InvalidParameterError: no such tensor, data of it is there already, or the parts are too short or too long.
            ClosedError: the writer is finished or closed.
        """
        with self._lock:
            info, file = self._begin(name)
            n_written = 0
            for part in parts:
                if n_written + part.nbytes > info.nbytes:
                    raise errors.InvalidParameterError(f"the parts are more than the {info.nbytes} bytes of {name!r}")
                file.write(info.offset + n_written, np.ascontiguousarray(part))
                n_written += part.nbytes
            if n_written != info.nbytes:
                raise errors.InvalidParameterError(
                    f"the parts are {n_written} bytes, and tensor {name!r} takes {info.nbytes}"
                )
            self._complete(name, file)

    def finish(self) -> None:
        """Completes the file and makes it appear under its name, in one step. Does nothing when that is done.

        Raises:
            InvalidParameterError: a declared tensor has no data.
            ClosedError: the writer is closed.
        """
        with self._lock:
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
        """Makes the metadata appear as a file whose data reads as zeros, and takes no room on most disks.

        Raises:
            ClosedError: the writer is finished or closed.
        """
        with self._lock:
            self._begun().publish(is_lasting=False)
            self._is_finished = True
            self._handle = None

    def close(self) -> None:
        """Discards what is not finished. May be repeated."""
        with self._lock:
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
        """The tensor whose data comes next, and the file for it."""
        file = self._begun()
        if name not in self._missing:
            state = "has its data already" if name in self._declared else "was not declared"
            raise errors.InvalidParameterError(f"tensor {name!r} {state}")
        return self._declared[name], file

    def _complete(self, name: str, file: PartialFile) -> None:
        self._missing.remove(name)
        file.complete(self._numbers[name])

    def _begun(self) -> PartialFile:
        """The file for the data; the first call ends the declaring."""
        handle = self._open_handle()
        if self._file is None:
            self._file = PartialFile(self.path)
        if not self._has_begun:
            n_body = max((_padded(info.offset + info.nbytes) for info in self._declared.values()), default=0)
            there = self._file.begin(_meta_data(handle), n_body, len(self._declared))
            self._missing -= {name for name, number in self._numbers.items() if number in there}
            self._has_begun = True
        return self._file

    def _open_handle(self) -> CData:
        if self._handle is None:
            state = "finished" if self._is_finished else "closed"
            raise errors.ClosedError(f"the writer of {self.path} has been {state}")
        return self._handle

    def _declaring(self) -> CData:
        handle = self._open_handle()
        if self._has_begun:
            raise errors.InvalidParameterError(
                "the metadata is written: set all keys and add all tensors before the first write_tensor()"
            )
        return handle


def _meta_data(handle: CData) -> bytes:
    """The file up to where tensor data begins."""
    size = ffi.new("size_t *")
    errors.call(lib.pyg_gguf_meta_size, handle, size)
    block = ffi.new("char[]", size[0])
    errors.call(lib.pyg_gguf_meta_data, handle, block, size[0])
    return bytes(ffi.buffer(block))


def _require_fitting(info: TensorInfo, data: npt.NDArray[np.generic]) -> None:
    raw = (info.type.dtype, quant.raw_shape(info.type, info.shape))
    encoded = (np.dtype(np.uint8), (*info.shape[:-1], quant.nbytes(info.type, info.shape[-1:])))
    if (data.dtype, data.shape) not in (raw, encoded):
        raise errors.InvalidParameterError(
            f"tensor {info.name!r} is {info.type.name} {info.shape}: its data is {raw[0]} {raw[1]}, "
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


def _path_bytes(path: str | os.PathLike[str]) -> bytes:
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise errors.InvalidParameterError(f"a path holds no NUL: {path!r}")
    return encoded
