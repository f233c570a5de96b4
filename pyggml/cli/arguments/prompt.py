"""The prompt of a command: from the command line, a file, and standard input."""

from __future__ import annotations

import os
import re
import select
import stat
import sys
from pathlib import Path

import click

from pyggml.cli.arguments.utf8 import decoded

_PATIENCE_S = 2.0  # how long standard input may be silent before the user is told what the command waits for
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def joined_prompt(typed: str | None, path: str | None, *, escape: bool) -> str:
    r"""The texts of a file, of standard input and of the command line, in this order, a line each.

    Standard input is read if a text is piped into it, as by ``llm`` and ollama, or if there is no other.

    Args:
        typed: on the command line; "-" stands for standard input.
        path: of a file; "-" stands for standard input.
        escape: read ``\n`` and the like in what was typed as llama-cli does.

    Raises:
        click.ClickException: there is no text, or it is not UTF-8.
    """
    in_file = "" if path is None or path == "-" else decoded(path, Path(path).read_bytes()).removesuffix("\n")
    on_line = "" if typed is None or typed == "-" else _unescaped(typed) if escape else typed
    text = "\n".join(filter(None, [in_file, _from_standard_input(typed, path), on_line]))
    if not text:
        raise click.UsageError("the prompt is empty")
    return text


def _from_standard_input(typed: str | None, path: str | None) -> str:
    if typed is not None or path is not None:
        return _standard_input() if "-" in (typed, path) else piped_text("PROMPT")
    if sys.stdin.isatty():
        raise click.UsageError('give a PROMPT, --file FILE, or text on standard input (try "pyggml generate --help")')
    return _standard_input()


def piped_text(before: str) -> str:
    """The text that is piped to the command, without the newline at its end; "" if there is none.

    Args:
        before: what it goes before, for the user who waits without knowing for what.

    Raises:
        click.ClickException: it is not UTF-8.
    """
    if not _is_piped():
        return ""
    _say_if_silent(before)
    return _standard_input()


def _is_piped() -> bool:
    """Whether somebody chose standard input: a pipe, a socket or a file, not a terminal or ``/dev/null``."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except OSError:  # it is closed
        return False
    return not stat.S_ISCHR(mode)


def _say_if_silent(before: str) -> None:
    try:
        is_ready = select.select([sys.stdin], [], [], _PATIENCE_S)[0]
    except OSError:  # Windows asks only sockets
        return
    if not is_ready:
        click.echo(
            f"pyggml: waiting for standard input, which goes before {before} (< /dev/null leaves it out)", err=True
        )


def _standard_input() -> str:
    return decoded("standard input", sys.stdin.buffer.read()).removesuffix("\n")


def _unescaped(text: str) -> str:
    def character(escape: re.Match[str]) -> str:
        return chr(int(escape[1][1:], 16)) if len(escape[1]) > 1 else _ESCAPES.get(escape[1], escape[1])

    return re.sub(r"""\\(x[0-9a-fA-F]{2}|[nrt'"\\])""", character, text)
