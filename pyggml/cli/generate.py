"""``pyggml generate``: continues a text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from pyggml.cli.arguments.model import opened
from pyggml.cli.arguments.options import load_options, model_option
from pyggml.cli.arguments.sampling import sampling_options, sampling_params
from pyggml.cli.interrupts import Interrupts
from pyggml.cli.program import INTERRUPTED, Command
from pyggml.cli.show.screen import Screen, stats_line
from pyggml.cli.show.terminal import json_option, print_json

if TYPE_CHECKING:
    from pyggml import Completion, Stream


@click.command("generate", cls=Command)
@click.argument("prompt", required=False)
@click.option(
    "-f",
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Read the prompt from this file.",
)
@model_option
@click.option(
    "--parse-special/--no-parse-special",
    default=True,
    help="Read special tokens that the prompt spells, such as <|im_end|>, as tokens, or as plain text.",
)
@click.option("--stats", is_flag=True, help="Show on standard error how many tokens it took and how fast they came.")
@json_option
@sampling_options()
@load_options
def command(
    prompt: str | None,
    path: str | None,
    model: str | None,
    parse_special: bool,
    stats: bool,
    as_json: bool,
    sampling: dict[str, Any],
    **load: Any,
) -> None:
    r"""Continue a text, and show it as it is generated.

    The model gets PROMPT as it is, without a chat template; to ask questions, use "pyggml chat". Without PROMPT, or
    if it is "-", the text is read from standard input. One newline at the end of a file or of standard input is
    dropped. Ctrl-C stops the generation.

    \b
    pyggml generate "Once upon a time" --temperature 0.8 --stats
    pyggml generate -f story.txt --max-tokens 500 > more.txt
    """
    text = _prompt(prompt, path)
    params = sampling_params(sampling)
    with opened(model, n_parallel=1, **load) as llm, Interrupts() as interrupts:
        stream = llm.stream(text, params, parse_special=parse_special)
        with interrupts.stopping(stream.cancel):
            _show(stream, quiet=as_json)
        done = stream.completion
    if as_json:
        print_json(_as_json(done))
    if stats:
        click.echo(stats_line(done), err=True)
    if done.finish_reason == "cancelled":
        raise click.exceptions.Exit(INTERRUPTED)


def _show(stream: Stream, *, quiet: bool) -> None:
    screen = Screen()
    for chunk in stream:
        if not quiet:
            screen.write(chunk.text)
    screen.end_line()


def _prompt(prompt: str | None, path: str | None) -> str:
    """The prompt, from wherever it is given."""
    if prompt is not None and path is not None:
        raise click.UsageError("PROMPT and --file were both given: choose one")
    if prompt is not None and prompt != "-":
        text = prompt
    elif path is not None and path != "-":
        with click.open_file(path, "rb") as file:
            text = _decoded(path, file.read())
    else:
        text = _standard_input(asked_for="-" in (prompt, path))
    if not text:
        raise click.UsageError("the prompt is empty")
    return text


def _standard_input(*, asked_for: bool) -> str:
    if sys.stdin.isatty() and not asked_for:
        raise click.UsageError('give a PROMPT, --file FILE, or text on standard input (try "pyggml generate --help")')
    return _decoded("standard input", sys.stdin.buffer.read())


def _decoded(where: str, data: bytes) -> str:
    try:
        return data.decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{where} is not UTF-8 text: {error.reason} at byte {error.start}") from None


def _as_json(done: Completion) -> dict[str, Any]:
    values = done.to_dict()
    tokens = {"prompt": values.pop("prompt_tokens"), "cached": values.pop("cached_tokens")}
    return values | {"tokens": {**tokens, "generated": len(done.token_ids)}}
