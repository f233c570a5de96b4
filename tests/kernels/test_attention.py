"""Our attention kernel: correct, with the same bits for any batch and any order of the cells."""

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
from support.paths import TESTS
from support.raw_graphs import graph_on, put, take

import pyggml
from pyggml import ffi, lib
from pyggml._native.backend import Backend
from pyggml._native.context import Context
from pyggml.quant import GGMLType, dequantize, quantize

Floats = npt.NDArray[np.float32]

N_KEY_HEADS = 2
CPU_INFO = Path("/proc/cpuinfo")

pytestmark = pytest.mark.skipif(
    not CPU_INFO.exists() or not {"avx2", "fma", "f16c"} <= set(CPU_INFO.read_text().split()),
    reason="our attention needs instructions that this processor lacks",
)

MAGIC = 0x6E6F697469736F71  # csrc/kernels/attention/cell_positions.h


class Positions(ctypes.Structure):
    """The positions of cells, for attention: pyg_positions of csrc/kernels/attention/cell_positions.h."""

    Write = ctypes.CFUNCTYPE(
        None,
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.POINTER(ctypes.c_int32),
        ctypes.c_int64,
        ctypes.POINTER(ctypes.c_int64),
    )
    InOrder = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_int32), ctypes.c_int64
    )
    _fields_ = (("magic", ctypes.c_uint64), ("keys", Write), ("in_order", InOrder), ("cache", ctypes.c_void_p))


Cells: TypeAlias = "ctypes._Pointer[ctypes.c_int32]"


def positions_in(order: npt.NDArray[np.int64]) -> Positions:
    """Positions of [stream, cell]."""

    def write(_: int, stream: int, cells: Cells, n: int, keys: ctypes._Pointer[ctypes.c_int64]) -> None:
        np.ctypeslib.as_array(keys, (n,))[:] = order[stream, np.ctypeslib.as_array(cells, (n,))] << 32

    def in_order(_: int, stream: int, cells: Cells, n: int) -> int:
        return bool((np.diff(order[stream, np.ctypeslib.as_array(cells, (n,))]) >= 0).all())

    return Positions(MAGIC, Positions.Write(write), Positions.InOrder(in_order), None)


