"""``pyggml bench``: measures how fast models and settings are, side by side."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pyggml.cli.program import Command
from pyggml.cli.show.terminal import json_option, print_json, progress
from pyggml.options import LoadOptions, fields_of

if TYPE_CHECKING:
    from pyggml.cli.bench.measure import Bench, Case, Side
    from pyggml.cli.bench.plot import Plot


_MOST = 1_000_000  # the largest number that any list may contain

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _list(
    *names: str,
    default: str,
    help: str,
    least: int | None = None,
    words: dict[str, Any] | None = None,
    choices: Sequence[str] = (),
) -> Callable[[_Function], _Function]:
    """An option that takes values separated by commas; repeated ones count once.

    Args:
        *names: of the option.
        default: its value if it is not given.
        help: its help.
        least: the smallest integer allowed; None: the values are texts.
        words: other values, and what they stand for.
        choices: the texts allowed; none: any.
    """

    def convert(ctx: click.Context, param: click.Parameter, text: str) -> list[Any]:
        values = [word.strip() for word in text.split(",")]
        try:
            return list(dict.fromkeys(_value(value, least, words or {}, choices) for value in values))
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return click.option(*names, default=default, metavar="LIST", callback=convert, help=help)


def _value(word: str, least: int | None, words: dict[str, Any], choices: Sequence[str]) -> Any:
    if word in words:
        return words[word]
    if least is None and (word in choices if choices else word):
        return word
    if least is not None and word.isdecimal() and least <= int(word) <= _MOST:
        return int(word)
    texts = f"one of {', '.join(choices)}" if choices else "a word"
    wanted = texts if least is None else f"an integer from {least} to {_MOST:,}"
    raise ValueError(f"{word!r} is not {' or '.join([wanted, *map(repr, words)])}.")


@click.command("bench", cls=Command, context_settings={"show_default": True})
@click.option(
    "-m",
    "--model",
    "models",
    multiple=True,
    metavar="MODEL",
    help="A .gguf file, a Hugging Face directory or a reference to the hub (hf:org/repo). May be repeated. The default "
    "is the model that ships with pyggml.",
)
@_list("-p", "--prompt", default="512", least=1, words={"none": None}, help="Prompt tokens to compute.")
@_list("-n", "--generate", default="128", least=1, words={"none": None}, help="Tokens to generate.")
@_list("-d", "--depth", default="0", least=0, help="Tokens already in the context at the start.")
@_list("--parallel", default="1", least=1, help="Concurrent requests.")
@_list("-t", "--n-threads", default="auto", least=1, words={"auto": None}, help="Compute threads.")
@_list(
    "--cache-type",
    default="f16",
    choices=fields_of(LoadOptions)["cache_type"].words,
    help="Element types of the key-value cache.",
)
@_list("-b", "--n-batch", default="2048", least=1, help="Maximum number of tokens in a forward pass.")
@_list("--n-ubatch", default="512", least=1, help="Maximum number of tokens computed at once.")
@_list("--device", default="auto", help="auto, cpu, gpu, cuda, cuda:1, metal ...")
@_list("--n-gpu-layers", default="all", least=0, words={"all": None}, help="Layers on the GPU.")
@click.option("-r", "--repetitions", default=5, type=click.IntRange(1), help="How often to measure each combination.")
@click.option("--no-warm-up", is_flag=True, help="Count the first round too.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--plot", metavar="FILE", type=click.Path(dir_okay=False), help="Also draw a chart: .png, .svg or .pdf.")
@json_option
def command(
    models: tuple[str, ...],
    repetitions: int,
    no_warm_up: bool,
    as_csv: bool,
    as_json: bool,
    plot: str | None,
    **lists: list[Any],
) -> None:
    r"""Measure how fast models are, side by side.

    Options that take lists ("128,512") are measured in every combination. --prompt and --generate say what is
    measured, and "none" leaves one of them out; the other options say how.

    \b
    pyggml bench -m model.gguf -p 128,512 -n 64 --parallel 1,4,8
    pyggml bench -m a.gguf -m b.gguf --cache-type f16,q8_0 --plot speed.png

    Requests go through the same interface that programs use, with random prompts, so that nothing is cached, and a
    fixed number of tokens to generate. Each round measures every combination once, and the median counts. Ctrl-C shows
    the results so far.
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv cannot be combined: choose one.")
    cases, sides = _cases(lists), _sides(models, lists)
    drawing = _plot(plot)
    from pyggml.cli.bench import report
    from pyggml.cli.bench.measure import Bench

    with closing(Bench(sides, cases)) as bench:
        interrupted = _run(bench, repetitions, warm_up=not no_warm_up)
        results = bench.results
    if as_json:
        print_json(report.as_json(results, bench.load_average, interrupted=interrupted))
    elif as_csv:
        click.echo(report.as_csv(results), nl=False)
    else:
        report.show(results, bench.load_average, interrupted=interrupted)
    if drawing is not None and results:
        drawing.draw(results)
    if interrupted:
        raise KeyboardInterrupt


def _run(bench: Bench, repetitions: int, *, warm_up: bool) -> bool:
    """Measures with a bar for each phase, and returns whether it was interrupted."""
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
        for n_parallel in lists["parallel"]
    ]
    if not found:
        raise click.UsageError("--prompt and --generate are both 'none': there is nothing to measure.")
    return found


def _sides(models: tuple[str, ...], lists: dict[str, list[Any]]) -> list[Side]:
    from pyggml.cli.bench.measure import Side

    names = ("device", "n_gpu_layers", "n_threads", "cache_type", "n_batch", "n_ubatch")
    combinations = list(itertools.product(*(lists[name] for name in names)))
    return [
        Side(model, **dict(zip(names, values, strict=True)))
        for model in dict.fromkeys(models or [None])
        for values in combinations
    ]


def _plot(path: str | None) -> Plot | None:
    """The chart to draw, checked before anything is measured."""
    if path is None:
        return None
    from pyggml.cli.bench.plot import Plot

    return Plot(path)
