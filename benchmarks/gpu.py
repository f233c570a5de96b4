"""A GPU with pyggml and with upstream's programs: prefill, decode, 32 streams, bandwidth, first tokens, memory.

Upstream's llama-bench and llama-batched-bench load the very modules of the installed pyggml, so the kernels are the
same and the rest is compared. That needs a build whose backends are modules: one for a GPU, or PYGGML_PORTABLE=ON.

    python benchmarks/gpu.py [--device cuda:0] [--model llama-3.1-8b] [--ftype q4_k_m] [--rounds 3]
    python benchmarks/gpu.py --device cpu --model smollm2-135m --rounds 1 --short        # to try the script

Decoding reads every weight once per token, so a device cannot decode faster than its memory allows. The bandwidth that
it is compared with is measured in the same run, by copying within the device's memory: bytes read and bytes written.
Requests are also compared with themselves: greedy ones, and on a GPU those with top_p and top_k, their tokens chosen
from rows of logits and from what the device found in them (backend_sampling); on a GPU also those with a temperature
alone, their tokens chosen by one thread and by several.
The results are kept in results/device_KIND.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "common"))

import harness
import llama_cpp_programs
import result_files
from synthetic_models import LARGE, SHAPES, Shape, model_file

import pyggml
from pyggml import ffi, lib
from pyggml._native.backend import Backend
from pyggml.cli.bench.measure import Case, random_prompts, seconds_of
from pyggml.gguf import GGUFReader

COPIED = 1 << 30  # bytes
MB = 1e6

#: Who chooses tokens -> the options for that.
CHOOSING: dict[str, dict[str, Any]] = {
    "the device": {"backend_sampling": True},
    "one thread": {"n_threads": 1, "backend_sampling": False},
    "threads": {"backend_sampling": False},
}

#: What is asked for -> its parameters, and who is compared. Random weights end an answer once in a hundred thousand
#: tokens.
WAYS: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "greedy": ({"temperature": 0}, ("the device", "threads")),
    "temperature": ({"temperature": 0.8, "seed": 1}, ("threads", "one thread")),
    "top_p 0.95": ({"temperature": 0.8, "seed": 1, "top_p": 0.95}, ("the device", "threads")),
    "top_k 40": ({"temperature": 0.8, "seed": 1, "top_k": 40, "top_p": 0.95}, ("the device", "threads")),
}

#: A process that has done nothing yet: seconds for the import, for loading, and to the first token.
FRESH = """
import json, sys, time
start = time.perf_counter()
import pyggml
imported = time.perf_counter()
with pyggml.load(sys.argv[1], device=sys.argv[2], n_ctx=1024, n_parallel=1) as llm:
    loaded = time.perf_counter()
    next(iter(llm.stream([1] * 16, max_tokens=2, ignore_eos=True)))
    answered = time.perf_counter()
