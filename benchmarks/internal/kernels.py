"""Matrix products alone: pyggml's kernels against upstream's, by type of the weights and rows at once; and the limits.

    python benchmarks/internal/kernels.py [--type q4_k q8_0 ...] [--rows 1 8 512 ...] [--shape 4096x4096 ...]
                                            [--threads 2]

Two processes take turns, one with PYGGML_KERNELS=off. Each multiplies the same weights, enough matrices in a row that
they come from memory and not from a cache, as in a model. Weights lie where a model's would: ours in the buffer type
CPU_PYGGML, where that takes their type, upstream's in AMX or CPU_REPACK, otherwise both as they are in the file.

What the machine can do at most is measured in the same run (peak_performance.cpp, compiled on the first call): how
fast its cores read memory, and how many operations its instructions for bytes and for floats make per second. A product
is at its limit when it takes no longer than reading its weights once, or than its operations. The table goes to
standard output, the figures to results/kernels.json and the plot, a roofline, to results/kernels.svg where --keep is
given; otherwise both go to build/kernels/.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

import harness
import numpy as np
import result_files

from pyggml import ffi, lib
from pyggml._native.backend import Backend
from pyggml.quant import GGMLType, nbytes, quantize

if TYPE_CHECKING:
    from pyggml._core.ffi import CData

HERE = Path(__file__).resolve().parent
SCRATCH = HERE.parents[1] / "build" / "kernels"

TYPES = ("q4_k", "q5_k", "q6_k", "q8_0", "q4_0", "q5_0", "iq4_xs", "iq4_nl", "f16", "bf16", "f32")
FLOATS = ("f16", "bf16", "f32")
ROWS = (1, 2, 4, 8, 16, 32, 128, 512)
SHAPES = ("4096x4096", "2048x5632")

#: Weights that a pass goes through when memory matters, and the rows from which it does not.
BYTES = 128 << 20
MANY_ROWS = 64
SECONDS = 0.2  # that a figure is measured for, at least

KERNELS = "PYGGML_KERNELS"
SIDES = {"ours": {KERNELS: "on"}, "upstream": {KERNELS: "off"}}


# --- a process that computes products --------------------------------------------------------------------------------


class Products:
    """Products of weights of one type and shape, in this process."""

    def __init__(self, backend: Backend, type: GGMLType, n_in: int, n_out: int) -> None:
        self._backend = backend
        self._size = (n_in, n_out)
        self._n_bytes = nbytes(type, (n_out, n_in))
        with contextlib.ExitStack() as stack:
            params = {"mem_size": 1 << 20, "mem_buffer": ffi.NULL, "no_alloc": True}
            self._context = lib.ggml_init(ffi.new("struct ggml_init_params *", params)[0])
            stack.callback(lib.ggml_free, self._context)
            n_matrices = max(2, math.ceil(BYTES / self._n_bytes))
            self._weights = [lib.ggml_new_tensor_2d(self._context, type, n_in, n_out) for _ in range(n_matrices)]
            place = _place(backend, self._weights[0])
            self.place: str = ffi.string(lib.ggml_backend_buft_name(place)).decode()
            buffer = lib.ggml_backend_alloc_ctx_tensors_from_buft(self._context, place)
            assert buffer != ffi.NULL
            stack.callback(lib.ggml_backend_buffer_free, buffer)
            lib.ggml_backend_buffer_set_usage(buffer, lib.GGML_BACKEND_BUFFER_USAGE_WEIGHTS)
            values = np.random.default_rng(1).standard_normal((n_out, n_in), np.float32) * np.float32(0.02)
            encoded = quantize(values, type)
            for matrix in self._weights:
                lib.ggml_backend_tensor_set(matrix, ffi.cast("void *", encoded.ctypes.data), 0, encoded.nbytes)
            self._stack = stack.pop_all()

    def close(self) -> None:
        self._stack.close()

    def seconds(self, n_rows: int) -> float:
        """Seconds of one product with so many rows: the best of some passes over the matrices."""
        matrices = self._weights if n_rows < MANY_ROWS else self._weights[:2]
        params = {"mem_size": 1 << 20, "mem_buffer": ffi.NULL, "no_alloc": True}
        context = lib.ggml_init(ffi.new("struct ggml_init_params *", params)[0])
        try:
            rows = lib.ggml_new_tensor_2d(context, GGMLType.F32, self._size[0], n_rows)
            graph = lib.ggml_new_graph(context)
            for matrix in matrices:
                lib.ggml_build_forward_expand(graph, lib.ggml_mul_mat(context, matrix, rows))
            buffer = lib.ggml_backend_alloc_ctx_tensors(context, self._backend.handle)
            assert buffer != ffi.NULL
            try:
                values = np.random.default_rng(2).standard_normal((n_rows, self._size[0]), np.float32)
                lib.ggml_backend_tensor_set(rows, ffi.cast("void *", values.ctypes.data), 0, values.nbytes)
                return _best(lambda: self._backend.compute(graph)) / len(matrices)
            finally:
                lib.ggml_backend_buffer_free(buffer)
        finally:
            lib.ggml_free(context)


def _best(call: Callable[[], object]) -> float:
    call()
    least, end = math.inf, time.perf_counter() + SECONDS
    while True:
        start = time.perf_counter()
        call()
        now = time.perf_counter()
        least = min(least, now - start)
        if now > end:
            return least


def _place(backend: Backend, weights: CData) -> CData:
    """The buffer type that a model's loader would put such weights into."""
    device = lib.ggml_backend_get_device(backend.handle)
    plain: CData = lib.ggml_backend_dev_buffer_type(device)
    registry = lib.ggml_backend_dev_backend_reg(device)
    found = lib.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_dev_get_extra_bufts")
    if found == ffi.NULL:
        return plain
    extra = ffi.cast("ggml_backend_dev_get_extra_bufts_t", found)(device)
    index = 0
    while extra[index] != ffi.NULL:
        place: CData = extra[index]
        if _takes(device, place, weights):
            return place
        index += 1
    return plain


