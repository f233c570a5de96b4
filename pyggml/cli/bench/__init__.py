"""``pyggml bench``: comparison of the speed of models and settings."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from pyggml.cli.arguments.model import hub_reference, print_unused_gpu_notice
from pyggml.cli.arguments.options import option_like
from pyggml.cli.command import Command
from pyggml.cli.show.terminal import json_option, print_json, progress
from pyggml.options import LoadOptions, fields_of

if TYPE_CHECKING:
    from pyggml.cli.bench.measure import Bench, Case, Side


_MAX = 1_000_000  # the largest number that any list may contain
_NONE: dict[str, Any] = {"none": None}


def _list(
    *, least: int | None = None, words: Mapping[str, Any] = MappingProxyType({}), choices: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the settings of an option that takes a list of values separated by commas, without duplicates.

    Args:
        least: the smallest integer allowed; None: the values are strings.
        words: other words that are allowed, and their values.
        choices: the strings allowed; (): any.
    """

    def value(word: str) -> Any:
        if word in words:
            return words[word]
        if least is None and (word in choices if choices else word):
            return word
        if least is not None and word.isdecimal() and least <= int(word) <= _MAX:
            return int(word)
        texts = f"one of {', '.join(choices)}" if choices else "a word"
        wanted = texts if least is None else f"an integer from {least} to {_MAX:,}"
        raise click.BadParameter(f"{word!r} is not {' or '.join([wanted, *map(repr, words)])}.")

    def convert(_ctx: click.Context, _param: click.Parameter, text: str) -> list[Any]:
        return list(dict.fromkeys(value(word.strip()) for word in text.split(",")))

    return {"metavar": "LIST", "callback": convert}


@click.command("bench", cls=Command, context_settings={"show_default": True})
@click.argument("arguments", nargs=-1, metavar="[MODEL]...")
@click.option(
    "-m",
    "--model",
    "models",
    multiple=True,
    metavar="MODEL",
    help="A .gguf file, a Hugging Face directory or a reference to the hub (hf:org/repo). May be repeated. Default: "
    "the model that ships with pyggml.",
)
@click.option(
    "-hf", "--hf-repo", "hf_repos", multiple=True, metavar="ORG/REPO", help="A model of the hub: org/repo:q4_k_m."
)
@click.option("-p", "--prompt", **_list(least=1, words=_NONE), default="512", help="Prompt tokens.")
@click.option("-n", "--generate", **_list(least=1, words=_NONE), default="128", help="Tokens to generate.")
@click.option("-d", "--depth", **_list(least=0), default="0", help="Tokens in the context at the start.")
@option_like("n_parallel", long_name="--parallel", **_list(least=1), default="1", help="Concurrent requests.")
@option_like("n_threads", **_list(least=1, words={"auto": None}), default="auto", help="Compute threads.")
@option_like(
    "cache_type",
    **_list(choices=fields_of(LoadOptions)["cache_type"].words),
    default="f16",
    help="Types of the KV cache.",
)
@option_like("n_batch", **_list(least=1), default="2048", help="Maximum tokens in a batch.")
@option_like("n_ubatch", **_list(least=1), default="512", help="Maximum tokens in a micro-batch.")
@option_like("device", **_list(), default="auto", help="auto, cpu, gpu, cuda:1 ...; cuda:0/cuda:1 splits a model.")
@option_like("n_gpu_layers", **_list(least=0, words={"all": None}), default="all", help="Layers on the GPU.")
@option_like(
    "split_mode",
    **_list(choices=fields_of(LoadOptions)["split_mode"].words),
    default="layer",
    help="Modes of splitting a model over several devices.",
)
@option_like("tensor_split", **_list(words=_NONE), default="none", help="Shares of the devices, such as 3/1.")
@option_like("n_cpu_moe", **_list(least=0, words={"all": "all"}), default="0", help="Layers with experts on the CPU.")
@click.option("-r", "--repetitions", default=5, type=click.IntRange(1), help="Measurements per combination.")
@click.option("--no-warm-up", is_flag=True, help="Measure without a warm-up round.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--plot", metavar="FILE", type=click.Path(dir_okay=False), help="Also draw a chart: .png, .svg or .pdf.")
@json_option
def command(
    arguments: tuple[str, ...],
    models: tuple[str, ...],
    hf_repos: tuple[str, ...],
    repetitions: int,
    no_warm_up: bool,
    as_csv: bool,
    as_json: bool,
    plot: str | None,
    **lists: list[Any],
) -> None:
    r"""Compare the speed of models and settings.

    Options take lists ("128,512"), and every combination is measured. --prompt and --generate set the tests; "none"
    skips one of them. The other options set the conditions.

    \b
    pyggml bench model.gguf -p 128,512 -n 64 --parallel 1,4,8
    pyggml bench a.gguf b.gguf --cache-type f16,q8_0 --plot speed.png

    Requests use the public API, with random prompts, so that nothing is cached, and a fixed number of generated
    tokens. Each round measures every combination once, and the result is the median. Ctrl-C shows the results so far.
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv cannot be combined: choose one.")
    cases, sides = _cases(lists), _sides([*arguments, *models, *map(hub_reference, hf_repos)], lists)
    chart = None
    if plot is not None:  # checked before anything is measured
        from pyggml.cli.bench.plot import Plot

        chart = Plot(plot)
    from pyggml.cli.bench import report
    from pyggml.cli.bench.measure import Bench

    print_unused_gpu_notice(*(side.device for side in sides))
    with Bench(sides, cases) as bench:
        interrupted = _run(bench, repetitions, warm_up=not no_warm_up)
        results = bench.results
    if as_json:
        print_json(report.as_json(results, bench.load_average, interrupted=interrupted))
    elif as_csv:
        click.echo(report.as_csv(results), nl=False)
    else:
        report.show(results, bench.load_average, interrupted=interrupted)
    if chart is not None and results:
        chart.draw(results)
        click.echo(f"pyggml: the chart is in {plot}", err=True)
    if interrupted:
        raise KeyboardInterrupt


def _run(bench: Bench, repetitions: int, *, warm_up: bool) -> bool:
    """Measure with a progress bar for each phase; return True if it was interrupted."""
    phases = [("warming up", bench.warm_up())] * warm_up + [("measuring", bench.run(repetitions))]
    try:
        with progress("loading") as show:
            bench.load(show)
        for what, parts in phases:
            with progress(what) as show:
                for part in parts:
                    show(part)
    except KeyboardInterrupt:
        return True
    return False


def _cases(lists: dict[str, list[Any]]) -> list[Case]:
    from pyggml.cli.bench.measure import Case

    found = [
        Case(kind, n_tokens, n_depth, n_parallel)
        for kind in ("prompt", "generate")
        for n_tokens in lists[kind]
        if n_tokens is not None
        for n_depth in lists["depth"]
        for n_parallel in lists["n_parallel"]
    ]
    if not found:
        raise click.UsageError("--prompt and --generate are both 'none': nothing to measure.")
    return found


def _sides(models: Sequence[str | None], lists: dict[str, list[Any]]) -> list[Side]:
    from pyggml.cli.bench.measure import Side

    names = [field.name for field in dataclasses.fields(Side) if field.name != "model"]
    combinations = list(itertools.product(*(lists[name] for name in names)))
    return [
        Side(model, **dict(zip(names, values, strict=True)))
        for model in dict.fromkeys(models or [None])
        for values in combinations
    ]
