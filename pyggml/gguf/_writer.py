"""A writer of GGUF files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pyggml import errors, quant
from pyggml._core import c_calls
from pyggml._core.checks import iterate, shown
from pyggml._core.ffi import ffi, lib
from pyggml._core.locks import NonReentrantLock
from pyggml._core.owner import Owner
from pyggml.files.atomic_file import PartialFile
from pyggml.files.disk import target_path
from pyggml.gguf._reader import TensorInfo
from pyggml.gguf.values import ValueType, encode, write_value
from pyggml.quant import GGMLType

if TYPE_CHECKING:
    from typing_extensions import Self

    from pyggml._core.ffi import CData


class GGUFWriter(Owner):
    """A writer of a GGUF file, with at most the metadata and one tensor in memory.

    First declare everything with :meth:`set` and :meth:`add_tensor`, then write the tensors' data with
    :meth:`write_tensor`, in any order. :meth:`finish` moves the file to its final name; until then, the data is in a
    temporary file in the same folder, which is removed after an error::

        with GGUFWriter("tiny.gguf") as writer:
            writer.set("general.architecture", "llama")
            writer.add_tensor("output.weight", (n_vocab, n_embd), GGMLType.Q8_0)
            writer.write_tensor("output.weight", quant.quantize(weights, GGMLType.Q8_0))

    Leaving the ``with`` block finishes the file; leaving it by an exception discards it. Thread-safe: calls run one at
    a time. File system errors (no space, no permission) are raised as OSError. Once the writer is finished or closed,
    its methods raise ClosedError, except that :meth:`close` and a completed :meth:`finish` can be repeated.

    Attributes:
        path: the finished file's path; an existing file is replaced.
    """

    _instead_of_a_copy = "share this one between threads; two cannot write one file"

    def __init__(self, path: str | os.PathLike[str], *, file: PartialFile | None = None) -> None:
        """Create a writer. Nothing is written yet.

        Args:
            path: the finished file's path.
            file: the unfinished file to write, which the writer publishes or discards. None: a new
                :class:`~pyggml.files.atomic_file.PartialFile`.

        Raises:
            InvalidParameterError: the path is a directory, its directory does not exist, or it is too long.
        """
        self.path = target_path("path", path)
        if file is not None and not isinstance(file, PartialFile):
            raise errors.InvalidParameterError(f"file must be a PartialFile or None, not {shown(file)}")
        self._handle: CData | None = c_calls.create("pyg_gguf", lib.pyg_gguf_free, lib.pyg_gguf_new)
        self._lock = NonReentrantLock("a method of a GGUFWriter")
        self._declared: dict[str, TensorInfo] = {}
        self._numbers: dict[str, int] = {}
        self._missing: set[str] = set()
        self._file = file
        self._has_begun = False
        self._is_finished = False

    def set(self, key: str, value: object, type: ValueType | None = None) -> None:
        """Add a metadata value.

        Args:
            key: a new key, such as "llama.block_count".
            value: a bool, int, float or str, a numpy scalar, or a one-dimensional array, list or tuple of these.
            type: the type of the value or of an array's elements. None infers it: numpy's own dtype; FLOAT32 for
                float; for int (or a list of them) the first of UINT32, INT32, UINT64 and INT64 that holds all values.

        Raises:
            InvalidParameterError: the key is unusable or already set, the value does not fit the type, a list is empty
                without a type, text has a NUL, or data has already been written; ``general.alignment`` is not a power
                of 2, or tensors have already been added.
        """
        with self._lock.hold():
            write_value(self._declaring(), key, value, type)

    def add_tensor(self, name: str, shape: Sequence[int], type: GGMLType) -> None:
        """Declare a tensor, at the end of the file.

        Args:
            name: a new name, at most 63 bytes.
            shape: 1 to 4 sizes in numpy's order, columns last.
            type: the type of its elements.

        Raises:
            InvalidParameterError: the name, shape or type is invalid, or data has already been written.
        """
        type, shape = quant.ggml_type(type), quant.checked_shape(shape)
        nbytes = quant.nbytes(type, shape)
        ne = [*reversed(shape)]
        with self._lock.hold():
            handle = self._declaring()
            encoded = encode("a tensor name", name)
            c_calls.call(lib.pyg_gguf_add_tensor, handle, encoded, type, ne, len(ne))
            raw = lib.pyg_gguf_get(handle)
            offset = lib.gguf_get_tensor_offset(raw, lib.gguf_get_n_tensors(raw) - 1)  # within the data section
            self._numbers[name] = len(self._numbers)
            self._declared[name] = TensorInfo(name, type, tuple(reversed(ne)), offset, nbytes)
            self._missing.add(name)

    def missing(self) -> frozenset[str]:
        """Return the names of declared tensors without data. After this call, nothing can be declared."""
        with self._lock.hold():
            self._begun()
            return frozenset(self._missing)

    @property
    def n_bytes(self) -> int:
        """Size of the finished file, with what has been declared so far."""
        with self._lock.hold():
            return len(_meta_data(self._open_handle())) + self._n_body

    def write_tensor(self, name: str, data: npt.NDArray[np.generic]) -> None:
        """Write the data of a declared tensor unchanged.

        Args:
            name: the name of a tensor without data.
            data: in the form that :meth:`GGUFReader.tensor` returns, or as uint8 as from :func:`pyggml.quant.quantize`.

        Raises:
            InvalidParameterError: there is no such tensor, it has its data already, or dtype or shape do not fit.
        """
        with self._lock.hold():
            info, file = self._begin(name)
            _require_fitting(info, data)
            file.write(info.offset, np.ascontiguousarray(data))
            self._complete(name, file)

    def write_tensor_parts(self, name: str, parts: Iterable[npt.NDArray[np.generic]]) -> None:
        """Write the data of a declared tensor in parts, so that it is never in memory as a whole.

        Args:
            name: the name of a tensor without data.
            parts: arrays whose bytes, concatenated in C order, are the data. If the iterable raises, the exception is
                passed on and the tensor still has no data.

        Raises:
            InvalidParameterError: there is no such tensor, it has its data already, or the parts are too short or long.
        """
        with self._lock.hold():
            info, file = self._begin(name)
            n_written = 0
            for part in iterate("parts", parts):
                _require_array(part)
                if n_written + part.nbytes > info.nbytes:
                    raise errors.InvalidParameterError(
                        f"the parts have more than the {info.nbytes} bytes of tensor {shown(name)}"
                    )
                self._open_handle()  # the iterable may have closed it
                file.write(info.offset + n_written, np.ascontiguousarray(part))
                n_written += part.nbytes
            if n_written != info.nbytes:
                raise errors.InvalidParameterError(
                    f"the parts have {n_written} bytes, but tensor {shown(name)} needs {info.nbytes}"
                )
            self._complete(name, file)

    def finish(self) -> None:
        """Complete the file and move it to its final name, atomically. Does nothing if already done.

        Raises:
            InvalidParameterError: a declared tensor has no data.
        """
        with self._lock.hold():
            if self._is_finished:
                return
            self._begun()
            if self._missing:
                first = ", ".join(sorted(self._missing)[:5])
                raise errors.InvalidParameterError(
                    f"{len(self._missing)} of {len(self._declared)} tensors have no data: {first} ..."
                )
            self._publish(is_durable=True)

    def finish_without_data(self) -> None:
        """Finish a file whose tensors read as zeros and, on most file systems, take no space."""
        with self._lock.hold():
            self._publish(is_durable=False)

    def close(self) -> None:
        """Discard an unfinished file. Can be called repeatedly."""
        with self._lock.hold_reentrant():
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
        """Return a tensor without data, and the file for the data."""
        file = self._begun()
        if not isinstance(name, str) or name not in self._missing:
            is_known = isinstance(name, str) and name in self._declared
            state = "already has its data" if is_known else "was not declared"
            raise errors.InvalidParameterError(f"tensor {shown(name)} {state}")
        return self._declared[name], file

    def _publish(self, *, is_durable: bool) -> None:
        self._begun().publish(is_durable=is_durable)
        self._is_finished = True
        self._handle = None

    def _complete(self, name: str, file: PartialFile) -> None:
        self._missing.remove(name)
        file.complete(self._numbers[name])

    def _begun(self) -> PartialFile:
        """Return the file for the data. After the first call, nothing can be declared."""
        handle = self._open_handle()
        if self._file is None:
            self._file = PartialFile(self.path)
        if not self._has_begun:
            written = self._file.begin(_meta_data(handle), self._n_body, len(self._declared))
            self._missing -= {name for name, number in self._numbers.items() if number in written}
            self._has_begun = True
        return self._file

    @property
    def _n_body(self) -> int:
        alignment = lib.gguf_get_alignment(lib.pyg_gguf_get(self._open_handle()))
        end = max((info.offset + info.nbytes for info in self._declared.values()), default=0)
        return -(-end // alignment) * alignment

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
    """Return the part of the file before the tensor data."""
    size = c_calls.call_for_value("size_t", lib.pyg_gguf_meta_size, handle)
    block = ffi.new("char[]", size)
    c_calls.call(lib.pyg_gguf_meta_data, handle, block, size)
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
