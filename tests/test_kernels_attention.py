"""Attention by our own kernel: right, and the same bits whatever else is computed and wherever the cells lie."""

from __future__ import annotations

import ctypes
import functools
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from raw_graphs import graph_on, put

import pyggml
from pyggml import ffi, lib
from pyggml.backend import Backend
from pyggml.context import Context
from pyggml.quant import GGMLType, dequantize, quantize

Floats = npt.NDArray[np.float32]

N_KEY_HEADS = 2
CPU_INFO = Path("/proc/cpuinfo")

pytestmark = pytest.mark.skipif(
    not CPU_INFO.exists() or not {"avx2", "fma", "f16c"} <= set(CPU_INFO.read_text().split()),
    reason="our attention needs instructions that this processor lacks",
)

MAGIC = 0x6E6F697469736F71  # csrc/kernels/positions.h


class Positions(ctypes.Structure):
    """What tells attention the positions of cells: pyg_positions of csrc/kernels/positions.h."""

    Write = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_int32), ctypes.c_int64,
        ctypes.POINTER(ctypes.c_int64),
    )
    InOrder = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_int32), ctypes.c_int64
    )
    _fields_ = (("magic", ctypes.c_uint64), ("keys", Write), ("in_order", InOrder), ("cache", ctypes.c_void_p))


Cells: TypeAlias = "ctypes._Pointer[ctypes.c_int32]"


def positions_in(order: npt.NDArray[np.int64]) -> Positions:
    """Those of [stream, cell]."""

    def write(_: int, stream: int, cells: Cells, n: int, keys: ctypes._Pointer[ctypes.c_int64]) -> None:
        np.ctypeslib.as_array(keys, (n,))[:] = order[stream, np.ctypeslib.as_array(cells, (n,))] << 32

    def in_order(_: int, stream: int, cells: Cells, n: int) -> int:
        return bool((np.diff(order[stream, np.ctypeslib.as_array(cells, (n,))]) >= 0).all())

    return Positions(MAGIC, Positions.Write(write), Positions.InOrder(in_order), None)


@dataclass(frozen=True)
class Case:
    """A sequence's prompt: how its attention is shaped."""

    type: str = "f16"
    n_keys: int = 64
    n_values: int = 64
    n_shared: int = 2  # heads that share keys
    n_cells: int = 150
    n_rows: int = 20  # the last so many of the sequence
    window: int = 0
    bias: float = 0.0
    softcap: float = 0.0
    sinks: bool = False

    def drawn(self, n_bits: int) -> tuple[Floats, Floats, Floats, Floats]:
        draw = np.random.default_rng(n_bits)
        n_heads = N_KEY_HEADS * self.n_shared
        return (
            draw.standard_normal((n_heads, self.n_rows, self.n_keys), np.float32),
            draw.standard_normal((self.n_cells, N_KEY_HEADS, self.n_keys), np.float32) * 2,
            draw.standard_normal((self.n_cells, N_KEY_HEADS, self.n_values), np.float32),
            draw.standard_normal(n_heads, np.float32),
        )

    def mask(self) -> Floats:
        rows = np.arange(self.n_cells - self.n_rows, self.n_cells)[:, None]
        cells = np.arange(self.n_cells)[None, :]
        seen = cells <= rows
        if self.window:
            seen &= cells > rows - self.window
        return np.where(seen, (cells - rows) * (1.0 if self.bias else 0.0), -np.inf).astype(np.float32)


CASES = {
    "plain": Case(),
    "one head to a key": Case(n_shared=1, n_keys=80, n_values=40),
    "many heads to a key": Case(n_shared=8, n_rows=40, n_keys=128, n_values=128),
    "window": Case(window=37),
    "bias": Case(bias=8.0, n_shared=3),
    "softcap": Case(softcap=20.0),
    "sinks": Case(sinks=True),
    "bf16": Case(type="bf16"),
    "f32": Case(type="f32"),
    "q8_0": Case(type="q8_0"),
    "one row": Case(n_rows=1),
    "no history": Case(n_cells=48, n_rows=48),
}


