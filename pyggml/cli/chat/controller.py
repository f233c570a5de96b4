"""A chat, from what a user types to an answer on the screen."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

import pyggml
from pyggml.cli.chat import commands
from pyggml.cli.chat.model import ChatModel
from pyggml.cli.chat.repetition import RepetitionGuard, said_once
from pyggml.cli.chat.session import Session
from pyggml.cli.interrupts import Interrupts
from pyggml.cli.program import one_line
from pyggml.cli.show.screen import Screen, stats_line

if TYPE_CHECKING:
    from pyggml import ChatCompletion, ChatStream

_MORE_ROOM = "/reset starts over, /undo forgets the last question, --n-ctx makes more room"


@dataclass
class Chat:
    """A conversation with a model, and where it is shown.

    Attributes:
        model: answers.
        session: what was said.
        screen: where answers go.
        interrupts: what Ctrl-C stops.
        is_interactive: somebody is there who can try again after a mistake.
    """

    model: ChatModel
    session: Session
    screen: Screen
    interrupts: Interrupts
    is_interactive: bool

    def __post_init__(self) -> None:
        self.session.talk_to(self.model.facts)

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

    def answer(self, question: str) -> ChatCompletion:
        """Asks the model, shows its answer, and adds both to the conversation.

        Raises:
            click.ClickException, InferError: it cannot be asked.
        """
        self.interrupts.forget()
        self.screen.wraps = self.session.settings.wrap
        done, is_repeating = self._streamed(question)
        if is_repeating:
            message = replace(done.message, content=said_once(done.message.content))
            done = replace(done, message=message)
        self.session.answered(done)
        self.screen.end_line()
        if remark := self._repetition if is_repeating else self._remark(done):
            self.screen.note(remark)
        if self.session.settings.stats:
            click.echo(stats_line(done), err=True)
        return done

    def _handle(self, text: str) -> bool:
        """Runs a command or answers a question, and returns whether that was the command to leave."""
        outcome = commands.understood(self.session, text)
        if outcome.say:
            self.screen.note(outcome.say)
        if outcome.model:
            self._change_model(outcome.model)
        if outcome.ask is not None:
            self.answer(outcome.ask)
        return outcome.leave

    def _change_model(self, source: str) -> None:
        try:
            with self.interrupts.raising() if self.is_interactive else nullcontext():
                self.model.change(source)
        except KeyboardInterrupt:
            if not self.is_interactive:
                raise
            self.screen.note(f"[stopped: {self.model.facts.name} stays]")
            return
        self.session.talk_to(self.model.facts)
        self.screen.note(f"{self.model.facts.name} goes on with the conversation.")

    def _streamed(self, question: str) -> tuple[ChatCompletion, bool]:
        """The answer, and whether it was stopped because it repeated itself."""
        try:
            stream = self.model.llm.stream_chat(
                self.session.ask(question),
                params=self.session.parameters.effective,
                thinking=self.session.settings.thinking,
                chat_template=self.model.templates,
            )
        except pyggml.ContextOverflowError as error:
            raise click.ClickException(f"{error}. {_MORE_ROOM}") from None
        with self.interrupts.stopping(stream.cancel):
            is_repeating = self._show(stream)
        return stream.completion, is_repeating

    def _show(self, stream: ChatStream) -> bool:
        """Shows an answer as it comes, and returns whether it was stopped because it repeated itself.

        Only people see the reasoning: a program gets the answer alone.
        """
        thinking, answer = _Part(self.screen, dim=True), _Part(self.screen)
        guard = None if self._may_repeat else RepetitionGuard()
        is_repeating = False
        for chunk in stream:
            if self.screen.is_terminal:
                thinking.show(chunk.reasoning_content, "[thinking]\n")
            answer.show(chunk.content, "[answer]\n" if thinking.has_begun else "")
            if guard is not None and not is_repeating and guard.repeats(chunk.text):
                is_repeating = True
                stream.cancel()
        return is_repeating

    @property
    def _may_repeat(self) -> bool:
        return self.session.settings.repetition or self.session.parameters.effective.ignore_eos

    @property
    def _repetition(self) -> str:
        way_out = "/set repetition on" if self.is_interactive else "--repetition"
        return f"[stopped: the answer repeats itself. The conversation keeps it once; {way_out} lets it go on]"

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
        limit = self.session.parameters.effective.max_tokens
        if len(done.token_ids) >= limit:
            way_out = "/set max_tokens -1" if self.is_interactive else "--max-tokens -1"
            return f"[cut at max_tokens {limit}: {way_out} sets no limit]"
        return f"[the context is full: {_MORE_ROOM}]"


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
