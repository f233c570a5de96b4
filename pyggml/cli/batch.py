"""``pyggml batch``: batch inference over a file of prompts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import pyggml
from pyggml.cli.arguments.model import model_option, print_default_model_notice
from pyggml.cli.arguments.options import hidden_load_options, load_options
from pyggml.cli.arguments.output_file import force_option
from pyggml.cli.arguments.row_file import ProgressPrinter, row_file
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
    given |= {"params": sampling_values(sampling), "progress": ProgressPrinter(_summary), "overwrite": force}
    print_default_model_notice(model)
    with row_file(source) as rows:
        done = _run(rows, out, model, address, given)
    click.echo(f"{_summary(done)}, in {seconds_text(done.elapsed_s)}: {out}", err=True)
    if done.n_failed:
        raise click.exceptions.Exit(1)


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


def _summary(state: BatchProgress) -> str:
    failed = f" ({state.n_failed} failed)" if state.n_failed else ""
    earlier = f", {state.n_kept} from an earlier run" if state.n_kept else ""
    return f"{state.n_done} of {counted(state.n_rows, 'row')}{failed}{earlier}, {state.tokens_per_s:.0f} tokens/s"