def _takes(device: CData, place: CData, weights: CData) -> bool:
    """Return True if a buffer type supports weights of this type and shape, as in upstream's loader."""
    params = {"mem_size": 1 << 16, "mem_buffer": ffi.NULL, "no_alloc": True}
    context = lib.ggml_init(ffi.new("struct ggml_init_params *", params)[0])
    buffer = lib.ggml_backend_buft_alloc_buffer(place, 0)
    try:
        matrix = lib.ggml_new_tensor_2d(context, weights.type, weights.ne[0], weights.ne[1])
        matrix.buffer = buffer
        rows = lib.ggml_new_tensor_2d(context, GGMLType.F32, weights.ne[0], 512)
        return bool(lib.ggml_backend_dev_supports_op(device, lib.ggml_mul_mat(context, matrix, rows)))
    finally:
        lib.ggml_backend_buffer_free(buffer)
        lib.ggml_free(context)


def work(n_threads: int) -> None:
    """Answer lines of JSON, ``{"type", "n_in", "n_out", "n_rows"}``, with the seconds of a product."""
    products, made_for = None, None
    with Backend("cpu", n_threads=n_threads) as backend:
        for line in sys.stdin:
            asked = json.loads(line)
            key = (asked["type"], asked["n_in"], asked["n_out"])
            if made_for != key or products is None:
                if products is not None:
                    products.close()
                products, made_for = Products(backend, GGMLType[asked["type"].upper()], *key[1:]), key
            print(json.dumps({"seconds": products.seconds(asked["n_rows"]), "place": products.place}), flush=True)


# --- the comparison --------------------------------------------------------------------------------------------------


