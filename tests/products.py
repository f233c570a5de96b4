"""A program that computes matrix products of every type through ggml's graphs, and keeps the results.

    python tests/products.py RESULTS.npz

PYGGML_KERNELS=on makes our kernels compute them, otherwise upstream's code does. Weights lie where a model's would: in
the buffer type CPU_PYGGML or upstream's CPU_REPACK where that takes them, otherwise in plain memory.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from raw_graphs import Floats, graph_on, put, take

from pyggml import ffi, lib
from pyggml.backend import Backend
from pyggml.quant import GGMLType, dequantize, quantize

if TYPE_CHECKING:
    from pyggml._ffi import CData

FLOATS = ("F32", "F16", "BF16")
QUANTISED = (
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "IQ4_NL",
    "IQ4_XS",
    "MXFP4",
)
TYPES = FLOATS + QUANTISED
BATCHES = (1, 2, 3, 8, 33)
THREADS = (1, 2)
N_ROWS = 33

#: Rows of weights are long and short, and there are many and few: (values in a row, rows).
FLOAT_SHAPES = ((1003, 61), (7, 5), (768, 64), (1, 1))
SHAPES = ((768, 64), (768, 61), (1280, 8))
KINDS = ("even", "outliers")


def shapes(type: str) -> tuple[tuple[int, int], ...]:
    return FLOAT_SHAPES if type in FLOATS else SHAPES


@functools.cache
def weights_of(type: str, *shape: int) -> tuple[np.ndarray, Floats]:
    """Encoded weights, and the values that they stand for."""
    values = np.random.default_rng(shape).standard_normal(shape, np.float32) * np.float32(0.02)
    encoded = quantize(values, GGMLType[type])
    return encoded, dequantize(encoded, GGMLType[type], shape)


def activations(kind: str, *shape: int) -> Floats:
    """Rows whose values are alike, or of which a few are a hundred times the others."""
    rng = np.random.default_rng((len(kind), *shape))
    values = rng.standard_normal(shape, np.float32)
    if kind == "outliers":
        values *= np.where(rng.random(shape) < 0.02, 100, 1).astype(np.float32)
    return values


def place_of(backend: Backend, type: str, n_in: int, n_out: int) -> CData:
    """The buffer type that a model's loader would put such weights into."""
    device = lib.ggml_backend_get_device(backend.handle)
    registry = lib.ggml_backend_dev_backend_reg(device)
    found = lib.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_dev_get_extra_bufts")
    wanted = b"CPU_PYGGML" if os.environ.get("PYGGML_KERNELS") == "on" else b"CPU_REPACK"
    extra = ffi.NULL if found == ffi.NULL else ffi.cast("ggml_backend_dev_get_extra_bufts_t", found)(device)
    index = 0
    while extra != ffi.NULL and extra[index] != ffi.NULL:
        place: CData = extra[index]
        if ffi.string(lib.ggml_backend_buft_name(place)) == wanted:
            with graph_on(None) as graph:
                buffer = lib.ggml_backend_buft_alloc_buffer(place, 0)
                matrix = graph.input(n_in, n_out, type=GGMLType[type])
                matrix.buffer = buffer
                product = lib.ggml_mul_mat(graph.ctx, matrix, graph.input(n_in, 512))
                taken = lib.ggml_backend_dev_supports_op(device, product)
                lib.ggml_backend_buffer_free(buffer)
            if taken:
                return place
        index += 1
    plain: CData = lib.ggml_backend_dev_buffer_type(device)
    return plain


def product(backend: Backend, weights: CData, rows: Floats) -> Floats:
    with graph_on(backend) as graph:
        x = graph.input(*rows.shape[::-1])
        y = lib.ggml_mul_mat(graph.ctx, weights, x)
        cgraph = graph.of(y)
        put(x, rows)
        backend.compute(cgraph)
        return take(y, (rows.shape[0], weights.ne[1]))


def in_batches(backend: Backend, type: str, n_in: int, n_out: int, n_rows: int) -> Iterator[tuple[str, Floats]]:
    """Products with rows of both kinds, computed so many rows at a time: the first four such batches."""
    with graph_on(None) as graph:
        weights = graph.input(n_in, n_out, type=GGMLType[type])
        place = place_of(backend, type, n_in, n_out)
        buffer = lib.ggml_backend_alloc_ctx_tensors_from_buft(graph.ctx, place)
        lib.ggml_backend_buffer_set_usage(buffer, lib.GGML_BACKEND_BUFFER_USAGE_WEIGHTS)
        put(weights, weights_of(type, n_out, n_in)[0])
        for kind in KINDS:
            rows = activations(kind, N_ROWS, n_in)
            parts = [product(backend, weights, rows[i : i + n_rows]) for i in range(0, min(N_ROWS, 4 * n_rows), n_rows)]
            yield kind, np.concatenate(parts)
        lib.ggml_backend_buffer_free(buffer)


#: Weights that ggml repeats over the third and fourth dimension, and rows that lie apart.
REPEATED_WEIGHTS = (1, 2, 37, 256)
REPEATED_ROWS = (3, 4, 5, 256)


def repeated(backend: Backend, type: str) -> Floats:
    with graph_on(backend) as graph:
        weights = graph.input(*REPEATED_WEIGHTS[::-1], type=GGMLType[type])
        x = graph.input(256, 4, 5, 3)
        y = lib.ggml_mul_mat(graph.ctx, weights, lib.ggml_permute(graph.ctx, x, 0, 2, 1, 3))
        cgraph = graph.of(y)
        put(weights, weights_of(type, *REPEATED_WEIGHTS)[0])
        put(x, activations("even", *REPEATED_ROWS).transpose(0, 2, 1, 3))
        backend.compute(cgraph)
        return take(y, (3, 4, 5, 37))


def main(path: str) -> None:
    results: dict[str, Floats] = {}
    for n_threads in THREADS:
        with Backend("cpu", n_threads=n_threads) as backend:
            for type in TYPES:
                for n_in, n_out in shapes(type):
                    for n_rows in BATCHES:
                        for kind, result in in_batches(backend, type, n_in, n_out, n_rows):
                            results[f"{type} {n_in}x{n_out} {kind} {n_rows} {n_threads}"] = result
                results[f"{type} repeated {n_threads}"] = repeated(backend, type)
    np.savez(path, allow_pickle=False, **results)


if __name__ == "__main__":
    main(sys.argv[1])
