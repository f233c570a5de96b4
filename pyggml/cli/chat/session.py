"""The conversation itself: it knows neither the terminal nor the model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyggml

if TYPE_CHECKING:
    from pyggml import ChatCompletion, SamplingParams

Message = dict[str, Any]


class Session:
    """What was said, and how the next answer is sampled.

    A question becomes part of the conversation together with its answer, so that a failure changes nothing.

    Attributes:
        system: the system message; "" for none.
        messages: the others, in OpenAI's form.
        params: how to sample.
        last: the last answer.
    """

    def __init__(self, system: str, params: SamplingParams) -> None:
        """Starts an empty conversation."""
        self.system = system
        self.messages: list[Message] = []
        self.params = params
        self.last: ChatCompletion | None = None
        self._unanswered: str | None = None

    def ask(self, question: str) -> list[Message]:
        """The messages that the model is to answer: all of them, and the question."""
        self._unanswered = question
        return [*self._all(), {"role": "user", "content": question}]

    def answered(self, done: ChatCompletion) -> None:
        """Adds the question and its answer, unless that was stopped before it said anything."""
        self.last = done
        message = done.message.to_dict()
        if self._unanswered is not None and any(value for key, value in message.items() if key != "role"):
            self.messages += [{"role": "user", "content": self._unanswered}, message]
            self._unanswered = None

    def take_back(self) -> str | None:
        """Removes the last question and all that followed, and returns it; None if there is no question."""
        while self.messages:
            message = self.messages.pop()
            if message["role"] == "user":
                return _text(message["content"])
        return None

    def again(self) -> str | None:
        """Takes the last answer back and returns the question; None if there is none."""
        return self.take_back() if self._unanswered is None else self._unanswered

    def undo(self) -> str | None:
        """Forgets the last question and its answer, and returns the question; None if there is none."""
        self._unanswered = None
        return self.take_back()

    def reset(self) -> None:
        """Forgets what was said; the system message and the sampling stay."""
        self.messages.clear()
        self._unanswered = None

    def dumped(self) -> str:
        """The conversation as JSON text, which :meth:`load` takes."""
        return json.dumps({"messages": self._all()}, indent=2, ensure_ascii=False) + "\n"

    def load(self, text: str) -> None:
        """Replaces the conversation by a saved one; a question at its end waits for :meth:`again`.

        Raises:
            InvalidParameterError: the text is not a conversation.
        """
        messages = conversation_in(text)
        is_system = messages[0]["role"] in ("system", "developer")
        self.system = _text(messages[0]["content"]) if is_system else ""
        self.messages = messages[1:] if is_system else messages
        self._unanswered = None
        if self.messages and self.messages[-1]["role"] == "user":
            self._unanswered = self.take_back()

    def _all(self) -> list[Message]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, *self.messages]


def conversation_in(text: str) -> list[Message]:
    """The messages in a JSON text, ``{"messages": [...]}`` or the list itself.

    Raises:
        InvalidParameterError: the text is not a conversation.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise pyggml.InvalidParameterError(f"this is not JSON: {error}") from None
    found = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(found, list):
        raise pyggml.InvalidParameterError('this is not a conversation, such as {"messages": [...]}')
    return pyggml.checked_messages(found)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
