"""Raw ggml graphs of a few tensors, on any device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pyggml import ffi, lib
from pyggml._native.backend import Backend

if TYPE_CHECKING:
    from pyggml._core.ffi import CData

Floats = npt.NDArray[np.float32]


def relative_error(values: npt.ArrayLike, true: npt.ArrayLike) -> float:
    """Root mean square of the difference, as a part of the true values' own."""
    expected = np.asarray(true, np.float64)
    return float(np.sqrt(np.mean((np.asarray(values, np.float64) - expected) ** 2) / np.mean(expected**2)))


class Graph:
    """Tensors of one ggml context, and a graph that computes the last of them."""

    def __init__(self, backend: Backend | None) -> None:
        """With a backend, tensors get their memory from it; without one, they get none."""
        self._backend = backend
        self._buffer: CData = ffi.NULL
        params = {"mem_size": 1 << 20, "mem_buffer": ffi.NULL, "no_alloc": True}
        self.ctx = lib.ggml_init(ffi.new("struct ggml_init_params *", params)[0])

    def input(self, *ne: int, type: int = lib.GGML_TYPE_F32) -> CData:
        return lib.ggml_new_tensor(self.ctx, type, len(ne), ne)

    def of(self, result: CData) -> CData:
        """The graph, allocated when there is a backend to do so."""
        graph = lib.ggml_new_graph(self.ctx)
        lib.ggml_build_forward_expand(graph, result)
        if self._backend is not None:
            self._buffer = lib.ggml_backend_alloc_ctx_tensors(self.ctx, self._backend.handle)
            assert self._buffer != ffi.NULL
        return graph

    def free(self) -> None:
        lib.ggml_backend_buffer_free(self._buffer)
        lib.ggml_free(self.ctx)


@contextmanager
def graph_on(backend: Backend | None) -> Iterator[Graph]:
    graph = Graph(backend)
    try:
        yield graph
    finally:
        graph.free()


def put(tensor: CData, values: npt.NDArray[np.generic]) -> None:
    lib.ggml_backend_tensor_set(tensor, ffi.from_buffer(np.ascontiguousarray(values)), 0, values.nbytes)


def take(tensor: CData, shape: tuple[int, ...]) -> Floats:
    values = np.empty(shape, np.float32)
    lib.ggml_backend_tensor_get(tensor, ffi.from_buffer(values, require_writable=True), 0, values.nbytes)
    return values


def add(backend: Backend, a: Floats, b: Floats) -> Floats:
    with graph_on(backend) as graph:
        x, y = graph.input(len(a)), graph.input(len(b))
        z = lib.ggml_add(graph.ctx, x, y)
        cgraph = graph.of(z)
        put(x, a)
        put(y, b)
        backend.compute(cgraph)
        return take(z, a.shape)
