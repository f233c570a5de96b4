"""One stream against llama-bench, the share of the memory's bandwidth, a new process, and memory after close().

Decoding reads every weight once per token, so a device cannot decode faster than its memory allows. The bandwidth that
it is compared with is measured in the same run, by copying within the device's memory: bytes read and bytes written.
"""

from __future__ import annotations

import contextlib
import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import harness
from synthetic_models import Shape

import pyggml
from pyggml import ffi, lib
from pyggml._native.backend import Backend
from pyggml.cli.bench.measure import Case, random_prompts, seconds_of
from pyggml.gguf import GGUFReader

from .setting import Report, Results, Setting, number, table
from .upstream import Upstream

COPIED = 1 << 30  # bytes
MB = 1e6

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


def cases(setting: Setting) -> list[Case]:
    return [*(Case("prompt", n) for n in setting.work.prompts), Case("generate", setting.work.n_tokens)]


def measure(setting: Setting, results: Results) -> None:
    upstream = Upstream(setting)
    results.once("bandwidth", lambda: {"bytes_per_s": round(bandwidth(setting.device))})
    results.once("new process", lambda: {"seconds": [fresh(setting.path, setting.device) for _ in range(2)]})
    results.once("speed", lambda: {"tokens_per_s": compared(setting, upstream)})
    results.once("memory", lambda: memory(setting))


def compared(setting: Setting, upstream: Upstream) -> dict[str, harness.Figures]:
    """Tokens per second of each side, by case and round; the sides alternate."""
    asked = cases(setting)
    sizes = ",".join(map(str, setting.work.prompts))
    figures: dict[str, harness.Figures] = {case.name: {"pyggml": [], "upstream": []} for case in asked}
    n_ctx = max(case.n_cells for case in asked)
    with pyggml.load(setting.path, device=setting.device, n_ctx=n_ctx, n_parallel=1, progress=False) as llm:

        def here(n: int) -> dict[str, float]:
            rng = random.Random(n)
            seconds_of(llm, Case("generate", 16), rng)  # as llama-bench warms up before each test
            return {case.name: case.speed(seconds_of(llm, case, rng)) for case in asked}

        def there(_: int) -> dict[str, float]:
            return upstream.bench("-p", sizes, "-n", setting.work.n_tokens)

        sides = {"pyggml": here, "upstream": there}
        for n, names in harness.turns(sides, setting.rounds):
            for name in names if n else ["pyggml"]:
                for case, speed in sides[name](n).items():
                    if n:
                        figures[case][name].append(speed)
    return figures


def fresh(path: Path, device: str) -> dict[str, float]:
    """Seconds of a new process; the file is in the page cache."""
    # Not in the checkout, whose package need not be the one that is installed.
    command = [sys.executable, "-c", FRESH, str(path), device]
    done = subprocess.run(command, cwd=path.parent, stdout=subprocess.PIPE, text=True, check=True)
    seconds: dict[str, float] = json.loads(done.stdout)
    return seconds


def memory(setting: Setting) -> dict[str, int | None]:
    """Bytes of the device while a model is loaded and after it is closed, without what its first use allocates."""

    def use() -> int:
        with pyggml.load(setting.path, device=setting.device, n_ctx=1024, n_parallel=1, progress=False) as llm:
            [prompt] = random_prompts(llm.model.vocab, 1, 64, random.Random(1))
            llm.generate(prompt, max_tokens=4, ignore_eos=True)
            return pyggml.find_device(setting.device).memory_free

    use()
    before, before_all = pyggml.find_device(setting.device).memory_free, used_by_all()
    loaded = before - use()
    after, after_all = pyggml.find_device(setting.device).memory_free, used_by_all()
    counted = None if before_all is None or after_all is None else after_all - before_all
    return {"loaded": loaded, "kept": before - after, "kept_as_nvidia_smi_counts": counted}


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


def report(setting: Setting, results: Results) -> Report:
    lines: Report = []
    speed = (results.get("speed") or {"tokens_per_s": {}})["tokens_per_s"]
    rows = []
    for case, sides in speed.items():
        medians = [number(statistics.median(sides[side]), 1) for side in ("pyggml", "upstream")]
        rows.append([case, *medians, f"{harness.ratio(sides, 'pyggml', 'upstream'):.3f}"])
    lines += ["One stream, tokens per second:", "", *table(["", "pyggml", "llama-bench", "ratio"], rows)]
    if (copied := results.get("bandwidth")) and speed:
        decode = speed[cases(setting)[-1].name]
        per_token = bytes_per_token(setting.path, setting.shape, setting.work.n_tokens / 2)
        part = per_token / copied["bytes_per_s"]
        shares = [f"{side} {statistics.median(speeds) * part:.0%}" for side, speeds in decode.items()]
        lines += [
            f"A copy moves {copied['bytes_per_s'] / 1e9:.0f} GB/s; decoding reads {per_token / MB:.0f} MB per token, "
            f"and so uses of it: {', '.join(shares)}.",
            "",
        ]
    if starts := results.get("new process"):
        found = starts["seconds"]
        steps = ", ".join(f"{what} {statistics.median(each[what] for each in found):.2f} s" for what in found[0])
        lines += [f"A new process: {steps}.", ""]
    if (bytes_of := results.get("memory")) and setting.is_cuda:
        loaded, kept = bytes_of["loaded"] / MB, bytes_of["kept"] / MB
        lines += [f"Device memory: {loaded:.0f} MB while loaded, {kept:.1f} MB after close().", ""]
    return lines


def claims(setting: Setting, results: Results) -> list[harness.Claim]:
    claimed = []
    for case in cases(setting):
        if speed := results.get("speed"):
            bound = 0.97 if case.kind == "generate" else 0.95
            ratio = harness.ratio(speed["tokens_per_s"][case.name], "pyggml", "upstream")
            claimed.append(harness.at_least(f"{case.name}: pyggml / upstream", ratio, bound, "x"))
    if (bytes_of := results.get("memory")) and setting.is_cuda:
        claimed.append(harness.at_most("device memory that close() keeps", bytes_of["kept"] / MB, 16, " MB"))
    return claimed
