"""``pyggml chat``: talks with a model, in a terminal or through a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import click

import pyggml
from pyggml.cli.arguments.model import model_option
from pyggml.cli.arguments.options import load_options
from pyggml.cli.arguments.sampling import sampling_options, sampling_values
from pyggml.cli.arguments.utf8 import decoded
from pyggml.cli.chat.arguments import model_and_question, with_standard_input
from pyggml.cli.chat.controller import Chat
from pyggml.cli.chat.inputs import PlainReader, Reader, inputs_of, typed_inputs
from pyggml.cli.chat.model import ChatModel
from pyggml.cli.chat.parameters import DEFAULTS, MAX_TOKENS, MAX_TOKENS_THINKING, Parameters
from pyggml.cli.chat.session import Session, Settings
from pyggml.cli.command import Command
from pyggml.cli.interrupts import Interrupts
from pyggml.cli.program import INTERRUPTED
from pyggml.cli.show.screen import Screen, obeys_escapes

_SHOWN_DEFAULTS = {
    "max_tokens": f"{MAX_TOKENS}, or {MAX_TOKENS_THINKING} for a model that can reason",
    **{name: f"what the model's makers recommend, or {value}" for name, value in DEFAULTS.items()},
}


@click.command("chat", cls=Command)
@click.argument("words", metavar="[MODEL] [QUESTION]", nargs=-1)
@model_option
@click.option("-p", "--prompt", metavar="TEXT", help="The question, as QUESTION.")
@click.option("-sys", "--system", "--system-prompt", metavar="TEXT", default="", help="The system message.")
@click.option(
    "--chat-template",
    metavar="TEMPLATE",
    help="Replaces the model's own: the name of a template, a file with one, or Jinja text.",
)
@click.option("--thinking/--no-thinking", default=None, help="Let a reasoning model think before it answers, or not.")
@click.option("--stats", is_flag=True, help="After each answer, show how many tokens it took and how fast they came.")
@click.option("--wrap/--no-wrap", default=True, help="On a terminal, break lines between words, or not.")
@click.option("--repetition", is_flag=True, help="Do not stop an answer that repeats itself without end.")
@sampling_options(_SHOWN_DEFAULTS)
@load_options
def command(
    words: tuple[str, ...],
    model: str | None,
    prompt: str | None,
    system: str,
    chat_template: str | None,
    sampling: dict[str, Any],
    thinking: bool | None,
    stats: bool,
    wrap: bool,
    repetition: bool,
    **load: Any,
) -> None:
    r"""Talk with a model, or ask it one QUESTION.

    In a terminal, /help lists the commands and keys. Otherwise each line of standard input is a message, and so is
    everything between two sets of three double quotes; the answers go to standard output. With a QUESTION, standard
    input is text that goes before it.

    \b
    pyggml chat model.gguf --system "Answer in one sentence."
    pyggml chat model.gguf "What colour is the sky?"
    cat story.txt | pyggml chat "Sum this up."
    """
    model, question = model_and_question(words, model, prompt)
    session = Session(system, _parameters(sampling), Settings(thinking, stats, wrap, repetition))
    if question is not None:
        question = with_standard_input(question)
        _ask(ChatModel(model, chat_template, load), session, question)
    else:
        _talk(model, chat_template, load, session)


def _parameters(sampling: dict[str, Any]) -> Parameters:
    values = sampling_values(sampling)
    try:
        return Parameters(values)
    except pyggml.InvalidParameterError as error:
        raise click.UsageError(str(error)) from None


def _ask(model: ChatModel, session: Session, question: str) -> None:
    with model, Interrupts() as interrupts:
        done = Chat(model, session, Screen(), interrupts, is_interactive=False).answer(question)
        if done.finish_reason == "cancelled" and interrupts.pressed:
            raise click.exceptions.Exit(INTERRUPTED)


def _talk(model: str | None, chat_template: str | None, load: dict[str, Any], session: Session) -> None:
    screen, interrupts = Screen(), Interrupts()
    is_interactive = sys.stdin.isatty() and screen.is_terminal
    with (
        _reader(screen, interrupts) if is_interactive else nullcontext() as reader,
        ChatModel(model, chat_template, load) as opened,
    ):
        chat = Chat(opened, session, screen, interrupts, is_interactive)
        if reader is None:
            chat.hold(inputs_of(_lines()))
        else:
            name, n_ctx = opened.facts.name, opened.facts.n_ctx
            screen.note(f"{name}, {n_ctx:,} tokens of context. /help for help, Ctrl-D to leave.")
            with interrupts:
                chat.hold(typed_inputs(reader, screen))


def _reader(screen: Screen, interrupts: Interrupts) -> AbstractContextManager[Reader]:
    if not obeys_escapes(sys.stdout):
        return nullcontext(PlainReader(screen, interrupts))
    from pyggml.cli.chat.editor import Editor

    return Editor()


def _lines() -> Iterator[str]:
    """The lines of standard input as they come."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        yield decoded(f"line {number} of standard input", line)