def stored(values: Floats, type: str) -> tuple[npt.NDArray[np.uint8], Floats]:
    """The bytes of a cache's rows, [cell, dimension], and their exact values."""
    kind = GGMLType[type.upper()]
    encoded = np.ascontiguousarray(quantize(values, kind)).view(np.uint8).reshape(len(values), -1)
    return encoded, np.asarray(dequantize(encoded, kind, values.shape), np.float32)


def attend(
    case: Case,
    *,
    n_threads: int = 1,
    rows: slice = slice(None),
    order: Sequence[int] | None = None,
    n_kv: int | None = None,
) -> Floats:
    """Attention of some of a case's rows, [row, head, dimension].

    Where there is an order, cell i of the sequence lies in cell order[i] of the cache, with other sequences' between.
    """
    n_kv = n_kv or case.n_cells
    places = list(order) if order is not None else list(range(case.n_cells))
    q, k, v, sinks = case.drawn(1)
    q = q[:, rows]
    mask = np.full((q.shape[1], n_kv), -np.inf, np.float16)
    mask[:, places] = case.mask()[rows]
    others = np.random.default_rng(2)
    kind = GGMLType[case.type.upper()]
    caches = []
    for own in (k, v):
        all_cells = others.standard_normal((n_kv, own.shape[1] * own.shape[2]), np.float32) * 3
        all_cells[places] = own.reshape(case.n_cells, -1)
        caches.append(stored(all_cells, case.type)[0])
    position_of = np.zeros(n_kv, np.int64)
    position_of[places] = np.arange(case.n_cells)
    positions = positions_in(position_of[None])
    with Backend("cpu", n_threads=n_threads) as backend, graph_on(backend) as graph:
        n_heads = N_KEY_HEADS * case.n_shared
        query = graph.input(case.n_keys, q.shape[1], n_heads)
        bases, views = [], []
        for n in (case.n_keys, case.n_values):
            base = graph.input(n * N_KEY_HEADS, n_kv, type=kind)
            head, row = lib.ggml_row_size(kind, n), lib.ggml_row_size(kind, n * N_KEY_HEADS)
            views.append(lib.ggml_view_3d(graph.ctx, base, n, n_kv, N_KEY_HEADS, row, head, 0))
            bases.append(base)
        hidden = graph.input(n_kv, q.shape[1], type=GGMLType.F16)
        scale = 1 / math.sqrt(case.n_keys)
        result = lib.ggml_flash_attn_ext(graph.ctx, query, views[0], views[1], hidden, scale, case.bias, case.softcap)
        sink = graph.input(n_heads)
        if case.sinks:
            lib.ggml_flash_attn_ext_add_sinks(result, sink)
        bases[0].extra = ffi.cast("void *", ctypes.addressof(positions))
        cgraph = graph.of(result)
        put(query, q)
        put(hidden, mask)
        put(sink, sinks)
        for base, cache in zip(bases, caches, strict=True):
            put(base, cache)
        backend.compute(cgraph)
        values = np.empty((q.shape[1], n_heads, case.n_values), np.float32)
        lib.ggml_backend_tensor_get(result, ffi.from_buffer(values, require_writable=True), 0, values.nbytes)
        return values


