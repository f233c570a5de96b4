"""``pyggml batch``: answers a file of prompts."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pyggml.cli.arguments.model import model_option, say_which
from pyggml.cli.arguments.options import load_options
from pyggml.cli.arguments.sampling import sampling_options, sampling_params
from pyggml.cli.command import Command
from pyggml.units import counted, seconds_text

if TYPE_CHECKING:
    from pyggml.batch import BatchProgress

# A line of its own where standard error is no terminal, and the same line again where it is.
_LINE_EVERY_S, _AGAIN_EVERY_S = 10.0, 0.5


@click.command("batch", cls=Command)
@click.argument("source", metavar="ROWS", type=click.Path(dir_okay=False))
@click.option("--out", required=True, metavar="OUT", type=click.Path(dir_okay=False), help="File for the answers.")
@model_option
@click.option("--prompt", "prompt", default="prompt", metavar="NAME", help="Field with the text.  [default: prompt]")
@click.option(
    "--messages", default="messages", metavar="NAME", help="Field with the conversation.  [default: messages]"
)
@click.option("--column", default="answer", metavar="NAME", help="Field for the answer.  [default: answer]")
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
@click.option("--restart", is_flag=True, help="Forget what an earlier run of this job has done.")
@click.option(
    "--ray", "address", metavar="ADDRESS", help="Compute on a Ray cluster: its address, auto, or local for a new one."
)
@sampling_options()
@load_options
def command(
    source: str,
    out: str,
    model: str | None,
    prompt: str,
    messages: str,
    column: str,
    force: bool,
    restart: bool,
    address: str | None,
    sampling: dict[str, Any],
    **load: Any,
) -> None:
    r"""Answer every row of the file ROWS, and write a file of answers in the same order.

    ROWS has a JSON object in each line, with "prompt" or "messages", perhaps "params" and "tools", and whatever else is
    to stand beside the answer; or it is a file for OpenAI's batch API; or a Parquet file. What OUT is, its name says:
    .parquet or .jsonl. Rows that fail are kept with their error.

    Each answer is on disk as soon as it is there, in OUT.part. Whatever ended a job, the same command goes on with it.

    \b
    pyggml batch -m model.gguf prompts.jsonl --out answers.jsonl --max-tokens 100
    """
    names = {"prompt": prompt, "messages": messages, "column": column, "overwrite": force, "restart": restart}
    settings: dict[str, Any] = {**names, "params": sampling_params(sampling), "progress": _Shown()}
    given = {name: value for name, value in load.items() if value is not None}
    try:
        done = _run(source, out, model, address, settings, given)
    except BaseException:
        if Path(f"{out}.part").exists():
            click.echo(f"pyggml: what is done is in {out}.part; the same command goes on with it", err=True)
        raise
    click.echo(f"{_text(done)}, in {seconds_text(done.elapsed_s)}: {out}", err=True)


def _run(
    source: str, out: str, model: str | None, address: str | None, settings: dict[str, Any], load: dict[str, Any]
) -> BatchProgress:
    if address is not None:
        from pyggml import ray

        say_which(model)
        return ray.run_batch(source, out, model, address=address, **settings, **load)
    from pyggml import batch

    say_which(model)
    return batch.run(source, out, model, **settings, **load)


class _Shown:
    """Shows progress on standard error now and then."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._shown_s = time.monotonic()

    def __call__(self, state: BatchProgress) -> None:
        now = time.monotonic()
        is_last = state.n_done == state.n_rows
        if now - self._shown_s < (_AGAIN_EVERY_S if self._is_terminal else _LINE_EVERY_S) and not is_last:
            return
        self._shown_s = now
        left = "" if state.left_s is None or is_last else f", {seconds_text(state.left_s)} left"
        if self._is_terminal:
            click.echo(f"\r\x1b[K{'' if is_last else _text(state) + left}", err=True, nl=False)
        elif not is_last:
            click.echo(f"{_text(state)}{left}", err=True)


def _text(state: BatchProgress) -> str:
    failed = f" ({state.n_failed} failed)" if state.n_failed else ""
    kept = f", {state.n_kept} from before" if state.n_kept else ""
    return f"{state.n_done} of {counted(state.n_rows, 'row')}{failed}{kept}, {state.tokens_per_s:.0f} tokens/s"
