"""The chat loop: from an input to an answer on the screen."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

import pyggml
from pyggml.cli.chat import commands
from pyggml.cli.chat.model import ChatModel
from pyggml.cli.chat.repetition import without_repetition
from pyggml.cli.chat.session import Session
from pyggml.cli.interrupts import Interrupts
from pyggml.cli.program import one_line
from pyggml.cli.show.screen import Screen, stats_line

if TYPE_CHECKING:
    from pyggml import ChatCompletion, ChatStream

_CONTEXT_HINT = "/reset starts over, /undo removes the last question, --n-ctx sets a larger context"


@dataclass
class ChatController:
    """The loop of a conversation with a model on a screen. An interactive chat continues after an error."""

    model: ChatModel
    session: Session
    screen: Screen
    interrupts: Interrupts
    is_interactive: bool

    def __post_init__(self) -> None:
        self.session.use_model(self.model.info)

    def run(self, inputs: Iterable[str]) -> None:
        """Process inputs until the last one, or until a command to exit."""
        for text in inputs:
            try:
                if self._handle(text):
                    return
            except BrokenPipeError:
                raise
            except (click.ClickException, pyggml.InferError, OSError) as error:
                if not self.is_interactive:
                    raise
                self.screen.note(one_line(error))

    def answer(self, question: str) -> ChatCompletion:
        """Send a question to the model, show the answer, and add both to the conversation."""
        self.interrupts.pressed = False
        self.screen.wraps = self.session.settings.wrap
        done = self._stream_answer(question)
        if done.stop_reason == "repetition":
            message = replace(done.message, content=without_repetition(done.message.content))
            done = replace(done, message=message)
        self.session.add_answer(done)
        self.screen.end_line()
        if note := self._note(done):
            self.screen.note(note)
        if self.session.settings.stats:
            click.echo(stats_line(done), err=True)
        return done

    def _handle(self, text: str) -> bool:
        """Run a command or answer a question; return True for the command to exit."""
        outcome = commands.run_input(self.session, text)
        if outcome.message:
            self.screen.note(outcome.message)
        if outcome.model:
            self._change_model(outcome.model)
        if outcome.question is not None:
            self.answer(outcome.question)
        return outcome.exits

    def _change_model(self, source: str) -> None:
        try:
            with self.interrupts.raising() if self.is_interactive else nullcontext():
                self.model.change(source)
        except KeyboardInterrupt:
            if not self.is_interactive:
                raise
            self.screen.note(f"[stopped: the model is still {self.model.info.name}]")
            return
        self.session.use_model(self.model.info)
        self.screen.note(f"{self.model.info.name} continues the conversation.")

    def _stream_answer(self, question: str) -> ChatCompletion:
        try:
            stream = self.model.llm.stream_chat(
                self.session.add_question(question),
                params=self.session.parameters.effective,
                thinking=self.session.settings.thinking,
                chat_template=self.model.templates,
            )
        except pyggml.ContextOverflowError as error:
            raise click.ClickException(f"{error}. {_CONTEXT_HINT}") from None
        with self.interrupts.cancelling(stream.cancel):
            self._show(stream)
        return stream.completion

    def _show(self, stream: ChatStream) -> None:
        """Show an answer as it is generated, with its reasoning only on a terminal."""
        thinking, answer = _AnswerSection(self.screen, dim=True), _AnswerSection(self.screen)
        for chunk in stream:
            if self.screen.is_terminal:
                thinking.show(chunk.reasoning_content, "[thinking]\n")
            answer.show(chunk.content, "[answer]\n" if thinking.has_begun else "")

    def _note(self, done: ChatCompletion) -> str:
        """Return a note on an unusual end of an answer; "" for the usual end."""
        if done.stop_reason == "repetition":
            option = "/set repetition_guard off" if self.is_interactive else "--no-repetition-guard"
            kept = "the conversation keeps one copy"
            return f"[stopped: the answer repeats itself; {kept}. {option} disables this check]"
        if done.finish_reason == "cancelled":
            return "[stopped]"
        if done.finish_reason == "timeout":
            return "[stopped: timeout_s has passed]"
        if done.finish_reason == "stop" and not (done.message.content or done.message.reasoning_content):
            return "[empty answer, not added to the conversation]"
        if done.finish_reason != "length":
            return ""
        if done.stop_reason == "max_tokens":
            limit = self.session.parameters.effective.max_tokens
            option = "/set max_tokens -1" if self.is_interactive else "--max-tokens -1"
            return f"[cut at max_tokens {limit}: {option} sets no limit]"
        return f"[the context is full: {_CONTEXT_HINT}]"


@dataclass
class _AnswerSection:
    """A section of an answer: the reasoning or the content."""

    screen: Screen
    dim: bool = False
    has_begun: bool = False

    def show(self, text: str, heading: str) -> None:
        """Show more text, after the heading and without leading empty lines at the start."""
        if not self.has_begun:
            text = text.lstrip("\n")
            if not text:
                return
            self.has_begun = True
            self.screen.end_line()
            self.screen.write(heading, dim=True)
        self.screen.write(text, dim=self.dim)
