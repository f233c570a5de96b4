"""Memory estimates, compared with the engine's buffers, and with the growth of the process once the KV cache is full.

    python benchmarks/internal/memory_estimate.py --buffers-only   the buffers: a few minutes, and 14 GB of models
    python benchmarks/internal/memory_estimate.py                  resident memory as well: a few hours
    python benchmarks/internal/memory_estimate.py --model tinyllama-1.1b --ftype q4_0 --n-ctx 512 --n-parallel 1

For every combination of a model, a weight type, n_ctx, n_parallel and a cache type: the estimate, the size that the
engine reports for its buffers with model and context made as an LLM makes them, and, in a separate process, the growth
of resident memory once the cache is full.

To fill the cache, a state with a row for each cell is restored, as after a prompt of that length. The last 512 tokens
are computed, so that the scratch for a full context is touched as well. The engine itself has written to every page of
the cache when it made it.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

import numpy as np
from harness import Claim, at_most, verdict
from synthetic_models import SHAPES, model_file

from pyggml import Context, Model, ffi, lib
from pyggml._core import c_calls
from pyggml.memory.estimate import MemoryEstimate, estimate
from pyggml.memory.llm_context import context_options
from pyggml.memory.planner import device_memories
from pyggml.source import SHIPPED_MODEL

MB = 10**6
SHIPPED = "shipped"
FTYPES = ("f16", "q8_0", "q4_0", "q4_k_m")
Setting = tuple[int, int, str]  # n_ctx, n_parallel, cache_type
Row = dict[str, int]

N_LAST = 512  # tokens computed with the cache full


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", default=[SHIPPED, *SHAPES])
    parser.add_argument("--ftype", nargs="+", default=FTYPES)
    parser.add_argument("--n-ctx", nargs="+", type=int, default=[512, 8192, 32768])
    parser.add_argument("--n-parallel", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--cache-type", nargs="+", default=["f16", "q8_0"])
    parser.add_argument("--buffers-only", action="store_true", help="do not fill the cache")
    chosen = parser.parse_args()
    settings = list(itertools.product(chosen.n_ctx, chosen.n_parallel, chosen.cache_type))
    jobs = [settings] if chosen.buffers_only else [[each] for each in settings]
    print(f"{'':50} {'estimate':>9} {'engine':>9} {'off':>7}   {'resident':>9} {'grown':>9} {'ratio':>6}   MB")
    rows = [row for path in _files(chosen.model, chosen.ftype) for job in jobs for row in _rows(path, job, chosen)]
    return verdict(_claims(rows))


def _files(names: list[str], ftypes: list[str]) -> Iterator[Path]:
    for name in names:
        if name == SHIPPED:
            yield SHIPPED_MODEL
        else:
            yield from (model_file(name, ftype) for ftype in ftypes)


def _rows(path: Path, job: list[Setting], chosen: argparse.Namespace) -> Iterator[Row]:
    """Measure settings of a file in a separate process."""
    order = json.dumps({"path": str(path), "settings": job, "fills": not chosen.buffers_only})
    done = subprocess.run([sys.executable, __file__, "--worker", order], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{path.name}: {done.stderr}")
    for (n_ctx, n_parallel, cache_type), row in zip(job, json.loads(done.stdout), strict=True):
        numbers = {key: value / MB for key, value in row.items()}
        planned, taken = numbers["planned"], numbers["taken"]
        line = f"{f'{path.stem} n_ctx {n_ctx} x{n_parallel} {cache_type}':50} {planned:9.1f} {taken:9.1f}"
        line += f" {planned - taken:7.1f}"
        if "grown" in numbers:
            resident, grown = numbers["resident"], numbers["grown"]
            line += f"   {resident:9.1f} {grown:9.1f} {resident / grown:6.3f}"
        print(line, flush=True)
        yield row


def _claims(rows: list[Row]) -> list[Claim]:
    # The first claim has two bounds, of which one must hold: how much of the looser one is used up.
    used = [min(abs(r["planned"] - r["taken"]) / bound for bound in (0.05 * r["taken"], 20 * MB)) for r in rows]
    ratios = [abs(row["resident"] / row["grown"] - 1) for row in rows if "grown" in row]
    claims = [at_most("difference from the engine's buffers, of the 5% or 20 MB allowed", 100 * max(used), 100, "%")]
    if ratios:
        claims.append(at_most("difference from the growth of resident memory", 100 * max(ratios), 10, "%"))
    return claims


# --- in a separate process --------------------------------------------------------------------------------------


def work(path: str, settings: list[Setting], fills: bool) -> list[Row]:
    with Model(SHIPPED_MODEL) as model, Context(model, n_ctx=512) as context:
        context.decode([5])  # what the process allocates only once
    planned = [estimate(path, n_ctx=n, n_parallel=n_parallel, cache_type=cache) for n, n_parallel, cache in settings]
    before = _resident()
    with Model(path) as model:
        return [_compare(each, model, before, fills) for each in planned]


def _compare(planned: MemoryEstimate, model: Model, before: int, fills: bool) -> Row:
    with Context(model, **vars(context_options(planned, planned.n_ctx))) as context:
        row = {"planned": planned.resident_bytes - planned.devices[0].vocabulary_bytes, "taken": _taken(context)}
        if fills:
            _fill(context)
            row |= {"resident": planned.resident_bytes, "grown": _resident() - before}
    return row


def _resident() -> int:
    ctypes.CDLL(None).malloc_trim(0)
    with Path("/proc/self/status").open() as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def _taken(context: Context) -> int:
    memory = ffi.new("pyg_memory *")
    c_calls.call(lib.pyg_context_memory, context._handle, memory)
    return sum(device.total_bytes for device in device_memories(memory))


def _fill(context: Context) -> None:
    """Give all cells to sequence 0, the last of them by computing."""
    n_restored = context.n_ctx - min(N_LAST, context.n_ctx)
    if n_restored:
        context.decode([5])
        _restore(context, _of_one_cell(context), n_restored)
    context.decode(np.arange(context.n_ctx - n_restored) % 500 + 10)
    first, last = context.seq_pos() or (0, -1)
    assert last - first + 1 == context.n_ctx, "the cache is not full"


def _of_one_cell(context: Context) -> bytes:
    """The engine's state of sequence 0 with one cell."""
    size = lib.llama_state_seq_get_size(context.handle, 0)
    state = ffi.new("uint8_t[]", size)
    assert lib.llama_state_seq_get_data(context.handle, state, size, 0) == size
    return bytes(ffi.buffer(state))


