"""``pyggml bench``: measures how fast models and settings are, side by side."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from pyggml.cli.arguments.model import of_the_hub, say_unused_gpu
from pyggml.cli.arguments.options import named_like
from pyggml.cli.command import Command
from pyggml.cli.show.terminal import json_option, print_json, progress
from pyggml.options import LoadOptions, fields_of

if TYPE_CHECKING:
    from pyggml.cli.bench.measure import Bench, Case, Side
    from pyggml.cli.bench.plot import Plot


_MOST = 1_000_000  # the largest number that any list may contain
_NONE: dict[str, Any] = {"none": None}


def _list(
    *, least: int | None = None, words: dict[str, Any] | None = None, choices: Sequence[str] = ()
) -> dict[str, Any]:
    """Settings of an option that takes values separated by commas; repeated ones count once.

    Args:
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

    return {"metavar": "LIST", "callback": convert}


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
@click.argument("arguments", nargs=-1, metavar="[MODEL]...")
@click.option(
    "-m",
    "--model",
    "models",
    multiple=True,
    metavar="MODEL",
    help="A .gguf file, a Hugging Face directory or a reference to the hub (hf:org/repo). May be repeated. The default "
    "is the model that ships with pyggml.",
)
@click.option(
    "-hf", "--hf-repo", "hf_repos", multiple=True, metavar="ORG/REPO", help="A model of the hub: org/repo:q4_k_m."
)
@click.option("-p", "--prompt", **_list(least=1, words=_NONE), default="512", help="Prompt tokens to compute.")
@click.option("-n", "--generate", **_list(least=1, words=_NONE), default="128", help="Tokens to generate.")
@click.option("-d", "--depth", **_list(least=0), default="0", help="Tokens already in the context at the start.")
@named_like("n_parallel", own="--parallel", **_list(least=1), default="1", help="Concurrent requests.")
@named_like("n_threads", **_list(least=1, words={"auto": None}), default="auto", help="Compute threads.")
@named_like(
    "cache_type",
    **_list(choices=fields_of(LoadOptions)["cache_type"].words),
    default="f16",
    help="Element types of the key-value cache.",
)
@named_like("n_batch", **_list(least=1), default="2048", help="Maximum number of tokens in a forward pass.")
@named_like("n_ubatch", **_list(least=1), default="512", help="Maximum number of tokens computed at once.")
@named_like("device", **_list(), default="auto", help="auto, cpu, gpu, cuda:1 ...; cuda:0/cuda:1 is one model on both.")
@named_like("n_gpu_layers", **_list(least=0, words={"all": None}), default="all", help="Layers on the GPU.")
@named_like(
    "split_mode",
    **_list(choices=fields_of(LoadOptions)["split_mode"].words),
    default="layer",
    help="How several devices share a model.",
)
@named_like("tensor_split", **_list(words=_NONE), default="none", help="How much each device takes, such as 3/1.")
@named_like("n_cpu_moe", **_list(least=0, words={"all": "all"}), default="0", help="Layers with experts on the CPU.")
@click.option("-r", "--repetitions", default=5, type=click.IntRange(1), help="How often to measure each combination.")
@click.option("--no-warm-up", is_flag=True, help="Count the first round too.")
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
    r"""Measure how fast models are, side by side.

    Options that take lists ("128,512") are measured in every combination. --prompt and --generate say what is
    measured, and "none" leaves one of them out; the other options say how.

    \b
    pyggml bench model.gguf -p 128,512 -n 64 --parallel 1,4,8
    pyggml bench a.gguf b.gguf --cache-type f16,q8_0 --plot speed.png

    Requests go through the same interface that programs use, with random prompts, so that nothing is cached, and a
    fixed number of tokens to generate. Each round measures every combination once, and the median counts. Ctrl-C shows
    the results so far.
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv cannot be combined: choose one.")
    cases, sides = _cases(lists), _sides([*arguments, *models, *map(of_the_hub, hf_repos)], lists)
    drawing = _plot(plot)
    from pyggml.cli.bench import report
    from pyggml.cli.bench.measure import Bench

    say_unused_gpu(*(side.device for side in sides))
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
        for n_parallel in lists["n_parallel"]
    ]
    if not found:
        raise click.UsageError("--prompt and --generate are both 'none': there is nothing to measure.")
    return found


def _sides(models: Sequence[str | None], lists: dict[str, list[Any]]) -> list[Side]:
    from pyggml.cli.bench.measure import Side

    names = (
        "device",
        "n_gpu_layers",
        "split_mode",
        "tensor_split",
        "n_cpu_moe",
        "n_threads",
        "cache_type",
        "n_batch",
        "n_ubatch",
    )
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
