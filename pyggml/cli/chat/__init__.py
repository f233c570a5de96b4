"""``pyggml chat``: talks with a model, in a terminal or through a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pyggml.cli.arguments.model import opened
from pyggml.cli.arguments.options import load_options, model_option
from pyggml.cli.arguments.sampling import TO_THE_END, sampling_options, sampling_params
from pyggml.cli.chat.answering import Chat
from pyggml.cli.chat.inputs import PlainReader, Reader, inputs_of, typed_inputs
from pyggml.cli.chat.session import Session
from pyggml.cli.interrupts import Interrupts
from pyggml.cli.program import Command
from pyggml.cli.show.screen import Screen, obeys_escapes

if TYPE_CHECKING:
    from pyggml import LLM


@click.command("chat", cls=Command)
@model_option
@click.option("-s", "--system", metavar="TEXT", default="", help="The system message.")
@click.option("--thinking/--no-thinking", default=None, help="Let a reasoning model think before it answers, or not.")
@click.option("--stats", is_flag=True, help="After each answer, show how many tokens it took and how fast they came.")
@sampling_options(max_tokens=TO_THE_END)
@load_options
def command(
    model: str | None,
    system: str,
    thinking: bool | None,
    stats: bool,
    sampling: dict[str, Any],
    **load: Any,
) -> None:
    r"""Talk with a model.

    In a terminal, /help lists the commands and keys. Otherwise each line of standard input is a message, and so is
    everything between two sets of three double quotes; the answers go to standard output.

    \b
    pyggml chat -m model.gguf --system "Answer in one sentence."
    echo "What colour is the sky?" | pyggml chat
    """
    session = Session(system, sampling_params(sampling))
    screen, interrupts = Screen(), Interrupts()
    is_interactive = sys.stdin.isatty() and screen.is_terminal
    with (
        _reader(screen, interrupts) if is_interactive else nullcontext() as reader,
        opened(model, n_parallel=1, **load) as llm,
    ):
        llm.chat_templates()  # fails now rather than at the first question, if there is none
        chat = Chat(llm, session, screen, interrupts, thinking, stats, is_interactive)
        if reader is None:
            chat.hold(inputs_of(_lines()))
        else:
            screen.note(f"{_name(llm)}, {llm.n_ctx:,} tokens of context. /help for help, Ctrl-D to leave.")
            with interrupts:
                chat.hold(typed_inputs(reader, screen))


def _reader(screen: Screen, interrupts: Interrupts) -> AbstractContextManager[Reader]:
    if not obeys_escapes(sys.stdout):
        return nullcontext(PlainReader(screen, interrupts))
    from pyggml.cli.chat.editor import Editor

    return Editor()


def _name(llm: LLM) -> str:
    return llm.metadata.get("general.name") or Path(llm.model.path).name


def _lines() -> Iterator[str]:
    """The lines of standard input as they come."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise click.ClickException(
                f"line {number} of standard input is not UTF-8 text: {error.reason} at byte {error.start}"
            ) from None
