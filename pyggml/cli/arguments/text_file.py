"""Text that commands read: UTF-8 files and standard input, and the options for splitting them into chunks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from pyggml.cli.arguments.options import option_like

_Function = TypeVar("_Function", bound=Callable[..., Any])

text_argument = click.argument("text", type=click.Path(allow_dash=True))


def decode_utf8(source: str, data: bytes) -> str:
    """Decode the bytes of ``source``, which names them in the error.

    Raises:
        click.ClickException: the bytes are not UTF-8.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{source} is not UTF-8 text: {error.reason} at byte {error.start}") from None


def read_text(path: str | Path) -> str:
    r"""Return the text of a file, with universal newlines.

    Raises:
        click.ClickException: the file is not UTF-8.
        OSError: the file cannot be read.
    """
    return decode_utf8(str(path), Path(path).read_bytes()).replace("\r\n", "\n").replace("\r", "\n")


def read_standard_input() -> str:
    """Return the text on standard input.

    Raises:
        click.ClickException: the text is not UTF-8.
    """
    return decode_utf8("standard input", sys.stdin.buffer.read())


def chunk_options(function: _Function) -> _Function:
    """Add the options for reading a text in chunks, named like the parameters of :func:`pyggml.perplexity`."""
    for option in reversed(_CHUNK_OPTIONS):
        function = option(function)
    return function


_CHUNK_OPTIONS = [
    option_like("n_ctx", type=click.IntRange(16), default=512, show_default=True, help="Tokens in a chunk."),
    click.option("--n-chunks", type=click.IntRange(1), help="Number of chunks to read. Default: all."),
    option_like("device", default="auto", show_default=True, help="auto, cpu, gpu, cuda, cuda:1, metal ..."),
    option_like("n_threads", type=click.IntRange(1, 512), help="Compute threads. Default: one per core."),
]


def text_source(text: str) -> str | Path:
    """Return the path of a text file, or the text on standard input for ``-``.

    Raises:
        click.ClickException: there is no such file, or standard input is not UTF-8.
    """
    if text == "-":
        return read_standard_input()
    path = Path(text)
    if not path.is_file():
        raise click.ClickException(f"there is no text file at {path}")
    return path


def progress_total(text: str | Path, n_chunks: int | None, n_ctx: int) -> tuple[int, str]:
    """Return the total and unit of a progress bar: in tokens if their number is known, else in bytes."""
    if n_chunks is not None:
        return n_chunks * n_ctx, "tokens"
    return (len(text.encode()) if isinstance(text, str) else text.stat().st_size), "B"
