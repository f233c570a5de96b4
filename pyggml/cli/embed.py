"""``pyggml embed``: embeddings of the rows of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import pyggml
from pyggml.cli.arguments.model import model_option, print_default_model_notice
from pyggml.cli.arguments.options import load_options
from pyggml.cli.arguments.output_file import force_option
from pyggml.cli.arguments.row_file import ProgressPrinter, row_file
from pyggml.cli.command import Command
from pyggml.units import counted, seconds_text

if TYPE_CHECKING:
    from pyggml.batch import EmbedProgress

text_field_option = click.option(
    "--text", default="text", show_default=True, metavar="NAME", help="Field with the text."
)
column_option = click.option(
    "--column", default="embedding", show_default=True, metavar="NAME", help="Field with the vector."
)


@click.command("embed", cls=Command)
@click.argument("source", metavar="ROWS", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--out", required=True, metavar="OUT", type=click.Path(dir_okay=False), help="Output file.")
@model_option
@text_field_option
@column_option
@click.option("--prompt-name", metavar="NAME", help="Prompt of the model to put before each text.")
@click.option("--dimensions", type=click.IntRange(1), help="Keep only the first dimensions (Matryoshka).")
@click.option(
    "--normalize/--no-normalize", default=None, help="Scale vectors to length 1. Default: as the model's file."
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float16", "int8", "binary"]),
    default="float32",
    show_default=True,
    help="Type of the numbers.",
)
@click.option(
    "--truncate/--no-truncate", default=True, show_default=True, help="Cut off texts that are too long, or stop there."
)
@click.option("--max-tokens", type=click.IntRange(1), help="Longest text in tokens. Default: the model's limit.")
@force_option
@click.option("--restart", is_flag=True, help="Discard the progress of an earlier run of this job.")
@load_options
def command(source: str, out: str, model: str | None, *, force: bool, **settings: Any) -> None:
    r"""Embed a text of each row of the file ROWS, and write the vectors in the same order.

    ROWS is a file of JSON lines (.jsonl), CSV (.csv, .tsv), a Parquet file (.parquet), or plain text with a text per
    line (.txt); "-" is standard input, JSON lines or plain text. The extension of OUT sets the format: .npy, an array
    with a row for each row of ROWS; .jsonl or .parquet, the rows with their vectors. A row without a text has no vector
    and an error, or zeros in an array, and the exit code is then 1.

    Progress is saved in OUT.part. If the job is interrupted, run the same command again to resume.

    \b
    pyggml embed -m all-MiniLM-L6-v2 documents.jsonl --out vectors.parquet
    pyggml similar -m all-MiniLM-L6-v2 "How do I resume a job?" vectors.parquet
    """
    given = {name: value for name, value in settings.items() if value is not None}
    print_default_model_notice(model)
    with row_file(source) as rows:
        done = _run(rows, out, model, overwrite=force, progress=ProgressPrinter(_summary), **given)
    failed = f" ({done.n_failed} without a text)" if done.n_failed else ""
    click.echo(f"{_summary(done)}{failed}, in {seconds_text(done.elapsed_s)}: {out}", err=True)
    if done.n_failed:
        raise click.exceptions.Exit(1)


def _run(source: str, out: str, model: str | None, **given: Any) -> Any:
    from pyggml import batch

    try:
        return batch.embed(source, out, model, **given)
    except BaseException as error:
        # The same command would meet the same wrong parameter again, such as another job's progress.
        if not isinstance(error, pyggml.InvalidParameterError) and Path(f"{out}.part").exists():
            click.echo(f"pyggml: Progress is saved in {out}.part. Run the same command again to resume.", err=True)
        raise


def _summary(state: EmbedProgress) -> str:
    earlier = f", {state.n_kept} from an earlier run" if state.n_kept else ""
    return f"{state.n_done} of {counted(state.n_rows, 'row')}{earlier}, {state.rows_per_s:.0f} rows/s"
