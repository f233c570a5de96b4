"""Descriptions of the tensors in a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyggml._core.ffi import lib
from pyggml.gguf.values import decode
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


def tensor_infos(raw: CData) -> Iterator[TensorInfo]:
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
