"""Texts that commands feed to a model, a chunk at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from pyggml.cli.arguments.options import named_like
from pyggml.cli.arguments.utf8 import decoded

_Function = TypeVar("_Function", bound=Callable[..., Any])

text_argument = click.argument("text", type=click.Path(allow_dash=True))


def chunk_options(function: _Function) -> _Function:
    """Adds the options for reading a text, named like the parameters of :func:`pyggml.perplexity`."""
    for option in reversed(_CHUNK_OPTIONS):
        function = option(function)
    return function


_CHUNK_OPTIONS = [
    named_like("n_ctx", type=click.IntRange(16), default=512, show_default=True, help="Tokens in a chunk."),
    click.option("--n-chunks", type=click.IntRange(1), help="Number of chunks to read. Default: all."),
    named_like("device", default="auto", show_default=True, help="auto, cpu, gpu, cuda, cuda:1, metal ..."),
    named_like("n_threads", type=click.IntRange(1, 512), help="Compute threads. Default: one per core."),
]


def text_or_file(text: str) -> str | Path:
    """The text to pass to the library: a file's path, or for ``-`` the text on standard input.

    Raises:
        click.ClickException: there is no such file, or standard input is not UTF-8.
    """
    if text == "-":
        return decoded("standard input", sys.stdin.buffer.read())
    path = Path(text)
    if not path.is_file():
        raise click.ClickException(f"there is no text file at {path}")
    return path


def amount(text: str | Path, n_chunks: int | None, n_ctx: int) -> tuple[int, str]:
    """How much will be read, for a progress bar: in tokens if their number is known, else in bytes."""
    if n_chunks is not None:
        return n_chunks * n_ctx, "tokens"
    return (len(text.encode()) if isinstance(text, str) else text.stat().st_size), "B"
