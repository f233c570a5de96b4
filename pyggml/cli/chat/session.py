"""The state of a conversation, independent of the terminal and the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import pyggml
from pyggml.cli.chat.model import ChatModelInfo
from pyggml.cli.chat.parameters import Parameters

if TYPE_CHECKING:
    from pyggml import ChatCompletion

Message = dict[str, Any]


@dataclass
class Settings:
    """Settings of a chat other than sampling.

    Attributes:
        thinking: None: the chat template's default.
    """

    thinking: bool | None = None
    stats: bool = False
    wrap: bool = True


class Session:
    """A conversation and the settings of the next answer.

    A question is added to the conversation together with its answer, so that a failed request changes nothing.

    Attributes:
        system: the system message; "" for none.
        messages: the other messages, in OpenAI's format.
        last: the last answer.
        attachments: texts of files that precede the next question.
        replaceable: files that /save may replace without asking: its own, and those that it has asked for.
    """

    def __init__(self, system: str, parameters: Parameters, settings: Settings | None = None) -> None:
        """Start an empty conversation."""
        self.system = system
        self.messages: list[Message] = []
        self.parameters = parameters
        self.settings = settings or Settings()
        self.model = ChatModelInfo()
        self.last: ChatCompletion | None = None
        self.attachments: list[str] = []
        self.replaceable: set[Path] = set()
        self._pending_question: str | None = None
        self._last_answer_inputs: object = None

    def use_model(self, model: ChatModelInfo) -> None:
        """Continue with a model, and use its recommended sampling."""
        self.model = model
        self.parameters.use_defaults(model.recommended)

    def add_question(self, question: str) -> list[Message]:
        """Return the messages of the next request: the conversation, and the question after its attachments."""
        self._pending_question = "\n\n".join([*self.attachments, question])
        self.attachments.clear()
        return [*self._all_messages(), {"role": "user", "content": self._pending_question}]

    def add_answer(self, done: ChatCompletion) -> None:
        """Add the question and its answer to the conversation, unless the answer is empty."""
        self.last = done
        self._last_answer_inputs = self._answer_inputs
        message = done.message.to_dict()
        if self._pending_question is not None and any(value for key, value in message.items() if key != "role"):
            self.messages += [{"role": "user", "content": self._pending_question}, message]
            self._pending_question = None

    def _pop_question(self) -> str:
        """Remove the last question and all messages after it, and return it."""
        while self.messages:
            message = self.messages.pop()
            if message["role"] == "user":
                return _text(message["content"])
        raise click.ClickException("there is no question yet")

    def retry(self) -> str:
        """Remove the last answer and return its question."""
        return self._pop_question() if self._pending_question is None else self._pending_question

    @property
    def determinism_hint(self) -> str:
        """A hint if a retry would give the same answer; "" if it may give another."""
        is_same = self._pending_question is None and self._last_answer_inputs == self._answer_inputs
        return self.parameters.determinism_hint if is_same else ""

    def undo(self) -> str:
        """Remove the last question and its answer, and return the question."""
        self._pending_question = None
        return self._pop_question()

    def reset(self) -> None:
        """Remove all messages except the system message; keep the sampling parameters."""
        self.messages.clear()
        self.attachments.clear()
        self._pending_question = None

    def to_json(self) -> str:
        """Return the conversation as JSON, for :meth:`load_json`."""
        value = {"model": self.model.source, "sampling": self.parameters.given, "messages": self._all_messages()}
        return json.dumps(value, indent=2, ensure_ascii=False) + "\n"

    def load_json(self, text: str) -> str:
        """Replace the conversation, and the sampling if it was saved. A last unanswered question can be retried.

        Returns:
            The model of the conversation; "" if unknown, or for the one that ships with pyggml.

        Raises:
            InvalidParameterError: the text is not a conversation; nothing changes.
        """
        value = _json(text)
        messages = _checked_messages(value)
        saved: Mapping[str, Any] = value if isinstance(value, dict) else {}
        given = _sampling(saved.get("sampling"))
        is_system = messages[0]["role"] in ("system", "developer")
        self.reset()
        self.system = _text(messages[0]["content"]) if is_system else ""
        self.messages = messages[1:] if is_system else messages
        if given is not None:
            self.parameters.given = given
        if self.messages and self.messages[-1]["role"] == "user":
            self._pending_question = self._pop_question()
        return str(saved.get("model") or "")

    @property
    def _answer_inputs(self) -> object:
        """The inputs of the next answer other than the messages."""
        return self.model.source, self.system, self.settings.thinking, self.parameters.effective

    def _all_messages(self) -> list[Message]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, *self.messages]


def parse_conversation(text: str) -> list[Message]:
    """Parse the messages in a JSON text: ``{"messages": [...]}`` or the list itself."""
    return _checked_messages(_json(text))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise pyggml.InvalidParameterError(f"this is not JSON: {error}") from None


def _checked_messages(value: Any) -> list[Message]:
    found = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(found, list):
        raise pyggml.InvalidParameterError('this is not a conversation, such as {"messages": [...]}')
    return pyggml.checked_messages(found)


def _sampling(value: Any) -> dict[str, Any] | None:
    """Check the saved sampling parameters; None: none were saved."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise pyggml.InvalidParameterError('"sampling" must be an object, such as {"temperature": 0.8}')
    if isinstance(bias := value.get("logit_bias"), dict):  # keys are strings in JSON
        value = {**value, "logit_bias": {int(key) if key.isdecimal() else key: each for key, each in bias.items()}}
    params = replace(pyggml.SamplingParams(), **value)
    return {name: getattr(params, name) for name in value}


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
