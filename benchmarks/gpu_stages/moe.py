"""A mixture of experts, its experts on the device and in main memory."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import large_models

import pyggml
from pyggml.cli.bench.measure import Case, seconds_of

from .setting import Report, Results, Setting, number, ratio, table
from .upstream import Upstream

#: Where the experts are -> the option of pyggml, and the arguments of llama-bench.
PLACES: dict[str, tuple[dict[str, Any], list[object]]] = {
    "in main memory": ({"n_cpu_moe": "all"}, ["-ncmoe", 999]),
    "on the device": ({"n_cpu_moe": 0}, []),
}


def _path(setting: Setting) -> Path:
    work = setting.work
    return large_models.model_file(large_models.shape_of(work.moe, work.moe_layers), setting.ftype)


def _cases(setting: Setting) -> list[Case]:
    work = setting.work
    return [Case("prompt", work.prompts[0]), Case("generate", work.n_tokens // 2)]


def measure(setting: Setting, results: Results) -> None:
    path = _path(setting)
    upstream = Upstream(setting, path)
    prompt, generate = (case.n_tokens for case in _cases(setting))
    for place, (option, arguments) in PLACES.items():
        results.once(f"pyggml, {place}", partial(_pyggml, setting, path, option))
        asked = ["-p", prompt, "-n", generate, *arguments]
        results.once(f"upstream, {place}", partial(upstream.bench, *asked))


def _pyggml(setting: Setting, path: Path, option: dict[str, Any]) -> dict[str, float]:
    cases = _cases(setting)
    n_ctx = max(case.n_cells for case in cases)
    placed = option if setting.is_cuda else {}  # an option for GPUs
    with pyggml.load(path, device=setting.device, n_ctx=n_ctx, n_parallel=1, progress=False, **placed) as llm:
        rng = random.Random(1)
        for case in cases:  # as llama-bench warms up; and the engine chooses its number of threads
            seconds_of(llm, case, rng)
        return {case.name: case.speed(seconds_of(llm, case, rng)) for case in cases}


def report(setting: Setting, results: Results) -> Report:
    work, rows = setting.work, []
    for place in PLACES:
        sides = [results.get(f"{side}, {place}") for side in ("pyggml", "upstream")]
        for case in _cases(setting):
            speeds = [side and side[case.name] for side in sides]
            rows.append([f"{case.name}, experts {place}", *(number(each, 1) for each in speeds), ratio(*speeds)])
    n_layer = large_models.shape_of(work.moe, work.moe_layers).n_layer
    return [
        f"{work.moe} with {n_layer} layers, one stream, tokens per second:",
        "",
        *table(["", "pyggml", "llama-bench", "ratio"], rows),
    ]
