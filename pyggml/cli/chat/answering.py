"""A chat, from what a user types to an answer on the screen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

import pyggml
from pyggml.cli.chat import commands
from pyggml.cli.chat.session import Session
from pyggml.cli.interrupts import Interrupts
from pyggml.cli.program import one_line
from pyggml.cli.show.screen import Screen, stats_line

if TYPE_CHECKING:
    from pyggml import LLM, ChatCompletion, ChatStream


@dataclass
class Chat:
    """A conversation with a model, and where it is shown.

    Attributes:
        llm: answers.
        session: what was said.
        screen: where answers go.
        interrupts: what Ctrl-C stops.
        thinking: whether the model thinks before it answers; None: its template decides.
        stats: show what each answer took.
        is_interactive: somebody is there who can try again after a mistake.
    """

    llm: LLM
    session: Session
    screen: Screen
    interrupts: Interrupts
    thinking: bool | None
    stats: bool
    is_interactive: bool

    def hold(self, inputs: Iterable[str]) -> None:
        """Takes inputs until there are no more, or one of them is the command to leave.

        Raises:
            click.ClickException, InferError, OSError: an input failed, and nobody is there to try again.
        """
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

    def _handle(self, text: str) -> bool:
        """Runs a command or answers a question, and returns whether that was the command to leave."""
        outcome = commands.understood(self.session, text)
        if outcome.say:
            self.screen.note(outcome.say)
        if outcome.ask is not None:
            self._answer(outcome.ask)
        return outcome.leave

    def _answer(self, question: str) -> None:
        self.interrupts.forget()
        done = self._streamed(question)
        self.session.answered(done)
        self.screen.end_line()
        if remark := self._remark(done):
            self.screen.note(remark)
        if self.stats:
            click.echo(stats_line(done), err=True)

    def _streamed(self, question: str) -> ChatCompletion:
        try:
            stream = self.llm.stream_chat(
                self.session.ask(question), params=self.session.params, thinking=self.thinking
            )
        except pyggml.ContextOverflowError as error:
            raise click.ClickException(
                f"{error}. /reset starts over, /undo forgets the last question, --n-ctx makes more room"
            ) from None
        with self.interrupts.stopping(stream.cancel):
            self._show(stream)
        return stream.completion

    def _show(self, stream: ChatStream) -> None:
        """Only people see the reasoning: a program gets the answer alone."""
        thinking, answer = _Part(self.screen, dim=True), _Part(self.screen)
        for chunk in stream:
            if self.screen.is_terminal:
                thinking.show(chunk.reasoning_content, "[thinking]\n")
            answer.show(chunk.content, "[answer]\n" if thinking.has_begun else "")

    def _remark(self, done: ChatCompletion) -> str:
        """What to say about how it ended; "" if it just stopped."""
        if done.finish_reason == "cancelled":
            return "[stopped]"
        if done.finish_reason == "timeout":
            return "[timeout_s has passed]"
        if done.finish_reason == "stop" and not (done.message.content or done.message.reasoning_content):
            return "[an empty answer, which is left out of the conversation]"
        if done.finish_reason != "length":
            return ""
        if len(done.token_ids) >= self.session.params.max_tokens:
            return f"[cut at max_tokens {self.session.params.max_tokens}]"
        return "[the context is full: /reset starts over, /undo forgets the last question, --n-ctx makes more room]"


@dataclass
class _Part:
    """One of the two parts of an answer: the reasoning, or the answer itself."""

    screen: Screen
    dim: bool = False
    has_begun: bool = False

    def show(self, text: str, heading: str) -> None:
        """Shows more of it. Before the first of it comes the heading; empty lines there are left out."""
        if not self.has_begun:
            text = text.lstrip("\n")
            if not text:
                return
            self.has_begun = True
            self.screen.end_line()
            self.screen.write(heading, dim=True)
        self.screen.write(text, dim=self.dim)
