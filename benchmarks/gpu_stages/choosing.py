"""Choosing tokens: greedy on the device and on the CPU, and with a temperature."""

from __future__ import annotations

from typing import Any

from . import worker
from .setting import Report, Results, Setting, number, ratio, table
from .upstream import Upstream

GREEDY = "greedy"
#: Name -> options of the engine, and parameters of the requests.
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    GREEDY: ({}, {}),
    "greedy, on the CPU": ({"backend_sampling": False}, {}),
    "greedy, on the device": ({"backend_sampling": True}, {}),
    "temperature 0.8, top_p 0.95": ({}, {"temperature": 0.8, "top_p": 0.95, "seed": 1}),
    "temperature 0.8, top_p 0.95, on the CPU": (
        {"backend_sampling": False},
        {"temperature": 0.8, "top_p": 0.95, "seed": 1},
    ),
    "temperature 0.8, top_p 0.95, on the device": (
        {"backend_sampling": True},
        {"temperature": 0.8, "top_p": 0.95, "seed": 1},
    ),
    "temperature 0.8, top_k 40": ({}, {"temperature": 0.8, "top_k": 40, "seed": 1}),
    "temperature 0.8, top_k 40, on the device": (
        {"backend_sampling": True},
        {"temperature": 0.8, "top_k": 40, "seed": 1},
    ),
    "temperature 0.8": ({}, {"temperature": 0.8, "seed": 1}),
}


def measure(setting: Setting, results: Results) -> None:
    # Random weights end an answer once in a hundred thousand tokens; ignore_eos would be a bias, for the CPU to add.
    cases = {
        name: worker.case(setting, name, setting.work.n_some, engine, **params)
        for name, (engine, params) in WAYS.items()
    }
    environment = Upstream(setting).environment
    results.all_of(cases, lambda names: worker.measured(setting, [cases[name] for name in names], environment))


def report(setting: Setting, results: Results) -> Report:
    greedy = worker.speed(results.get(GREEDY))
    rows = []
    for name in WAYS:
        speed = worker.speed(result := results.get(name))
        rounds = result["rounds"] if result else [None]
        sample = rounds[0] and 1e3 * rounds[0]["sample_s"] / rounds[0]["n_decode_steps"]
        on_device = rounds[0] and rounds[0]["n_sampled_on_device"] / max(rounds[0]["n_tokens"], 1)
        rows.append([name, number(speed), ratio(speed, greedy), number(sample, 2), number(on_device, 2)])
    n = setting.work.n_some
    return [
        f"{n} streams, tokens per second. Where no place is named, the engine chooses it:",
        "",
        *table(["", "tokens/s", "to greedy", "ms of sampling per pass", "share sampled on the device"], rows),
    ]
