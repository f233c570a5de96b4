"""A program that computes matrix products of every type through ggml's graphs, and keeps the results.

    python tests/support/products.py RESULTS.npz

PYGGML_KERNELS=off makes upstream's code compute them instead of our kernels. Weights lie where a model's would: in
the buffer type CPU_PYGGML or upstream's CPU_REPACK where that takes them, otherwise in plain memory.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/

import functools
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pyggml import ffi, lib
from pyggml._native.backend import Backend
from pyggml.quant import GGMLType, dequantize, quantize
from support.raw_graphs import Floats, graph_on, put, take

if TYPE_CHECKING:
    from pyggml._core.ffi import CData

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
    """Rows whose values are alike, or of which a few are a hundred to a thousand times the others."""
    rng = np.random.default_rng((len(kind), *shape))
    values = rng.standard_normal(shape, np.float32)
    if kind == "outliers":
        values *= np.where(rng.random(shape) < 0.02, 10 ** rng.uniform(2, 3, shape), 1).astype(np.float32)
    return values


def place_of(backend: Backend, type: str, n_in: int, n_out: int, n_experts: int = 1) -> CData:
    """The buffer type that a model's loader would put such weights into."""
    device = lib.ggml_backend_get_device(backend.handle)
    registry = lib.ggml_backend_dev_backend_reg(device)
    found = lib.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_dev_get_extra_bufts")
    wanted = b"CPU_PYGGML" if os.environ.get("PYGGML_KERNELS") != "off" else b"CPU_REPACK"
    extra = ffi.NULL if found == ffi.NULL else ffi.cast("ggml_backend_dev_get_extra_bufts_t", found)(device)
    index = 0
    while extra != ffi.NULL and extra[index] != ffi.NULL:
        place: CData = extra[index]
        if ffi.string(lib.ggml_backend_buft_name(place)) == wanted:
            with graph_on(None) as graph:
                buffer = lib.ggml_backend_buft_alloc_buffer(place, 0)
                matrix = graph.input(n_in, n_out, n_experts, type=GGMLType[type])
                matrix.buffer = buffer
                if n_experts == 1:
                    product = lib.ggml_mul_mat(graph.ctx, matrix, graph.input(n_in, 512))
                else:
                    ids = graph.input(2, 512, type=lib.GGML_TYPE_I32)
                    product = lib.ggml_mul_mat_id(graph.ctx, matrix, graph.input(n_in, 2, 512), ids)
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


#: Many rows of weights, and of activations more than any kernel takes at once; some of these by themselves.
MANY = (768, 300)
N_MANY = 1100
MANY_ALONE = (0, 511, 512, N_MANY - 1)


def many(backend: Backend, type: str) -> Iterator[tuple[str, Floats]]:
    n_in, n_out = MANY
    with graph_on(None) as held:
        weights = held.input(n_in, n_out, type=GGMLType[type])
        buffer = lib.ggml_backend_alloc_ctx_tensors_from_buft(held.ctx, place_of(backend, type, n_in, n_out))
        lib.ggml_backend_buffer_set_usage(buffer, lib.GGML_BACKEND_BUFFER_USAGE_WEIGHTS)
        put(weights, weights_of(type, n_out, n_in)[0])
        rows = activations("even", N_MANY, n_in)
        yield "many together", product(backend, weights, rows)
        yield "many alone", np.concatenate([product(backend, weights, rows[[i]]) for i in MANY_ALONE])
        lib.ggml_backend_buffer_free(buffer)


#: Weights that ggml repeats over the third and fourth dimension, and rows that lie apart.
REPEATED_WEIGHTS = (1, 2, 37, 256)
REPEATED_ROWS = (3, 4, 7, 256)


def repeated(backend: Backend, type: str) -> Floats:
    with graph_on(backend) as graph:
        weights = graph.input(*REPEATED_WEIGHTS[::-1], type=GGMLType[type])
        x = graph.input(256, 4, 7, 3)
        y = lib.ggml_mul_mat(graph.ctx, weights, lib.ggml_permute(graph.ctx, x, 0, 2, 1, 3))
        cgraph = graph.of(y)
        put(weights, weights_of(type, *REPEATED_WEIGHTS)[0])
        put(x, activations("even", *REPEATED_ROWS).transpose(0, 2, 1, 3))
        backend.compute(cgraph)
        return take(y, (3, 4, 7, 37))


#: Products by expert: values in a row, rows (with a layout in tiles, and without one), experts, of which each token
#: chooses some, and tokens. No token chooses the last expert.
BY_EXPERT = ((256, 48), (512, 37))
N_EXPERTS, N_USED, N_TOKENS = 6, 2, 21
N_MANY_TOKENS = 100  # of which each of two experts gets as many


def choices() -> npt.NDArray[np.int32]:
    rng = np.random.default_rng(1)
    return np.stack([rng.permutation(N_EXPERTS - 1)[:N_USED] for _ in range(N_TOKENS)]).astype(np.int32)


