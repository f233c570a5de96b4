"""The prompt of a command, from the command line, a file and standard input."""

from __future__ import annotations

import contextlib
import os
import re
import select
import stat
import sys
from pathlib import Path

import click

from pyggml.cli.arguments.text_file import decode_utf8, read_standard_input

_SILENCE_S = 2.0  # silence of standard input after which a notice is printed
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def read_prompt(typed: str | None, path: str | None, *, escape: bool) -> str:
    r"""Join the texts of a file, standard input and the command line, in this order, with newlines.

    Standard input is read if it is piped, as in ``llm`` and ollama, or if there is no other text.

    Args:
        typed: text on the command line; "-" for standard input.
        path: path of the file; "-" for standard input.
        escape: process ``\n`` and other escapes in ``typed``, as llama-cli does.
    """
    in_file = "" if path is None or path == "-" else decode_utf8(path, Path(path).read_bytes()).removesuffix("\n")
    on_line = "" if typed is None or typed == "-" else _unescape(typed) if escape else typed
    text = "\n".join(filter(None, [in_file, _from_standard_input(typed, path), on_line]))
    if not text:
        raise click.UsageError("the prompt is empty")
    return text


def _from_standard_input(typed: str | None, path: str | None) -> str:
    if typed is not None or path is not None:
        is_requested = "-" in (typed, path)
        return read_standard_input().removesuffix("\n") if is_requested else read_piped_text("PROMPT")
    if sys.stdin.isatty():
        raise click.UsageError('give a PROMPT, --file FILE, or text on standard input (try "pyggml generate --help")')
    return read_standard_input().removesuffix("\n")


def read_piped_text(argument: str) -> str:
    """Return the text piped to the command without its last newline; "" if standard input is no pipe or file.

    If standard input is silent, a notice names the argument that the text will precede.
    """
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except OSError:  # closed
        return ""
    if stat.S_ISCHR(mode):  # a terminal or /dev/null
        return ""
    with contextlib.suppress(OSError):  # Windows can only select sockets
        if not select.select([sys.stdin], [], [], _SILENCE_S)[0]:
            click.echo(
                f"pyggml: waiting for standard input, which precedes {argument} (use < /dev/null to skip it)", err=True
            )
    return read_standard_input().removesuffix("\n")


def _unescape(text: str) -> str:
    def character(escape: re.Match[str]) -> str:
        return chr(int(escape[1][1:], 16)) if len(escape[1]) > 1 else _ESCAPES.get(escape[1], escape[1])

    return re.sub(r"""\\(x[0-9a-fA-F]{2}|[nrt'"\\])""", character, text)
