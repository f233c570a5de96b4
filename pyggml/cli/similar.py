"""``pyggml similar``: search of a file by similarity to a query."""

from __future__ import annotations

from typing import Any

import click

from pyggml.cli.arguments.model import load_model, model_option
from pyggml.cli.arguments.options import load_options
from pyggml.cli.arguments.row_file import row_file
from pyggml.cli.command import Command
from pyggml.cli.embed import column_option, text_field_option
from pyggml.cli.show.terminal import json_option, print_json


@click.command("similar", cls=Command)
@click.argument("query")
@click.argument("source", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True))
@model_option
@click.option("--top-n", type=click.IntRange(1), default=10, show_default=True, help="Number of rows to print.")
@text_field_option
@column_option
@json_option
@load_options
def command(query: str, source: str, model: str | None, *, as_json: bool, **settings: Any) -> None:
    r"""Print the rows of FILE that are most similar to QUERY, the most similar first.

    FILE is an output of `pyggml embed`, with the same model; of another file of rows or texts, the texts are embedded
    now. Each line has the similarity, the number of the row, counted from 1, and its text.

    \b
    pyggml similar -m all-MiniLM-L6-v2 "How do I resume a job?" vectors.parquet
    """
    from pyggml import batch

    names = {name: settings.pop(name) for name in ("text", "column", "top_n")}
    with row_file(source) as rows, load_model(model, **settings) as llm:
        matches = batch.similar(llm, query, rows, **names)
    if as_json:
        print_json([{"row": each.index + 1, "score": each.score, **_without_names(each.row)} for each in matches])
        return
    for each in matches:
        text = " ".join(str(each.row.get(names["text"], "")).split())
        click.echo(f"{each.score:.4f}  {each.index + 1}  {text}".rstrip())


def _without_names(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("row", "score")}
