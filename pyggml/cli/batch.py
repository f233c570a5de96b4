"""``pyggml batch``: batch inference over a file of prompts."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import pyggml
from pyggml.cli.arguments.model import model_option, print_default_model_notice
from pyggml.cli.arguments.options import hidden_load_options, load_options
from pyggml.cli.arguments.output_file import force_option
from pyggml.cli.arguments.sampling import CHAT_DEFAULTS, sampling_options, sampling_params, sampling_values
from pyggml.cli.command import Command
from pyggml.options import BATCH_N_PARALLEL, fields_of
from pyggml.sampling import SamplingParams
from pyggml.units import counted, seconds_text

if TYPE_CHECKING:
    from pyggml.batch import BatchProgress, BatchReport

# Defaults that depend on the row.
_DEFAULTS = {
    name: f"{fields_of(SamplingParams)[name].default} for a prompt; for a conversation, {default}"
    for name, default in CHAT_DEFAULTS.items()
}
# Seconds between progress lines in a log, and between updates of the progress line on a terminal.
_LOG_INTERVAL_S, _TERMINAL_INTERVAL_S = 10.0, 0.5


@click.command("batch", cls=Command)
@click.argument("source", metavar="ROWS", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--out", required=True, metavar="OUT", type=click.Path(dir_okay=False), help="Output file.")
@model_option
@click.option("--prompt", default="prompt", metavar="NAME", help="Field with the prompt.  [default: prompt]")
@click.option(
    "--messages", default="messages", metavar="NAME", help="Field with the conversation.  [default: messages]"
)
@click.option("--column", default="answer", metavar="NAME", help="Field for the answer.  [default: answer]")
@force_option
@click.option("--restart", is_flag=True, help="Discard the progress of an earlier run of this job.")
@click.option("--strict", is_flag=True, help="Stop at the first row that fails, instead of writing its error.")
@click.option(
    "--ray", "address", metavar="ADDRESS", help="Run on a Ray cluster: its address, auto, or local for a new one."
)
@sampling_options(_DEFAULTS)
@hidden_load_options(n_parallel=str(BATCH_N_PARALLEL), chat_template="")
@load_options
def command(
    source: str,
    out: str,
    model: str | None,
    *,
    force: bool,
    address: str | None,
    sampling: dict[str, Any],
    **settings: Any,
) -> None:
    r"""Answer every row of the file ROWS, and write a file of answers in the same order.

    ROWS is a file of JSON lines (.jsonl), CSV (.csv, .tsv), a Parquet file (.parquet), a file for OpenAI's batch API,
    or plain text with a prompt per line (.txt); "-" is standard input, JSON lines or plain text. Each row has "prompt"
    or "messages", optionally "params" and "tools", and any other fields, which are copied to OUT. The extension of OUT
    sets the format: .parquet or .jsonl. Rows that fail are written with their error, and the exit code is then 1.
    Conversations have the sampling defaults of `pyggml chat`.

    Progress is saved in OUT.part. If the job is interrupted, run the same command again to resume.

    \b
    pyggml batch -m model.gguf prompts.jsonl --out answers.jsonl --max-tokens 100
    """
    given = {name: value for name, value in settings.items() if value is not None}
    sampling_params(sampling)  # refuses contradictions as errors of usage
    given |= {"params": sampling_values(sampling), "progress": _ProgressPrinter(), "overwrite": force}
    print_default_model_notice(model)
    with contextlib.ExitStack() as stack:
        done = _run(stack.enter_context(_standard_input()) if source == "-" else source, out, model, address, given)
    click.echo(f"{_summary(done)}, in {seconds_text(done.elapsed_s)}: {out}", err=True)
    if done.n_failed:
        raise click.exceptions.Exit(1)


@contextlib.contextmanager
def _standard_input() -> Iterator[str]:
    """Copy standard input to a temporary file, with the extension of its format: JSON lines or plain text."""
    content = sys.stdin.buffer.read()
    with tempfile.TemporaryDirectory(prefix="pyggml-") as folder:
        path = Path(folder) / ("stdin.jsonl" if content.lstrip()[:1] == b"{" else "stdin.txt")
        path.write_bytes(content)
        yield str(path)


def _run(source: str, out: str, model: str | None, address: str | None, given: dict[str, Any]) -> BatchReport:
    try:
        if address is None:
            from pyggml import batch

            return batch.run(source, out, model, **given)
        from pyggml import ray

        return ray.run_batch(source, out, model, address=address, **given)
    except BaseException as error:
        # The same command would meet the same wrong parameter again, such as another job's journal.
        if not isinstance(error, pyggml.InvalidParameterError) and Path(f"{out}.part").exists():
            click.echo(f"pyggml: Progress is saved in {out}.part. Run the same command again to resume.", err=True)
        raise


class _ProgressPrinter:
    """Periodic progress output on standard error."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._interval_s = _TERMINAL_INTERVAL_S if self._is_terminal else _LOG_INTERVAL_S
        self._printed_s = time.monotonic()

    def __call__(self, state: BatchProgress) -> None:
        now = time.monotonic()
        is_last = state.n_done == state.n_rows
        if now - self._printed_s < self._interval_s and not is_last:
            return
        self._printed_s = now
        left = "" if state.left_s is None or is_last else f", {seconds_text(state.left_s)} left"
        if self._is_terminal:
            click.echo(f"\r\x1b[K{'' if is_last else _summary(state) + left}", err=True, nl=False)
        elif not is_last:
            click.echo(f"{_summary(state)}{left}", err=True)


def _summary(state: BatchProgress) -> str:
    failed = f" ({state.n_failed} failed)" if state.n_failed else ""
    earlier = f", {state.n_kept} from an earlier run" if state.n_kept else ""
    return f"{state.n_done} of {counted(state.n_rows, 'row')}{failed}{earlier}, {state.tokens_per_s:.0f} tokens/s"