def by_expert(
    backend: Backend, type: str, n_in: int, n_out: int, rows: Floats, chosen: npt.NDArray[np.int32]
) -> Floats:
    """Shape (tokens, choices, n_out). Rows of activations: (tokens, 1 or choices, n_in)."""
    with graph_on(None) as held, graph_on(backend) as graph:
        weights = held.input(n_in, n_out, N_EXPERTS, type=GGMLType[type])
        place = place_of(backend, type, n_in, n_out, N_EXPERTS)
        buffer = lib.ggml_backend_alloc_ctx_tensors_from_buft(held.ctx, place)
        lib.ggml_backend_buffer_set_usage(buffer, lib.GGML_BACKEND_BUFFER_USAGE_WEIGHTS)
        put(weights, weights_of(type, N_EXPERTS, n_out, n_in)[0])
        x = graph.input(*rows.shape[::-1])
        ids = graph.input(*chosen.shape[::-1], type=lib.GGML_TYPE_I32)
        y = lib.ggml_mul_mat_id(graph.ctx, weights, x, ids)
        cgraph = graph.of(y)
        put(x, rows)
        put(ids, chosen)
        backend.compute(cgraph)
        result = take(y, (*chosen.shape, n_out))
        lib.ggml_backend_buffer_free(buffer)
        return result


def results_by_expert(backend: Backend, type: str) -> Iterator[tuple[str, Floats]]:
    """With rows for all choices of a token, and for each; all tokens at once, and one after the other."""
    chosen = choices()
    for n_in, n_out in BY_EXPERT:
        for n_rows in (1, N_USED):
            for kind in KINDS:
                rows = activations(kind, N_TOKENS, n_rows, n_in)
                name = f"{n_in}x{n_out} {n_rows} {kind}"
                yield f"{name} together", by_expert(backend, type, n_in, n_out, rows, chosen)
                alone = [by_expert(backend, type, n_in, n_out, rows[[t]], chosen[[t]]) for t in range(3)]
                yield f"{name} alone", np.concatenate(alone)
    n_in, n_out = BY_EXPERT[0]
    chosen = np.tile(np.array([[1, 3]], np.int32), (N_MANY_TOKENS, 1))
    rows = activations("even", N_MANY_TOKENS, 1, n_in)
    yield "many by expert together", by_expert(backend, type, n_in, n_out, rows, chosen)
    alone = [by_expert(backend, type, n_in, n_out, rows[[t]], chosen[[t]]) for t in (0, N_MANY_TOKENS - 1)]
    yield "many by expert alone", np.concatenate(alone)


#: In rows of activations: infinities, what is not a number, and the largest and the smallest numbers.
ODD_VALUES = (np.inf, -np.inf, np.nan, 1e38, -1e38, 1e-42)
ODD_SHAPE = (256, 33)


def odd_rows() -> Floats:
    rows = activations("even", len(ODD_VALUES) + 2, ODD_SHAPE[0])
    for i, value in enumerate(ODD_VALUES):
        rows[i, 7 + i] = value
    rows[-1] = 0
    return rows


N_ARBITRARY = 4  # matrices


def arbitrary_weights(type: str, seed: int) -> npt.NDArray[np.uint8]:
    """Blocks of any bytes, as a damaged file has them."""
    n_in, n_out = ODD_SHAPE
    n_bytes = lib.ggml_row_size(GGMLType[type], n_in) * n_out
    return np.random.default_rng((len(type), seed)).integers(0, 256, n_bytes, np.uint8)


def decoded(backend: Backend, type: str, encoded: npt.NDArray[np.generic]) -> Floats:
    """The weights that the bytes stand for, not all of which need be numbers."""
    n_in, n_out = ODD_SHAPE
    with graph_on(backend) as graph:
        weights = graph.input(n_in, n_out, type=GGMLType[type])
        ids = graph.input(n_out, type=lib.GGML_TYPE_I32)
        values = lib.ggml_get_rows(graph.ctx, weights, ids)
        cgraph = graph.of(values)
        put(weights, encoded)
        put(ids, np.arange(n_out, dtype=np.int32))
        backend.compute(cgraph)
        return take(values, (n_out, n_in))


def results_of_odd(backend: Backend, type: str) -> Iterator[tuple[str, Floats]]:
    """Products of both kinds of odd operands, and what is known of them: the sums of their terms' magnitudes."""
    n_in, n_out = ODD_SHAPE
    operands = {"odd rows": (weights_of(type, n_out, n_in)[0], odd_rows())}
    if type in QUANTISED:
        for seed in range(N_ARBITRARY):
            operands[f"arbitrary weights {seed}"] = (arbitrary_weights(type, seed), activations("even", 9, n_in))
    for name, (encoded, rows) in operands.items():
        with graph_on(None) as held:
            weights = held.input(n_in, n_out, type=GGMLType[type])
            buffer = lib.ggml_backend_alloc_ctx_tensors_from_buft(held.ctx, place_of(backend, type, n_in, n_out))
            put(weights, encoded)
            yield name, product(backend, weights, rows)
            lib.ggml_backend_buffer_free(buffer)
        with np.errstate(invalid="ignore", over="ignore"):
            magnitudes = np.abs(rows.astype(np.float64)) @ np.abs(decoded(backend, type, encoded).astype(np.float64)).T
            yield f"{name} magnitudes", magnitudes.astype(np.float32)


def main(path: str, types: Sequence[str]) -> None:
    results: dict[str, Floats] = {}
    for n_threads in THREADS:
        with Backend("cpu", n_threads=n_threads) as backend:
            for type in types:
                for n_in, n_out in shapes(type):
                    for n_rows in BATCHES:
                        for kind, result in in_batches(backend, type, n_in, n_out, n_rows):
                            results[f"{type} {n_in}x{n_out} {kind} {n_rows} {n_threads}"] = result
                results[f"{type} repeated {n_threads}"] = repeated(backend, type)
                more = (many(backend, type), results_by_expert(backend, type), results_of_odd(backend, type))
                for name, result in itertools.chain(*more):
                    results[f"{type} {name} {n_threads}"] = result
    np.savez(path, allow_pickle=False, **results)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
