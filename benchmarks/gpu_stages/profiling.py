"""One decode step, kernel by kernel, as Nsight Compute times them; what is left is launches and the host."""

from __future__ import annotations

import csv
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from . import streams, worker
from .setting import Report, Results, Setting, number, table
from .upstream import Upstream

N_TOKENS = 6  # under the profiler: steps enough to see where one ends
N_TIMED = 32  # without it
METRIC = "gpu__time_duration.sum"


@dataclass(frozen=True)
class Kernel:
    name: str
    ns: float


def measure(setting: Setting, results: Results) -> None:
    upstream = Upstream(setting)
    for layout in streams.LAYOUTS:
        results.once(f"upstream, {layout}, not profiled", partial(_upstream_step, setting, upstream, layout))
    case = worker.case(setting, f"{streams.DEFAULT}, not profiled", setting.work.n_some, ignore_eos=True)
    case |= {"n_tokens": N_TIMED, "rounds": 1}
    results.all_of([case["name"]], lambda _: _pyggml_step(setting, case, upstream))
    if (ncu := nsight_compute()) is None:
        results.keep("ncu", {"error": "ncu is not installed"})
        return
    for name, command in _commands(setting, upstream).items():
        results.once(name, partial(_profile, setting, ncu, command, upstream, name))


def _upstream_step(setting: Setting, upstream: Upstream, layout: str) -> dict[str, float]:
    work = setting.work
    _, row = upstream.batched([work.n_some] * 2, work.n_prompt, N_TIMED, *streams.LAYOUTS[layout][1])
    return {"step_s": row["t_tg"] / (N_TIMED - 1)}


def _pyggml_step(setting: Setting, case: dict[str, Any], upstream: Upstream) -> Iterator[tuple[str, Any]]:
    for name, result in worker.measured(setting, [case], upstream.environment):
        yield name, {"step_s": 1e-3 * (streams.step_ms(result, N_TIMED) or 0)}


def _commands(setting: Setting, upstream: Upstream) -> dict[str, list[str]]:
    """Name -> command of what is profiled. All prompts fit in one micro-batch: few kernels come before the steps."""
    work = setting.work
    batched = upstream.batched_arguments([work.n_some], work.n_prompt, N_TOKENS)
    commands = {
        f"upstream, {layout}": upstream.command("llama-batched-bench", *batched, "-b", 8192, "-ub", 8192, *arguments)
        for layout, (_, arguments) in reversed(streams.LAYOUTS.items())
    }
    case = worker.case(setting, streams.DEFAULT, work.n_some, {"n_batch": 8192, "n_ubatch": 8192}, ignore_eos=True)
    case |= {"n_tokens": N_TOKENS, "rounds": 1, "is_bare": True}
    return {streams.DEFAULT: worker.command(setting, [case]), **commands}


def nsight_compute() -> str | None:
    """Path of ncu, as a program on the path or in its usual folders."""
    installed = [str(path) for path in sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"))]
    usual = [*installed, "/usr/local/cuda/bin/ncu"]
    return shutil.which("ncu") or next((path for path in reversed(usual) if Path(path).exists()), None)


def _profile(setting: Setting, ncu: str, command: list[str], upstream: Upstream, name: str) -> Any:
    log = setting.folder / f"ncu-{name.replace(', ', '-').replace(' ', '-')}.csv"
    options = ["--clock-control", "none", "--cache-control", "none", "--metrics", METRIC, "--csv", "--page", "raw"]
    options += ["--print-units", "base", "--target-processes", "all", "--log-file", str(log)]
    # Kernels one by one, not as nodes of a graph.
    variables = {**upstream.environment, "GGML_CUDA_DISABLE_GRAPHS": "1"}
    done = subprocess.run([ncu, *options, *command], env=variables, capture_output=True, text=True, check=False)
    kernels = read_kernels(log.read_text(errors="replace").splitlines()) if log.exists() else []
    if not kernels:
        raise RuntimeError(f"ncu: exit status {done.returncode}, no kernels\n{(done.stdout + done.stderr)[-800:]}")
    step = last_step(kernels)
    return {"n_kernels": len(step), "ns": sum(each.ns for each in step), "by_name": summed(step), "seen": len(kernels)}


def read_kernels(lines: Iterable[str]) -> list[Kernel]:
    """The kernels of ncu's table, in the order of their launches; what stands before it are messages."""
    rows = iter(lines)
    head = next((line for line in rows if line.startswith('"ID"')), None)
    if head is None:
        return []
    table = csv.DictReader([head, *(line for line in rows if line.startswith('"'))])
    return [
        Kernel(row["Kernel Name"], float(row[METRIC].replace(",", "")))
        for row in table
        if row["ID"]  # the row below the head has the units
    ]


def last_step(kernels: list[Kernel]) -> list[Kernel]:
    """The kernels of the last step: the shortest sequence of names that ends the whole three times over.

    Layers repeat within a step too. So it must have the rarest kernel of the last steps, such as the output layer's.
    """
    names = [each.name for each in kernels]
    counts = Counter(names[-len(names) // 2 :])
    rarest = min(counts, key=lambda name: counts[name])
    for n in range(1, len(names) // 3 + 1):
        step = names[-n:]
        if rarest in step and step == names[-2 * n : -n] == names[-3 * n : -2 * n]:
            return kernels[-n:]
    return kernels


def summed(kernels: list[Kernel]) -> list[dict[str, Any]]:
    """Count and nanoseconds by name, the longest first."""
    times: dict[str, list[float]] = defaultdict(list)
    for each in kernels:
        times[short(each.name)].append(each.ns)
    found = [{"name": name, "n": len(ns), "ns": sum(ns)} for name, ns in times.items()]
    return sorted(found, key=lambda each: -float(str(each["ns"])))


def short(name: str) -> str:
    """A kernel's name with its template arguments, without its parameters."""
    depth, end = 0, len(name)
    for index, character in enumerate(name):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "(" and depth == 0 and index > 0:
            end = index
            break
    return name[:end].removeprefix("void ").replace("(ggml_type)", "").replace("(bool)", "")


def report(setting: Setting, results: Results) -> Report:
    lines: Report = []
    for name in [streams.DEFAULT, *(f"upstream, {layout}" for layout in streams.LAYOUTS)]:
        if found := results.get(name):
            measured = results.get(f"{name}, not profiled")
            step = f"; a step takes {1e3 * measured['step_s']:.2f} ms" if measured else ""
            lines += [
                f"{name}, {setting.work.n_some} streams after {setting.work.n_prompt} tokens: {found['n_kernels']} "
                f"kernels, {found['ns'] / 1e6:.2f} ms in all{step}.",
                "",
                *table(["kernel", "n", "us", "share"], _rows(found)),
            ]
    return lines


def _rows(found: Mapping[str, Any]) -> list[list[str]]:
    kernels = found["by_name"]
    rows = [
        [f"`{each['name'][:110]}`", str(each["n"]), number(each["ns"] / 1e3), f"{each['ns'] / found['ns']:.1%}"]
        for each in kernels[:25]
    ]
    if rest := kernels[25:]:
        ns = sum(each["ns"] for each in rest)
        rows.append(
            [f"{len(rest)} others", str(sum(each["n"] for each in rest)), number(ns / 1e3), f"{ns / found['ns']:.1%}"]
        )
    return rows
