"""Reports of results: table, JSON and CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyggml
from pyggml import system
from pyggml.cli.bench.measure import Case, ModelInfo, Result, Side
from pyggml.cli.show.terminal import ENDLESS, console
from pyggml.units import bytes_text, count_text, counted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Field of a side -> heading of its column, and text for None.
_SETTINGS = {
    "device": ("device", ""),
    "n_gpu_layers": ("GPU layers", "all"),
    "split_mode": ("split", ""),
    "tensor_split": ("shares", "by memory"),
    "n_cpu_moe": ("CPU experts", ""),
    "n_threads": ("threads", "auto"),
    "cache_type": ("cache", ""),
    "n_batch": ("n_batch", ""),
    "n_ubatch": ("n_ubatch", ""),
}

_BUSY_LOAD = 0.5  # load average per core


def as_json(results: Sequence[Result], load_average: float | None, *, interrupted: bool) -> dict[str, Any]:
    """Return the output of ``--json``. ``samples_s`` are the seconds of each repetition."""
    return {
        "pyggml": pyggml.__version__,
        "engine": _engine(),
        "cpu": _cpu(),
        "n_cores": system.cpu_limits().n_usable,
        "devices": [dataclasses.asdict(device) for device in pyggml.devices()],
        "load_average": load_average,
        "interrupted": interrupted,
        "results": [{**_row(result), "samples_s": result.seconds} for result in results],
    }


def as_csv(results: Sequence[Result]) -> str:
    """Return the output of ``--csv``: a header line, and a line for each result."""
    text = io.StringIO()
    names = [field.name for kind in (Side, ModelInfo, Case) for field in dataclasses.fields(kind)]
    names += ["n_threads_used", "repetitions", "tokens_per_s", "tokens_per_s_least", "tokens_per_s_most", "seconds"]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_row(result) for result in results)
    return text.getvalue()


def show(results: Sequence[Result], load_average: float | None, *, interrupted: bool) -> None:
    """Print the results for users."""
    terminal = console()
    if not results:
        terminal.print("Nothing was measured.")
        return
    repetitions = {len(result.seconds) for result in results}
    times = (f"{min(repetitions)} to " if len(repetitions) > 1 else "") + counted(max(repetitions), "repetition")
    lines = [f"pyggml {pyggml.__version__}, engine {_engine()}, {_cpu()}, {system.cpu_limits().n_usable} cores"]
    names = model_names([result.side for result in results])
    for label, info in {names[result.side.model]: result.model_info for result in results}.items():
        size = bytes_text(info.size_bytes)
        lines.append(f"{label}: {info.description}, {count_text(info.n_params)} parameters, {size}")
    lines += [_common_settings(results), ""]
    terminal.print("\n".join(lines), soft_wrap=True, markup=False)
    _show_figures(results, terminal)
    lines = ["", f"Median, least and most of {times}, of the tokens of all requests together."]
    if load_average is not None and load_average > _BUSY_LOAD * system.cpu_limits().n_usable:
        lines.append(f"Other programs were busy (load average {load_average:.1f}), which distorts the results.")
    if interrupted:
        lines.append("Interrupted: these are the results so far.")
    terminal.print("\n".join(lines), soft_wrap=True)


def labels(sides: Sequence[Side]) -> dict[Side, str]:
    """Return a label for each side: its model, and the settings that differ between sides."""
    names, varying = model_names(sides), _varying(sides)
    shows_model = len(set(names.values())) > 1 or not varying
    settings = {side: [f"{_SETTINGS[name][0]} {setting(side, name)}" for name in varying] for side in sides}
    return {side: ", ".join([names[side.model]] * shows_model + settings[side]) for side in sides}


def model_names(sides: Sequence[Side]) -> dict[str | None, str]:
    """Return the file name of each model, or the path if two files have the same name."""
    names = {side.model: side.name for side in sides}
    return {
        model: name if list(names.values()).count(name) == 1 else str(Path(model or name))
        for model, name in names.items()
    }


def setting(side: Side, name: str) -> str:
    """Return a setting as tables show it."""
    value = getattr(side, name)
    return _SETTINGS[name][1] if value is None else str(value)


def _show_figures(results: Sequence[Result], terminal: Console) -> None:
    """Print a table if it fits the terminal, else each result on a line below its description."""
    table = _table(results)
    if terminal.measure(table, options=terminal.options.update(max_width=ENDLESS)).maximum <= terminal.width:
        terminal.print(table)
        return
    sides = list(dict.fromkeys(result.side for result in results))
    names = labels(sides)
    terminal.print(_line(_headings(sides)), style="bold", no_wrap=True)
    for result, figures in zip(results, _figures(results), strict=True):
        requests = f", {counted(result.case.n_parallel, 'request')}" * _shows_parallel(results)
        side = f", {names[result.side]}" * (len(sides) > 1)
        terminal.print(f"{result.case.name}{requests}{side}", markup=False, overflow="fold")
        terminal.print(_line(figures), no_wrap=True)


def _headings(sides: Sequence[Side]) -> list[str]:
    return ["tokens/s", "least", "most"] + ["of first"] * (len(sides) > 1)


def _line(cells: Sequence[str]) -> str:
    return " ".join(f"{cell:>8}" for cell in cells)


def _figures(results: Sequence[Result]) -> Iterator[list[str]]:
    """Return the speeds of each result and, if there are several sides, the ratio to the first."""
    n_sides = len({result.side for result in results})
    firsts: dict[Case, Result] = {}
    for result in results:
        first = firsts.setdefault(result.case, result)
        n_digits = 0 if result.median >= 1000 else 1
        speeds = [f"{speed:.{n_digits}f}" for speed in (result.median, min(result.speeds), max(result.speeds))]
        yield speeds + [f"{result.median / first.median:.2f}"] * (n_sides > 1)


def _shows_parallel(results: Sequence[Result]) -> bool:
    return any(result.case.n_parallel > 1 for result in results)


def _table(results: Sequence[Result]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    sides = list(dict.fromkeys(result.side for result in results))
    names, varying = model_names(sides), _varying(sides)
    show_model, show_parallel = len(names) > 1, _shows_parallel(results)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("test", no_wrap=True)
    if show_parallel:
        table.add_column("requests", justify="right")
    if show_model:
        table.add_column("model", overflow="fold")
    for name in varying:
        table.add_column(_SETTINGS[name][0], justify="right")
    for heading in _headings(sides):
        table.add_column(heading, justify="right", no_wrap=True)
    before: Case | None = None
    for result, figures in zip(results, _figures(results), strict=True):
        is_new, before = result.case != before, result.case
        cells = [result.case.name if is_new else ""]
        cells += [str(result.case.n_parallel) if is_new else ""] * show_parallel
        cells += [names[result.side.model]] * show_model
        cells += [setting(result.side, name) for name in varying]
        table.add_row(*map(escape, cells + figures))
    return table


def _row(result: Result) -> dict[str, Any]:
    return {
        **dataclasses.asdict(result.side),
        "model": result.side.model or result.side.name,
        **dataclasses.asdict(result.model_info),
        **dataclasses.asdict(result.case),
        "n_threads_used": result.n_threads_used,
        "repetitions": len(result.seconds),
        "tokens_per_s": result.median,
        "tokens_per_s_least": min(result.speeds),
        "tokens_per_s_most": max(result.speeds),
        "seconds": statistics.median(result.seconds),
    }


def _varying(sides: Sequence[Side]) -> list[str]:
    return [name for name in _SETTINGS if len({getattr(side, name) for side in sides}) > 1]


def _common_settings(results: Sequence[Result]) -> str:
    """Return the settings that all sides have in common."""
    sides = [result.side for result in results]
    varying = _varying(sides)
    texts = [f"{_SETTINGS[name][0]} {setting(sides[0], name)}" for name in _SETTINGS if name not in varying]
    if used := {result.n_threads_used for result in results if result.side.n_threads is None}:
        texts.append(f"threads used {' to '.join(map(str, dict.fromkeys((min(used), max(used)))))}")
    return ", ".join(texts)


def _engine() -> str:
    return system.build_info().engine.removeprefix("llama.cpp ")


def _cpu() -> str:
    return next((device.description.strip() for device in pyggml.devices() if device.type == "cpu"), "no CPU")