@dataclass(frozen=True)
class Case:
    """Sequences' prompts, one to a stream: how their attention is shaped."""

    type: str = "f16"
    n_keys: int = 64
    n_values: int = 64
    n_shared: int = 2  # heads that share keys
    n_cells: int = 150
    n_rows: int = 20  # the last so many of the sequence
    n_streams: int = 1
    masked: bool = True
    window: int = 0
    bias: float = 0.0
    softcap: float = 0.0
    sinks: bool = False
    values_in_keys: bool = False  # the first so many dimensions are the values

    @property
    def n_heads(self) -> int:
        return N_KEY_HEADS * self.n_shared

    def drawn(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Queries [stream, row, head, dimension], keys and values [stream, cell, head, dimension], sinks [head]."""
        draw = np.random.default_rng(1)
        return (
            draw.standard_normal((self.n_streams, self.n_rows, self.n_heads, self.n_keys), np.float32),
            draw.standard_normal((self.n_streams, self.n_cells, N_KEY_HEADS, self.n_keys), np.float32) * 2,
            draw.standard_normal((self.n_streams, self.n_cells, N_KEY_HEADS, self.n_values), np.float32),
            draw.standard_normal(self.n_heads, np.float32),
        )

    def mask(self) -> Floats:
        """The mask that is added to scores, [row, cell]."""
        if not self.masked:
            return np.zeros((self.n_rows, self.n_cells), np.float32)
        rows = np.arange(self.n_cells - self.n_rows, self.n_cells)[:, None]
        cells = np.arange(self.n_cells)[None, :]
        seen = cells <= rows
        if self.window:
            seen &= cells > rows - self.window
        return np.where(seen, (cells - rows) * (1.0 if self.bias else 0.0), -np.inf).astype(np.float32)


CASES = {
    "plain": Case(),
    "one head to a key": Case(n_shared=1, n_keys=80, n_values=40),
    "three heads to a key": Case(n_shared=3, n_keys=96, n_values=96),
    "many heads to a key": Case(n_shared=8, n_rows=40, n_keys=128, n_values=128),
    "more heads to a key than are computed at once": Case(n_shared=67, n_rows=3),
    "heads of 112": Case(n_keys=112, n_values=112),
    "heads of 256": Case(n_keys=256, n_values=256, n_rows=3),
    "values in keys": Case(n_keys=576, n_values=512, n_shared=5, n_rows=3, values_in_keys=True),
    "long": Case(n_cells=900, n_rows=2),
    "long with a window": Case(n_cells=900, n_rows=2, window=300, n_shared=3),
    "window": Case(window=37),
    "bias": Case(bias=8.0, n_shared=3),
    "softcap": Case(softcap=20.0),
    "low softcap": Case(softcap=0.5),
    "sinks": Case(sinks=True),
    "everything": Case(bias=8.0, softcap=20.0, sinks=True, window=140, n_shared=3, n_cells=300, type="q8_0"),
    "streams": Case(n_streams=3, n_rows=5),
    "streams without a mask": Case(n_streams=2, n_rows=5, masked=False),
    "no mask": Case(masked=False),
    "bf16": Case(type="bf16"),
    "f32": Case(type="f32"),
    "q8_0": Case(type="q8_0"),
    "q5_1": Case(type="q5_1"),
    "q4_0": Case(type="q4_0"),
    "iq4_nl": Case(type="iq4_nl"),
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
    n_others: int = 0,
) -> Floats:
    """Attention of some of a case's rows, [stream, row, head, dimension].

    Where there is an order, cell i of the sequence lies in cell order[i] of the cache, with other sequences' between.
    So many rows of another sequence, which has these cells, are computed along before and after.
    """
    n_kv = n_kv or case.n_cells
    places = list(order) if order is not None else list(range(case.n_cells))
    q, k, v, sinks = case.drawn()
    q = q[:, rows]
    draw = np.random.default_rng(2)
    before, after = (draw.standard_normal((case.n_streams, n_others, *q.shape[2:]), np.float32) for _ in range(2))
    q = np.concatenate([before, q, after], axis=1)
    n_rows = q.shape[1]
    mask = np.full((case.n_streams, n_rows, n_kv), -np.inf, np.float16)
    mask[:, :n_others] = mask[:, n_rows - n_others :] = 0
    mask[:, :, places] = -np.inf
    mask[:, n_others : n_rows - n_others, places] = case.mask()[rows]
    kind = GGMLType[case.type.upper()]
    # an unused stream comes first
    position_of = np.broadcast_to(np.arange(n_kv), (case.n_streams + 1, n_kv)).copy()
    position_of[1:, places] = np.arange(case.n_cells)
    positions = positions_in(position_of)
    with Backend("cpu", n_threads=n_threads) as backend, graph_on(backend) as graph:
        query = graph.input(case.n_keys, case.n_heads, n_rows, case.n_streams)
        bases = [
            graph.input(n * N_KEY_HEADS, n_kv, case.n_streams + 1, type=kind) for n in (case.n_keys, case.n_values)
        ]
        caches = [_cache(own, places, n_kv, case.type, draw) for own in (k, v)]
        if case.values_in_keys:
            bases[1] = bases[0]
        views = [
            lib.ggml_view_4d(
                graph.ctx, base, n, n_kv, N_KEY_HEADS, case.n_streams,
                lib.ggml_row_size(kind, base.ne[0]), lib.ggml_row_size(kind, base.ne[0] // N_KEY_HEADS),
                lib.ggml_row_size(kind, base.ne[0]) * n_kv, lib.ggml_row_size(kind, base.ne[0]) * n_kv,
            )
            for base, n in zip(bases, (case.n_keys, case.n_values), strict=True)
        ]  # fmt: skip
        hidden = graph.input(n_kv, n_rows, 1, case.n_streams, type=GGMLType.F16)
        result = lib.ggml_flash_attn_ext(
            graph.ctx, lib.ggml_permute(graph.ctx, query, 0, 2, 1, 3), views[0], views[1],
            hidden if case.masked else ffi.NULL, 1 / math.sqrt(case.n_keys), case.bias, case.softcap,
        )  # fmt: skip
        sink = graph.input(case.n_heads)
        if case.sinks:
            lib.ggml_flash_attn_ext_add_sinks(result, sink)
        bases[0].extra = ffi.cast("void *", ctypes.addressof(positions))
        cgraph = graph.of(result)
        put(query, q)
        put(hidden, mask)
        put(sink, sinks)
        for base, cache in zip(bases[: 1 if case.values_in_keys else 2], caches, strict=False):
            put(base, cache)
        backend.compute(cgraph)
        values = take(result, (case.n_streams, n_rows, case.n_heads, case.n_values))
        return np.ascontiguousarray(values[:, n_others : n_rows - n_others])


def _cache(own: Floats, places: list[int], n_kv: int, type: str, draw: np.random.Generator) -> npt.NDArray[np.uint8]:
    """The bytes of a cache in which streams' cells lie in these places, after one more stream."""
    cells = draw.standard_normal((own.shape[0] + 1, n_kv, own.shape[2] * own.shape[3]), np.float32) * 3
    cells[1:, places] = own.reshape(*own.shape[:2], -1)
    return stored(cells.reshape(-1, cells.shape[2]), type)[0]


def expected(case: Case) -> npt.NDArray[np.float64]:
    """The reference result of attention, in double precision."""
    q, k, v, sinks = case.drawn()
    keys, values = (stored(x.reshape(-1, x.shape[2] * x.shape[3]), case.type)[1].reshape(x.shape) for x in (k, v))
    if case.values_in_keys:
        values = keys[..., : case.n_values]
    result = np.empty((case.n_streams, case.n_rows, case.n_heads, case.n_values))
    power = 2.0 ** math.floor(math.log2(case.n_heads))
    for head in range(case.n_heads):
        own = head // case.n_shared
        scores = q[:, :, head].astype(float) @ keys[:, :, own].astype(float).transpose(0, 2, 1)
        scores /= math.sqrt(case.n_keys)
        if case.softcap:
            scores = case.softcap * np.tanh(scores / case.softcap)
        first = head < power
        exponent = (head + 1) * case.bias if first else (2 * (head - power) + 1) * case.bias / 2
        scores += case.mask().astype(float) * 2.0 ** (-exponent / power)
        sink = np.full((*scores.shape[:2], 1), sinks[head] if case.sinks else -np.inf)
        most = np.maximum(scores.max(axis=2, keepdims=True), sink)
        weights = np.exp(scores - most)
        total = weights.sum(axis=2, keepdims=True) + np.exp(sink - most)
        result[:, :, head] = weights @ values[:, :, own].astype(float) / total
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


def in_several_passes() -> dict[str, bool]:
    """More rows over more cells than can be listed at once."""
    case = Case(n_cells=70_000, n_rows=40, n_keys=32, n_values=16, n_shared=1)
    together = attend(case, n_threads=2)
    apart = np.concatenate([attend(case, rows=rows) for rows in (slice(0, 20), slice(20, None))], axis=1)
    return {
        "same": together.tobytes() == apart.tobytes(),
        "right": float(np.abs(together - expected(case)).max()) < 1e-6,
    }


def depends_on_places() -> dict[str, bool]:
    """Check for bits that depend on the order of the cells."""
    case = CASES["plain"]
    order = list(reversed(range(case.n_cells)))
    return {"plain": attend(case).tobytes() != attend(case, order=order).tobytes()}


def different_ways(case: Case) -> list[str]:
    alone = attend(case)
    n_kv = case.n_cells + 117
    order = scattered(case, n_kv)
    some = case.n_rows // 3
    ways = {
        "threads": attend(case, n_threads=2),
        "many threads": attend(case, n_threads=5),
        "row by row": np.concatenate([attend(case, rows=slice(i, i + 1)) for i in range(case.n_rows)], axis=1),
        "one row, many threads": np.concatenate(
            [attend(case, rows=slice(0, 1), n_threads=7), attend(case, rows=slice(1, None))], axis=1
        )
        if case.n_rows > 1
        else attend(case, n_threads=7),
    }
    if case.masked:
        ways |= {
            "padding": attend(case, n_kv=n_kv),
            "order": attend(case, order=order, n_kv=n_kv),
            "increasing": attend(case, order=sorted(order), n_kv=n_kv),
            "among others": attend(case, order=order, n_kv=n_kv, n_others=3, n_threads=2),
            "one row among others": np.concatenate(
                [attend(case, rows=slice(i, i + 1), order=order, n_kv=n_kv, n_others=1) for i in range(case.n_rows)],
                axis=1,
            ),
        }
    if some:
        ways["pieces"] = np.concatenate(
            [attend(case, rows=slice(0, some)), attend(case, rows=slice(some, None), n_threads=2)], axis=1
        )
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
    code = f"import json; from kernels import test_attention as t; print(json.dumps(t.{function}()))"
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")]), *filter(None, sys.path)]
    env = os.environ | {"PYGGML_KERNELS": kernels, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


results = functools.cache(in_a_process)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_as_exact_as_upstream(name: str) -> None:
    ours, theirs = (results("errors", kernels)[name] for kernels in ("on", "off"))
    assert isinstance(ours, float)
    assert isinstance(theirs, float)
    assert ours <= max(theirs, 2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_way_gives_the_same_bits(name: str) -> None:
    assert results("differences", "on")[name] == []


@pytest.mark.slow
def test_many_rows_over_many_cells() -> None:
    assert results("in_several_passes", "on") == {"same": True, "right": True}


@pytest.mark.slow
def test_upstream_depends_on_places() -> None:
    """The comparison of the test above finds differences: upstream sums in the order of the cells."""
    assert results("depends_on_places", "off")["plain"]
    assert not results("depends_on_places", "on")["plain"]


@pytest.mark.slow
def test_contexts_tell_positions() -> None:
    assert results("context_tells_positions", "on")["same"]
    assert not results("context_tells_positions", "off")["same"]