def expected(case: Case) -> npt.NDArray[np.float64]:
    """What attention should be, in double precision."""
    q, k, v, sinks = case.drawn(1)
    keys, values = (stored(x.reshape(case.n_cells, -1), case.type)[1].reshape(x.shape).astype(float) for x in (k, v))
    n_heads = len(q)
    result = np.empty((case.n_rows, n_heads, case.n_values))
    power = 2.0 ** math.floor(math.log2(n_heads))
    for head in range(n_heads):
        scores = q[head].astype(float) @ keys[:, head // case.n_shared].T / math.sqrt(case.n_keys)
        if case.softcap:
            scores = case.softcap * np.tanh(scores / case.softcap)
        first = head < power
        exponent = (head + 1) * case.bias if first else (2 * (head - power) + 1) * case.bias / 2
        scores += case.mask().astype(float) * 2.0 ** (-exponent / power)
        sink = np.full((case.n_rows, 1), sinks[head] if case.sinks else -np.inf)
        most = np.maximum(scores.max(axis=1, keepdims=True), sink)
        weights = np.exp(scores - most)
        total = weights.sum(axis=1, keepdims=True) + np.exp(sink - most)
        result[:, head] = weights @ values[:, head // case.n_shared] / total
    return result


def scattered(case: Case, n_kv: int) -> list[int]:
    return [int(cell) for cell in np.random.default_rng(3).permutation(n_kv)[: case.n_cells]]


def error(case: Case) -> float:
    return float(np.abs(attend(case) - expected(case)).max())


def errors() -> dict[str, float]:
    return {name: error(case) for name, case in CASES.items()}


def differences() -> dict[str, list[str]]:
    """For each case, the ways to compute it that change a bit of a row."""
    return {name: different_ways(case) for name, case in CASES.items()}


def different_ways(case: Case) -> list[str]:
    alone = attend(case)
    n_kv = case.n_cells + 117
    order = scattered(case, n_kv)
    ways = {
        "threads": attend(case, n_threads=2),
        "padding": attend(case, n_kv=n_kv),
        "order": attend(case, order=order, n_kv=n_kv),
        "increasing": attend(case, order=sorted(order), n_kv=n_kv),
        "row by row": np.concatenate([attend(case, rows=slice(i, i + 1)) for i in range(case.n_rows)]),
        "pieces": np.concatenate([attend(case, rows=slice(0, 7)), attend(case, rows=slice(7, None), n_threads=2)]),
    }
    return [name for name, values in ways.items() if values.tobytes() != alone.tobytes()]


def logits_among_others(others: bool) -> Floats:
    """The shipped model's, of a sequence that goes on in cells which another one has left, or that is alone."""
    token_ids = [(7 * i * i + 3 * i) % 400 + 3 for i in range(40)]
    rows = []
    with pyggml.load() as llm, Context(llm.model, n_ctx=256, n_seq_max=2, n_threads=1, flash_attn="on") as context:
        if others:
            context.decode(token_ids, seq_id=1)
        for i, token_id in enumerate(token_ids):
            if others and i == 20:
                context.seq_rm(1, 10)
            context.decode([token_id], seq_id=0)
            rows.append(context.logits().copy())
    return np.concatenate(rows)


def context_tells_positions() -> dict[str, bool]:
    return {"same": logits_among_others(False).tobytes() == logits_among_others(True).tobytes()}


def in_a_process(function: str, kernels: str) -> dict[str, object]:
    code = f"import json, test_kernels_attention as t; print(json.dumps(t.{function}()))"
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")]), *filter(None, sys.path)]
    env = os.environ | {"PYGGML_KERNELS": kernels, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


results = functools.cache(in_a_process)


@pytest.mark.parametrize("name", CASES)
def test_as_exact_as_upstream(name: str) -> None:
    ours, theirs = (results("errors", kernels)[name] for kernels in ("on", "off"))
    assert isinstance(ours, float)
    assert isinstance(theirs, float)
    assert ours <= max(theirs, 2e-6)


@pytest.mark.parametrize("name", CASES)
def test_every_way_gives_the_same_bits(name: str) -> None:
    assert results("differences", "on")[name] == []


def test_upstream_depends_on_places() -> None:
    """What the test above compares can differ: upstream's order is that of the cells."""
    assert results("differences", "off")["plain"]


def test_contexts_tell_positions() -> None:
    assert results("context_tells_positions", "on")["same"]
    assert not results("context_tells_positions", "off")["same"]
