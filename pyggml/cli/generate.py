"""``pyggml generate``: text completion."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from pyggml.cli.arguments.model import is_model, looks_like_model, model_option, open_model, single_model
from pyggml.cli.arguments.options import load_options
from pyggml.cli.arguments.prompt import read_prompt
from pyggml.cli.arguments.sampling import sampling_options, sampling_params
from pyggml.cli.command import Command
from pyggml.cli.interrupts import Interrupts
from pyggml.cli.program import INTERRUPTED
from pyggml.cli.show.screen import Screen, stats_line
from pyggml.cli.show.terminal import json_option, print_json

if TYPE_CHECKING:
    from pyggml import Completion


@click.command("generate", cls=Command)
@click.argument("words", metavar="[PROMPT]", nargs=-1)
@click.option("-p", "--prompt", metavar="TEXT", help="The same as PROMPT.")
@click.option(
    "-f",
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Read the prompt, or its first part, from this file.",
)
@click.option("-e", "--escape", is_flag=True, help=r"Process escapes such as \n and \t in PROMPT.")
@model_option
@click.option(
    "--parse-special/--no-parse-special",
    default=True,
    help="Parse special tokens in the prompt, such as <|im_end|>, as tokens or as plain text.",
)
@click.option("--stats", is_flag=True, help="Print the number of tokens and the speed on standard error.")
@json_option
@sampling_options()
@load_options
def command(
    words: tuple[str, ...],
    prompt: str | None,
    path: str | None,
    escape: bool,
    model: str | None,
    parse_special: bool,
    stats: bool,
    as_json: bool,
    sampling: dict[str, Any],
    **load: Any,
) -> None:
    r"""Continue a text, and show the new text as it is generated.

    PROMPT is not formatted with a chat template; to ask questions, use "pyggml chat". The file, piped standard input
    and PROMPT are joined in this order, separated by newlines. One trailing newline of the file and of standard input
    is dropped. Ctrl-C stops the generation.

    \b
    pyggml generate -m model.gguf -p "Once upon a time" -n 64 --temp 0.8 -ngl 99 -c 4096
    pyggml generate -f story.txt --max-tokens 500 > more.txt
    cat story.txt | pyggml generate "The end of the story:"
    """
    model, typed = _model_and_prompt(words, model, prompt)
    text = read_prompt(typed, path, escape=escape)
    params = sampling_params(sampling)
    screen = Screen()
    with open_model(model, n_parallel=1, **load) as llm, Interrupts() as interrupts:
        stream = llm.stream(text, params, parse_special=parse_special)
        with interrupts.cancelling(stream.cancel):
            for chunk in stream:
                if not as_json:
                    screen.write(chunk.text)
            screen.end_line()
        done, where = stream.completion, llm.where
    if as_json:
        print_json(_as_json(done))
    if stats:
        click.echo(f"{stats_line(done)}, {where}", err=True)
    if done.finish_reason == "cancelled":
        raise click.exceptions.Exit(INTERRUPTED)


def _model_and_prompt(words: Sequence[str], model: str | None, prompt: str | None) -> tuple[str | None, str | None]:
    """Return the model and the prompt, which may both be arguments, as in other tools: MODEL PROMPT."""
    texts = [*words] if prompt is None else [*words, prompt]
    if not texts:
        return model, None
    *models, text = texts
    if prompt is None and model is None and len(texts) == 2 and is_model(text) and not is_model(texts[0]):
        raise click.UsageError(f"MODEL comes first: type 'pyggml generate {shlex.join([text, texts[0]])}'")
    if len(models) > 1 or not all(map(looks_like_model, models)):
        quoted = shlex.join([" ".join(texts)])
        raise click.UsageError(f"there are {len(texts)} prompts. Quote them as one: pyggml generate {quoted}")
    if prompt is None and not models and is_model(text):
        raise click.UsageError(f"{text} is a model; the prompt is missing: pyggml generate -m {text} -p PROMPT")
    return single_model(model, *models), text


def _as_json(done: Completion) -> dict[str, Any]:
    values = done.to_dict()
    tokens = {"prompt": values.pop("prompt_tokens"), "cached": values.pop("cached_tokens")}
    return values | {"tokens": {**tokens, "generated": len(done.token_ids)}}
