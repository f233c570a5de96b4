"""``pyggml chat``: a chat with a model, in a terminal or through a pipe."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click

import pyggml
from pyggml.cli.arguments.model import is_model, looks_like_model, model_option, single_model
from pyggml.cli.arguments.options import load_options
from pyggml.cli.arguments.prompt import read_piped_text
from pyggml.cli.arguments.sampling import CHAT_DEFAULTS, sampling_options, sampling_values
from pyggml.cli.arguments.text_file import decode_utf8
from pyggml.cli.chat.controller import ChatController
from pyggml.cli.chat.inputs import PlainReader, inputs_from_lines, typed_inputs
from pyggml.cli.chat.model import ChatModel
from pyggml.cli.chat.parameters import Parameters
from pyggml.cli.chat.session import Session, Settings
from pyggml.cli.command import Command
from pyggml.cli.interrupts import Interrupts
from pyggml.cli.program import INTERRUPTED
from pyggml.cli.show.screen import Screen, supports_escapes

if TYPE_CHECKING:
    from pyggml.cli.chat.editor import Editor


@click.command("chat", cls=Command)
@click.argument("words", metavar="[MODEL] [QUESTION]", nargs=-1)
@model_option
@click.option("-p", "--prompt", metavar="TEXT", help="The same as QUESTION.")
@click.option("-sys", "--system", "--system-prompt", metavar="TEXT", default="", help="The system message.")
@click.option(
    "--chat-template", metavar="TEMPLATE", help="Chat template that replaces the model's: a name, a file or Jinja text."
)
@click.option("--thinking/--no-thinking", default=None, help="Enable or disable the thinking of a reasoning model.")
@click.option("--stats", is_flag=True, help="After each answer, show the number of tokens and the speed.")
@click.option("--wrap/--no-wrap", default=True, help="Enable or disable word wrap on a terminal.")
@sampling_options(CHAT_DEFAULTS)
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
    **load: Any,
) -> None:
    r"""Chat with a model, or ask it one QUESTION.

    In a terminal, /help lists the commands and keys. Otherwise each line of standard input is a message, and so is a
    text between triple double quotes; the answers go to standard output. With a QUESTION, piped standard input is
    prepended to it.

    \b
    pyggml chat model.gguf --system "Answer in one sentence."
    pyggml chat model.gguf "What colour is the sky?"
    cat story.txt | pyggml chat "Sum this up."
    """
    model, question = _model_and_question(words, model, prompt)
    values = sampling_values(sampling)
    try:
        parameters = Parameters(values)
    except pyggml.InvalidParameterError as error:
        raise click.UsageError(str(error)) from None
    session = Session(system, parameters, Settings(thinking, stats, wrap))
    if question is None:
        _run_chat(model, chat_template, load, session)
        return
    piped = read_piped_text("QUESTION")
    with ChatModel(model, chat_template, load) as chat_model, Interrupts() as interrupts:
        controller = ChatController(chat_model, session, Screen(), interrupts, is_interactive=False)
        done = controller.answer(f"{piped}\n\n{question}" if piped else question)
        if done.finish_reason == "cancelled" and interrupts.pressed:
            raise click.exceptions.Exit(INTERRUPTED)


def _model_and_question(words: Sequence[str], model: str | None, prompt: str | None) -> tuple[str | None, str | None]:
    """Return the model and the question, given as options or as arguments: MODEL, QUESTION, or both in this order."""
    if words and (looks_like_model if model is None else is_model)(words[0]):
        named, *words = words
        model = single_model(model, named)
    elif model is None and len(words) > 1 and is_model(words[-1]):
        line = shlex.join([words[-1], " ".join(words[:-1])])
        raise click.UsageError(f"MODEL comes first: type 'pyggml chat {line}'")
    if words and prompt is not None:
        raise click.UsageError("a question and --prompt were both given: choose one")
    return model, " ".join(words) if words else prompt


def _run_chat(model: str | None, chat_template: str | None, load: dict[str, Any], session: Session) -> None:
    screen, interrupts = Screen(), Interrupts()
    is_interactive = sys.stdin.isatty() and screen.is_terminal
    with (
        _reader(screen, interrupts) if is_interactive else nullcontext() as reader,
        ChatModel(model, chat_template, load) as chat_model,
    ):
        controller = ChatController(chat_model, session, screen, interrupts, is_interactive)
        if reader is None:
            lines = enumerate(sys.stdin.buffer, start=1)
            controller.run(inputs_from_lines(decode_utf8(f"line {n} of standard input", line) for n, line in lines))
        else:
            name, n_ctx = chat_model.info.name, chat_model.info.n_ctx
            screen.note(f"{name}, {n_ctx:,} tokens of context. /help for help, Ctrl-D to leave.")
            with interrupts:
                controller.run(typed_inputs(reader, screen))


def _reader(screen: Screen, interrupts: Interrupts) -> AbstractContextManager[Editor | PlainReader]:
    if not supports_escapes(sys.stdout):
        return nullcontext(PlainReader(screen, interrupts))
    from pyggml.cli.chat.editor import Editor

    return Editor()