print(json.dumps({"import": imported - start, "load": loaded - imported, "first token": answered - loaded}))
"""


@dataclass(frozen=True)
class Work:
    """Cases: prefill and decode of one stream, and parallel streams with their prompt and generated tokens."""

    prompts: tuple[int, ...] = (512, 4096)
    n_decode: int = 128
    n_streams: int = 32
    n_prompt: int = 128
    n_tokens: int = 128
    first_token: int = 512

    @property
    def alone(self) -> list[Case]:
        return [*(Case("prompt", n) for n in self.prompts), Case("generate", self.n_decode)]

    @property
    def decode(self) -> str:
        return self.alone[-1].name

    @property
    def together(self) -> str:
        return f"{self.n_streams} streams, {self.n_prompt} + {self.n_tokens} each"


SHORT = Work(prompts=(32, 128), n_decode=16, n_streams=8, n_prompt=8, n_tokens=8, first_token=32)


# --- the device ------------------------------------------------------------------------------------------------------


def bandwidth(device: str, repetitions: int = 10) -> float:
    """Bytes per second that a copy within the device's memory reads and writes; the best of some."""
    n_bytes = min(COPIED, pyggml.find_device(device).memory_free // 8) // 4 * 4
    with Backend(device) as backend:
        params = {"mem_size": 1 << 20, "mem_buffer": ffi.NULL, "no_alloc": True}
        context = ffi.gc(lib.ggml_init(ffi.new("struct ggml_init_params *", params)[0]), lib.ggml_free)
        source, target = (lib.ggml_new_tensor_1d(context, lib.GGML_TYPE_F32, n_bytes // 4) for _ in range(2))
        buffer = lib.ggml_backend_alloc_ctx_tensors(context, backend.handle)
        if buffer == ffi.NULL:
            raise pyggml.OutOfMemoryError(f"{device} has no room for two tensors of {n_bytes / MB:.0f} MB")
        try:
            lib.ggml_backend_buffer_clear(buffer, 1)
            seconds = []
            for _ in range(repetitions):
                start = time.perf_counter()
                lib.ggml_backend_tensor_copy(source, target)
                lib.ggml_backend_synchronize(backend.handle)
                seconds.append(time.perf_counter() - start)
        finally:
            lib.ggml_backend_buffer_free(buffer)
    return 2 * n_bytes / min(seconds)


def bytes_per_token(path: Path, shape: Shape, depth: float) -> float:
    """Return the bytes that a decode step reads: the weights, and the KV cache in half precision."""
    with GGUFReader(path) as file:
        sizes = {name: tensor.nbytes for name, tensor in file.tensors.items()}
    if not shape.tied:
        del sizes["token_embd.weight"]  # one row of it
    return sum(sizes.values()) + 2 * 2 * shape.n_layer * shape.n_head_kv * shape.head_dim * depth


def used_by_all() -> int | None:
    """Bytes in use on all NVIDIA GPUs, as the driver counts them; None if it cannot say."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return sum(int(line) for line in done.stdout.split()) << 20
    return None


def cuda_folders() -> list[str]:
    """Return the folders of CUDA's loaded libraries: pyggml finds those of Python packages, upstream does not."""
    paths = {Path(line.split()[-1]) for line in Path("/proc/self/maps").read_text().splitlines() if ".so" in line}
    return sorted({str(path.parent) for path in paths if path.name.startswith(("libcudart.so", "libcublas"))})


# --- the sides -------------------------------------------------------------------------------------------------------


class Here:
    """pyggml in this process: one model, an engine for one stream and an engine for many."""

    def __init__(self, path: Path, device: str, work: Work) -> None:
        self._work = work
        self.one = pyggml.load(path, device=device, n_ctx=max(work.prompts) + 256, n_parallel=1)
        n_ctx = work.n_streams * (work.n_prompt + work.n_tokens + 2)
        self.many = pyggml.LLM(self.one.model, n_ctx=n_ctx, n_parallel=work.n_streams)
        self.choosing = {
            who: pyggml.LLM(self.one.model, n_ctx=n_ctx, n_parallel=work.n_streams, **options)
            for who, options in CHOOSING.items()
        }

    def alone(self, n: int) -> dict[str, float]:
        rng = random.Random(n)
        seconds_of(self.one, Case("generate", 16), rng)  # as llama-bench warms up before each test
        return {case.name: case.speed(seconds_of(self.one, case, rng)) for case in self._work.alone}

    def together(self, n: int) -> dict[str, float]:
        work = self._work
        prompts = random_prompts(self.many.model.vocab, work.n_streams, work.n_prompt, random.Random(n))
        self.many.reset()
        start = time.perf_counter()
        done = self.many.generate_batch(prompts, max_tokens=work.n_tokens, ignore_eos=True)
        seconds = time.perf_counter() - start
        assert all(len(each.token_ids) == work.n_tokens and each.cached_tokens == 0 for each in done)
        return {work.together: work.n_streams * work.n_tokens / seconds}

    def chosen(self, way: str, who: str, n: int) -> dict[str, float]:
        llm, work = self.choosing[who], self._work
        prompts = random_prompts(llm.model.vocab, work.n_streams, work.n_prompt, random.Random(n))
        speeds = {}
        for some in (prompts[:1], prompts):
            llm.reset()
            start = time.perf_counter()
            done = llm.generate_batch(some, max_tokens=work.n_tokens, **WAYS[way][0])
            seconds = time.perf_counter() - start
            speeds[f"{way}, streams: {len(some)}"] = sum(len(each.token_ids) for each in done) / seconds
        return speeds

    def first_token(self, n: int) -> float:
        """Seconds from the call to the first token of an answer."""
        (prompt,) = random_prompts(self.one.model.vocab, 1, self._work.first_token, random.Random(1000 + n))
        self.one.reset()
        start = time.perf_counter()
        with self.one.stream(prompt, max_tokens=8, ignore_eos=True) as stream:
            next(iter(stream))
            return time.perf_counter() - start

    def close(self) -> None:
        for llm in (*self.choosing.values(), self.many):
            llm.close()
        self.one.close()


class Upstream:
    """llama-bench and llama-batched-bench, a process per call, on the same modules."""

    def __init__(self, path: Path, device: pyggml.Device, work: Work) -> None:
        self._work = work
        self._folder = llama_cpp_programs.for_devices(Path(pyggml.__file__).parent)
        self._env = os.environ | {"LD_LIBRARY_PATH": ":".join(cuda_folders())}
        on_cpu = device.type == "cpu"
        self._where = ["-dev", "none" if on_cpu else device.name, "-ngl", "0" if on_cpu else "99"]
        self._where += ["-m", str(path), "-t", str(harness.n_cpus()), "-b", "2048", "-ub", "512"]

    def alone(self, _round: int) -> dict[str, float]:
        sizes = ",".join(map(str, self._work.prompts))
        asked = ["-p", sizes, "-n", str(self._work.n_decode), "-r", "1", "-o", "json"]
        results = json.loads(self._run("llama-bench", *asked))
        figures = {}
        for result in results:
            kind, n_tokens = ("prompt", result["n_prompt"]) if result["n_prompt"] else ("generate", result["n_gen"])
            figures[f"{kind} {n_tokens}"] = float(result["avg_ts"])
        return figures

    def together(self, _round: int) -> dict[str, float]:
        work = self._work
        # The prompt's logits give the first token, so one step fewer is needed.
        asked = ["-npp", str(work.n_prompt), "-ntg", str(work.n_tokens - 1), "-npl", str(work.n_streams)]
        size = ["-c", str(work.n_streams * (work.n_prompt + work.n_tokens)), "--output-format", "jsonl"]
        output = self._run("llama-batched-bench", *asked, *size)
        line = next(line for line in output.splitlines() if line.startswith('{"n_kv_max"'))
        return {work.together: work.n_streams * work.n_tokens / float(json.loads(line)["t"])}

    def _run(self, program: str, *arguments: str) -> str:
        command = [str(self._folder / program), *self._where, *arguments]
        done = subprocess.run(command, cwd=self._folder, env=self._env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr[-2000:]}")
        return done.stdout + (done.stderr if program == "llama-batched-bench" else "")


def compared(sides: dict[str, Callable[[int], dict[str, float]]], rounds: int) -> dict[str, harness.Figures]:
    """Measure tokens per second of each side, by case and round; the sides alternate."""
    figures: dict[str, harness.Figures] = {}
    for n, names in harness.turns(sides, rounds):
        for name in names:
            for case, speed in sides[name](n).items():
                print(f"  {f'round {n}' if n else 'warm-up'}: {case}: {name} {speed:.4g} tokens/s", flush=True)
                if n:
                    figures.setdefault(case, {side: [] for side in sides})[name].append(speed)
    return figures


# --- the run ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def loaded(path: Path, device: str, work: Work) -> Iterator[Here]:
    here = Here(path, device, work)
    try:
        yield here
    finally:
        here.close()


def fresh(path: Path, device: str) -> dict[str, float]:
    """Seconds of a new process; the file is in the page cache."""
    # Not in the checkout, whose package need not be the one that is installed.
    command = [sys.executable, "-c", FRESH, str(path), device]
    done = subprocess.run(command, cwd=path.parent, stdout=subprocess.PIPE, text=True, check=True)
    seconds: dict[str, float] = json.loads(done.stdout)
    return seconds


def summary(figures: dict[str, harness.Figures], one: str, other: str) -> None:
    print(f"\n{'tokens/s':28} {one:>20} {other:>20} {'ratio':>7}")
    for case, sides in figures.items():
        speeds = [statistics.median(sides[side]) for side in (one, other)]
        print(f"{case:28} {speeds[0]:20.1f} {speeds[1]:20.1f} {harness.ratio(sides, one, other):7.3f}")


def claims(figures: dict[str, harness.Figures], work: Work, kept_bytes: int | None) -> list[harness.Claim]:
    bounds = dict.fromkeys((case.name for case in work.alone), 0.95) | {work.decode: 0.97, work.together: 0.90}
    claimed = [
        harness.at_least(f"{case}: pyggml / upstream", harness.ratio(figures[case], "pyggml", "upstream"), bound, "x")
        for case, bound in bounds.items()
    ]
    if kept_bytes is not None:
        claimed.append(harness.at_most("device memory that close() keeps", kept_bytes / MB, 16, " MB"))
    return claimed


def run(name: str, shape: Shape, path: Path, work: Work, rounds: int) -> tuple[dict[str, Any], list[harness.Claim]]:
    """Run all measurements on a device, and return the results and the claims."""
    device = pyggml.find_device(name)
    peer = Upstream(path, device, work)
    print(f"{device.name}: {device.description}, {device.memory_total / 1e9:.1f} GB\n{path.name}", flush=True)
    copied = bandwidth(name)
    starts = [fresh(path, name) for _ in range(3)]
    with loaded(path, name, work) as here:  # what the first use of a device allocates for good is not the model's
        here.together(0)
    before, before_all = pyggml.find_device(name).memory_free, used_by_all()
    with loaded(path, name, work) as here:
        figures = compared({"pyggml": here.alone, "upstream": peer.alone}, rounds)
        figures |= compared({"pyggml": here.together, "upstream": peer.together}, rounds)
        chosen = {
            way: compared({who: partial(here.chosen, way, who) for who in compared_ones}, rounds)
            for way, (_, compared_ones) in WAYS.items()
            if way == "greedy" or "gpu" in device.type  # with one thread, a CPU would also compute with one
        }
        n_chosen = here.choosing["the device"].stats().n_sampled_on_device
        first = [here.first_token(n) for n in range(rounds + 1)][1:]
        taken = before - pyggml.find_device(name).memory_free
    after, after_all = pyggml.find_device(name).memory_free, used_by_all()
    is_gpu = "gpu" in device.type
    per_token = bytes_per_token(path, shape, work.n_decode / 2)
    fraction = {side: statistics.median(speeds) * per_token / copied for side, speeds in figures[work.decode].items()}

    summary(figures, "pyggml", "upstream")
    for way, each in chosen.items():
        summary(each, *WAYS[way][1])
    print(f"tokens that the device has chosen: {n_chosen}")
    print(f"memory bandwidth of a copy: {copied / 1e9:.0f} GB/s; decoding reads {per_token / MB:.0f} MB per token")
    print("  of it while decoding: " + ", ".join(f"{side} {part:.0%}" for side, part in fraction.items()))
    print(f"first token after {work.first_token} tokens: {statistics.median(first) * 1000:.1f} ms")
    medians = {what: statistics.median(start[what] for start in starts) for what in starts[0]}
    print("a new process: " + ", ".join(f"{what} {seconds:.2f} s" for what, seconds in medians.items()))
    if is_gpu:
        print(f"device memory: {taken / MB:.0f} MB while loaded, {(before - after) / MB:.1f} MB after close()")
    if before_all is not None and after_all is not None:
        print(f"  as nvidia-smi counts it: {(after_all - before_all) / MB:.1f} MB after close()")
    result = {
        "device": {"name": device.name, "product": device.description, "memory_total": device.memory_total},
        "model": path.name,
        "tokens_per_s": figures,
        "tokens_per_s_by_who_chooses": chosen,
        "copy_bytes_per_s": round(copied),
        "bytes_per_token": round(per_token),
        "bandwidth_fraction": fraction,
        "first_token_s": {"prompt": work.first_token, "seconds": first},
        "new_process_s": starts,
        "memory": {"loaded": taken, "kept": before - after} if is_gpu else None,
    }
    return result, claims(figures, work, before - after if is_gpu else None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="as for pyggml.load; default cuda")
    parser.add_argument("--model", default="llama-3.1-8b", choices=[*SHAPES, *LARGE], help="default llama-3.1-8b")
    parser.add_argument("--ftype", default="q4_k_m", help="type of the weights, default q4_k_m")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--short", action="store_true", help="a little of everything, kept nowhere")
    chosen = parser.parse_args()
    machine = result_files.machine()
    print(f"{machine['cores']} cores of {machine['cpu']}, load average {machine['load_before']} before the start")
    shape, path = (SHAPES | LARGE)[chosen.model], model_file(chosen.model, chosen.ftype)
    result, claimed = run(chosen.device, shape, path, SHORT if chosen.short else Work(), chosen.rounds)
    versions = {"pyggml": pyggml.__version__, "engine": ffi.string(lib.pyg_engine_build()).decode()}
    kind = result["device"]["name"].rstrip("0123456789").lower()
    machine["load_after"] = round(os.getloadavg()[0], 2)
    if not chosen.short:
        about = {"machine": machine, "versions": versions, "rounds": chosen.rounds}
        result_files.write(f"device_{kind}", about | result)
    return harness.verdict(claimed)


if __name__ == "__main__":
    sys.exit(main())