class Worker:
    """A process that computes products, and the way to ask it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, **asked: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a process that computes products died; its output is above")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextlib.contextmanager
def worker(n_threads: int, variables: dict[str, str]) -> Iterator[Worker]:
    command = [sys.executable, __file__, "--work", "--threads", str(n_threads)]
    pipe = subprocess.PIPE
    env = os.environ | variables
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, env=env) as process:
        assert process.stdin is not None
        try:
            yield Worker(process)
        finally:
            process.stdin.close()


@dataclass(frozen=True)
class Limits:
    """Peak performance of the machine's cores, per second."""

    read_bytes_per_s: float
    byte_instructions: str
    byte_ops_per_s: float
    float_instructions: str
    float_ops_per_s: float
    bf16_instructions: str
    bf16_ops_per_s: float

    def ops_per_s(self, type: str) -> float:
        if type == "bf16":
            return self.bf16_ops_per_s
        return self.float_ops_per_s if type in FLOATS else self.byte_ops_per_s

    def rates(self) -> dict[str, float]:
        """The instructions and their operations per second."""
        return {
            self.byte_instructions: self.byte_ops_per_s,
            self.float_instructions: self.float_ops_per_s,
            self.bf16_instructions: self.bf16_ops_per_s,
        }


@dataclass(frozen=True)
class Figure:
    """One product, and the least seconds that it took on each side: what disturbs a measurement makes it slower."""

    type: str
    n_in: int
    n_out: int
    n_rows: int
    places: dict[str, str]
    seconds: dict[str, float]

    @property
    def n_ops(self) -> float:
        return 2.0 * self.n_in * self.n_out * self.n_rows

    @property
    def n_bytes(self) -> int:
        return nbytes(GGMLType[self.type.upper()], (self.n_out, self.n_in))

    def limit_s(self, limits: Limits) -> float:
        return max(self.n_bytes / limits.read_bytes_per_s, self.n_ops / limits.ops_per_s(self.type))


def limits_of(n_threads: int) -> Limits:
    """Measure the machine's limits."""
    program, source = SCRATCH / "peak_performance", HERE / "peak_performance.cpp"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        SCRATCH.mkdir(parents=True, exist_ok=True)
        compiler = os.environ.get("CXX", "c++")
        options = ["-std=c++17", "-O3", "-march=native", "-pthread"]
        subprocess.run([compiler, *options, str(source), "-o", str(program)], check=True)
    done = subprocess.run([str(program), str(n_threads), "0.1"], capture_output=True, text=True, check=True)
    return Limits(**json.loads(done.stdout))


def best(measured: Sequence[Limits]) -> Limits:
    """The limits that several measurements together have shown."""
    last = measured[-1]
    most = {name: max(getattr(each, name) for each in measured) for name in asdict(last) if name.endswith("_per_s")}
    return Limits(**(asdict(last) | most))


def compare(sides: dict[str, Worker], type: str, shape: str, n_rows: int, rounds: int) -> Figure:
    """One product on all sides, in turns."""
    n_in, n_out = map(int, shape.split("x"))
    asked = {"type": type, "n_in": n_in, "n_out": n_out, "n_rows": n_rows}
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    places: dict[str, str] = {}
    for n, names in harness.turns(sides, rounds - 1):  # each figure has warmed up by itself
        assert n < rounds
        for side in names:
            answer = sides[side].ask(**asked)
            seconds[side].append(answer["seconds"])
            places[side] = answer["place"]
    return Figure(type, n_in, n_out, n_rows, places, {side: min(row) for side, row in seconds.items()})


def line_of(figure: Figure, limits: Limits) -> str:
    ours, theirs = figure.seconds["ours"], figure.seconds["upstream"]
    limit = figure.limit_s(limits)
    speeds = [figure.n_ops / seconds / 1e9 for seconds in (ours, theirs, limit)]
    return (
        f"{figure.type:7} {f'{figure.n_in}x{figure.n_out}':10} {figure.n_rows:4}  {speeds[0]:8.1f} {speeds[1]:8.1f}"
        f" {theirs / ours:6.2f}  {speeds[2]:8.1f} {limit / ours:5.0%} {limit / theirs:9.0%}"
        f"   {figure.places['ours']}, {figure.places['upstream']}"
    )


