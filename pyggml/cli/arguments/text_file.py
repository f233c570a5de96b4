"""Text that commands read: UTF-8 files and standard input, and the options for splitting them into chunks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import click

from pyggml.cli.arguments.model import print_default_model_notice, print_unused_gpu_notice
from pyggml.cli.arguments.options import option_like, threads_option
from pyggml.cli.show.terminal import progress

_Function = TypeVar("_Function", bound=Callable[..., Any])

text_argument = click.argument("text", type=click.Path(allow_dash=True))


def decode_utf8(source: str, data: bytes) -> str:
    """Decode the bytes of ``source``, which names them in the error."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{source} is not UTF-8 text: {error.reason} at byte {error.start}") from None


def read_text(path: str | Path) -> str:
    r"""Return the text of a file, with universal newlines."""
    return decode_utf8(str(path), Path(path).read_bytes()).replace("\r\n", "\n").replace("\r", "\n")


def read_standard_input() -> str:
    """Return the text on standard input."""
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
    threads_option("Compute threads."),
]


def text_source(text: str) -> str | Path:
    """Return the path of a text file, or the text on standard input for ``-``."""
    if text == "-":
        return read_standard_input()
    path = Path(text)
    if not path.is_file():
        raise click.ClickException(f"there is no text file at {path}")
    return path


def chunk_progress(
    model: str | None, text: str | Path, *, device: str, n_ctx: int, n_chunks: int | None, **_: Any
) -> AbstractContextManager[Callable[[float], None]]:
    """Print notices about the model, and show a progress bar: in tokens if their number is known, else in bytes."""
    print_default_model_notice(model)
    print_unused_gpu_notice(device)
    if n_chunks is not None:
        return progress("reading", n_chunks * n_ctx, "tokens")
    return progress("reading", len(text.encode()) if isinstance(text, str) else text.stat().st_size)
