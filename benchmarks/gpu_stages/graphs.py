"""Graphs: upstream's reuse of them, and CUDA's, on and off, each in a separate process."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from . import streams, worker
from .setting import Report, Results, Setting, number, table
from .upstream import Upstream

SETTINGS: dict[str, dict[str, str]] = {
    "both": {},
    "no reuse": {"LLAMA_GRAPH_REUSE_DISABLE": "1"},
    "no CUDA graphs": {"GGML_CUDA_DISABLE_GRAPHS": "1"},
    "neither": {"LLAMA_GRAPH_REUSE_DISABLE": "1", "GGML_CUDA_DISABLE_GRAPHS": "1"},
}


def _streams(setting: Setting) -> list[int]:
    return sorted({1, setting.work.n_some})


def measure(setting: Setting, results: Results) -> None:
    upstream = Upstream(setting)
    for name in SETTINGS:
        for side, measured in (("pyggml", _pyggml), ("upstream", _upstream)):
            names = [f"{side}, {name}, {n}" for n in _streams(setting)]
            results.all_of(names, partial(measured, setting, upstream, SETTINGS[name]))


def _n_streams(name: str) -> int:
    return int(name.rpartition(" ")[2])


def _pyggml(
    setting: Setting, upstream: Upstream, variables: dict[str, str], names: list[str]
) -> Iterator[tuple[str, Any]]:
    cases = [worker.case(setting, name, _n_streams(name), ignore_eos=True) for name in names]
    return worker.measured(setting, cases, upstream.environment | variables)


def _upstream(
    setting: Setting, upstream: Upstream, variables: dict[str, str], names: list[str]
) -> Iterator[tuple[str, Any]]:
    work = setting.work
    asked = [_n_streams(name) for name in names for _ in range(2)]  # the first one warms up
    rows = upstream.batched(asked, work.n_prompt, work.n_tokens, **variables)
    for index, name in enumerate(names):
        yield name, {"rounds": [rows[2 * index + 1]]}


def report(setting: Setting, results: Results) -> Report:
    columns = [(side, n) for n in _streams(setting) for side in ("pyggml", "upstream")]
    rows = []
    for name in SETTINGS:
        found = [results.get(f"{side}, {name}, {n}") for side, n in columns]
        rows.append([name, *(number(streams.step_ms(each, setting.work.n_tokens), 2) for each in found)])
    return [
        "Milliseconds per decode step, by number of streams; upstream's KV cache per sequence:",
        "",
        *table(["graphs", *(f"{side}, {n}" for side, n in columns)], rows),
    ]
