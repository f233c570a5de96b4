"""Raw ggml: a quantised matrix product and a small MLP, computed on a device and checked against numpy.

python examples/raw_ggml_graph.py CUDA0          a name from pyggml.devices(); the default is CPU

``pyggml.lib`` and ``pyggml.ffi`` are ggml's C API. It is unguarded: a wrong shape ends the process, as in C. pyggml
adds only Backend here, which turns an unknown device or a graph without memory into an exception.

Shapes: ggml counts dimensions from the innermost, so that a numpy array (n_rows, n_columns) is a tensor with
ne = [n_columns, n_rows], and ggml_mul_mat(w, x) is numpy's x @ w.T.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

import pyggml
from pyggml import Backend, ffi, lib
from pyggml.quant import GGMLType, dequantize, quantize

if TYPE_CHECKING:
    from pyggml._core.ffi import CData

Floats = npt.NDArray[np.float32]

N_IN, N_HIDDEN, N_OUT, N_ROWS = 256, 512, 32, 8
CONTEXT_BYTES = 1 << 20  # for descriptions only: the tensors' data is in the device's memory

random = np.random.default_rng(seed=0)


def draw(*shape: int, scale: float = 1.0) -> Floats:
    """Normally distributed numbers."""
    return (random.standard_normal(shape) * scale).astype(np.float32)


def new_context() -> CData:
    """A context that describes tensors; ggml_free it at the end."""
    return lib.ggml_init(ffi.new("struct ggml_init_params *", {"mem_size": CONTEXT_BYTES, "no_alloc": True})[0])


def put(tensor: CData, values: npt.NDArray[np.generic]) -> None:
    """Copy an array into a tensor, wherever its memory is."""
    lib.ggml_backend_tensor_set(tensor, ffi.from_buffer(values), 0, values.nbytes)


def take(tensor: CData, shape: tuple[int, ...]) -> Floats:
    """Copy a tensor's values into a new array."""
    values = np.empty(shape, np.float32)
    lib.ggml_backend_tensor_get(tensor, ffi.from_buffer(values, require_writable=True), 0, values.nbytes)
    return values


def report(what: str, result: Floats, expected: Floats, tolerance: float) -> bool:
    """Print the error of a result against numpy's, relative to the size of the numbers."""
    error = float(np.linalg.norm(result - expected) / np.linalg.norm(expected))
    verdict = "ok" if error < tolerance else "WRONG"
    print(f"{what}: {result.shape}, relative error {error:.1e} (at most {tolerance:.0e}) - {verdict}")
    return error < tolerance


def quantised_product(backend: Backend) -> bool:
    """Weights as Q4_K times activations as F32."""
    weights, activations = draw(N_OUT, N_IN), draw(N_ROWS, N_IN)
    packed = quantize(weights, GGMLType.Q4_K)

    ctx = new_context()
    w = lib.ggml_new_tensor_2d(ctx, lib.GGML_TYPE_Q4_K, N_IN, N_OUT)
    x = lib.ggml_new_tensor_2d(ctx, lib.GGML_TYPE_F32, N_IN, N_ROWS)
    product = lib.ggml_mul_mat(ctx, w, x)
    graph = lib.ggml_new_graph(ctx)
    lib.ggml_build_forward_expand(graph, product)

    buffer = lib.ggml_backend_alloc_ctx_tensors(ctx, backend.handle)
    put(w, packed)
    put(x, activations)
    backend.compute(graph)
    result = take(product, (N_ROWS, N_OUT))
    lib.ggml_backend_buffer_free(buffer)
    lib.ggml_free(ctx)

    print(f"Q4_K weights take {packed.nbytes} bytes instead of {weights.nbytes}")
    # The device rounds the activations to 8 bits on the way, so the two differ by more than float32 would.
    expected = activations @ dequantize(packed, GGMLType.Q4_K, weights.shape).T
    return report("quantised product", result, expected, tolerance=2e-2)


def mlp(backend: Backend) -> bool:
    """Two layers with biases, SiLU between them, all F32."""
    arrays = {
        "up": draw(N_HIDDEN, N_IN, scale=N_IN**-0.5),
        "up_bias": draw(N_HIDDEN, scale=0.1),
        "down": draw(N_OUT, N_HIDDEN, scale=N_HIDDEN**-0.5),
        "down_bias": draw(N_OUT, scale=0.1),
        "x": draw(N_ROWS, N_IN),
    }

    ctx = new_context()
    tensors = {
        name: lib.ggml_new_tensor(ctx, lib.GGML_TYPE_F32, array.ndim, list(reversed(array.shape)))
        for name, array in arrays.items()
    }
    hidden = lib.ggml_add(ctx, lib.ggml_mul_mat(ctx, tensors["up"], tensors["x"]), tensors["up_bias"])
    hidden = lib.ggml_silu(ctx, hidden)
    output = lib.ggml_add(ctx, lib.ggml_mul_mat(ctx, tensors["down"], hidden), tensors["down_bias"])
    graph = lib.ggml_new_graph(ctx)
    lib.ggml_build_forward_expand(graph, output)

    buffer = lib.ggml_backend_alloc_ctx_tensors(ctx, backend.handle)
    for name, array in arrays.items():
        put(tensors[name], array)
    backend.compute(graph)
    result = take(output, (N_ROWS, N_OUT))
    n_nodes = lib.ggml_graph_n_nodes(graph)
    lib.ggml_backend_buffer_free(buffer)
    lib.ggml_free(ctx)

    print(f"the MLP is a graph of {n_nodes} operations")
    before = arrays["x"] @ arrays["up"].T + arrays["up_bias"]
    expected = (before / (1 + np.exp(-before))) @ arrays["down"].T + arrays["down_bias"]
    return report("MLP", result, expected, tolerance=1e-3)


def main() -> None:
    """Run both on the device; the exit status says whether the results are right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", nargs="?", default="CPU")
    args = parser.parse_args()
    with Backend(args.device) as backend:
        print(f"on {ffi.string(lib.ggml_backend_name(backend.handle)).decode()}")
        results = [quantised_product(backend), mlp(backend)]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    try:
        main()
    except pyggml.DeviceError as error:
        sys.exit(f"raw_ggml_graph.py: {error}")