HEADER = (
    f"{'':23}  {'ours':>8} {'upstream':>8} {'':6}  {'limit':>8} {'of it':>5} {'upstream':>9}\n"
    f"{'type':7} {'in x out':10} {'rows':>4}  {'Gop/s':>8} {'Gop/s':>8} {'ratio':>6}  {'Gop/s':>8}"
)


def plot(figures: Sequence[Figure], limits: Limits, title: str, path: Path) -> None:
    """A roofline: operations per second over operations per byte of weights, one line for each type and side."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    types = list(dict.fromkeys(figure.type for figure in figures))
    shape = (figures[0].n_in, figures[0].n_out)
    drawn, axes = plt.subplots(figsize=(9, 6))
    reach = np.geomspace(0.3, 2048, 200)
    for name, rate in limits.rates().items():
        axes.plot(reach, np.minimum(reach * limits.read_bytes_per_s, rate) / 1e9, color="grey", linewidth=1)
        axes.annotate(name, (reach[-1], rate / 1e9), ha="right", va="bottom", fontsize=8, color="grey")
    for index, type in enumerate(types):
        row = [each for each in figures if each.type == type and (each.n_in, each.n_out) == shape]
        density = [figure.n_ops / figure.n_bytes for figure in row]
        for side, style in (("ours", "o-"), ("upstream", "x:")):
            speeds = [figure.n_ops / figure.seconds[side] / 1e9 for figure in row]
            label = type if side == "ours" else None
            axes.plot(density, speeds, style, color=f"C{index}", label=label, markersize=4, linewidth=1.2)
    axes.set(xscale="log", yscale="log", xlabel="operations per byte of weights", ylabel="Gop/s", title=title)
    axes.legend(title="ours: solid\nupstream: dotted", fontsize=8, title_fontsize=8)
    axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path, bbox_inches="tight")
    plt.close(drawn)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--type", nargs="+", choices=TYPES, default=list(TYPES))
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS))
    parser.add_argument(
        "--shape", nargs="+", default=list(SHAPES), metavar="INxOUT", help=f"default {' '.join(SHAPES)}"
    )
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--threads", type=int, default=harness.n_cpus(), help="default: one for each core")
    parser.add_argument("--keep", action="store_true", help="keep the figures in benchmarks/results")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.work:
        work(chosen.threads)
        return
    machine = result_files.machine()
    cpu = f"{chosen.threads} threads on {machine['cores']} cores of {machine['cpu']}"
    print(f"{cpu}, load average {machine['load_before']} before the start")
    measured = [limits_of(chosen.threads)]
    figures: list[Figure] = []
    with contextlib.ExitStack() as stack:
        sides = {side: stack.enter_context(worker(chosen.threads, variables)) for side, variables in SIDES.items()}
        print(HEADER)
        for type in chosen.type:
            for shape in chosen.shape:
                for n_rows in chosen.rows:
                    figures.append(compare(sides, type, shape, n_rows, chosen.rounds))
                    print(line_of(figures[-1], best(measured)), flush=True)
            measured.append(limits_of(chosen.threads))
    limits = best(measured)
    print(f"\nThe machine reads {limits.read_bytes_per_s / 1e9:.1f} GB/s; operations per second:")
    for name, rate in limits.rates().items():
        print(f"  {name}: {rate / 1e9:.0f} G")
    print()
    print(HEADER)
    for figure in figures:
        print(line_of(figure, limits))
    result = {
        "machine": machine,
        "n_threads": chosen.threads,
        "limits": asdict(limits),
        "products": [asdict(figure) for figure in figures],
    }
    folder = result_files.FOLDER if chosen.keep else SCRATCH
    if chosen.keep:
        result_files.write("kernels", result)
    else:
        (folder / "kernels.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    plot(figures, limits, cpu, folder / "kernels.svg")
    print(f"\nkept in {folder}")


if __name__ == "__main__":
    main()