def _restore(context: Context, one: bytes, n: int) -> None:
    """Restore ``n`` copies of a state's only cell, at the positions from 0."""
    state = _many_cells(one, n)
    restored = lib.llama_state_seq_set_data(context.handle, ffi.from_buffer("uint8_t[]", state), len(state), 0)
    assert restored == len(state), "the engine refuses the state"


def _many_cells(one: bytes, n: int) -> bytearray:
    """Return a state of ``n`` cells in the layout of upstream's llama_kv_cache::state_write."""
    reader = _Reader(one)
    state = bytearray(reader.take("<IiI"))  # magic, sequence, streams
    assert reader.take("<I") == struct.pack("<I", 1)
    state += struct.pack("<I", n)
    cell = reader.take("<iIi")
    for position in range(n):
        state += struct.pack("<i", position) + cell[4:]
    state += reader.take("<IIII")  # values as rows, layers, and two about rotations
    while reader.left:
        head = reader.take("<iQ")  # type, bytes of a row
        state += head + reader.take(f"<{struct.unpack('<iQ', head)[1]}s") * n
    return state


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._offset

    def take(self, layout: str) -> bytes:
        size = struct.calcsize(layout)
        self._offset += size
        return self._data[self._offset - size : self._offset]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        print(json.dumps(work(**json.loads(sys.argv[2]))))
    else:
        sys.exit(main())
