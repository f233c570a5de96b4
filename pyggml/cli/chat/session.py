"""A conversation with a model, as nobody sees it: no terminal, no model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyggml

if TYPE_CHECKING:
    from pyggml import ChatCompletion, SamplingParams

Message = dict[str, Any]


class Session:
    """What was said, and how the next answer is made.

    A question enters the conversation together with its answer, so that one which failed leaves it as it was.

    Attributes:
        system: the system message; "" is none.
        messages: the others, in OpenAI's form.
        params: how to sample.
        last: the last answer.
    """

    def __init__(self, system: str, params: SamplingParams) -> None:
        """Begins with nothing said."""
        self.system = system
        self.messages: list[Message] = []
        self.params = params
        self.last: ChatCompletion | None = None
        self._unanswered: str | None = None

    def ask(self, question: str) -> list[Message]:
        """What the model is to answer: everything, with the question at its end."""
        self._unanswered = question
        return [*self._all(), {"role": "user", "content": question}]

    def answered(self, done: ChatCompletion) -> None:
        """Takes an answer to what was asked; one that was stopped before it said anything is none."""
        self.last = done
        message = done.message.to_dict()
        if self._unanswered is not None and any(value for key, value in message.items() if key != "role"):
            self.messages += [{"role": "user", "content": self._unanswered}, message]
            self._unanswered = None

    def take_back(self) -> str | None:
        """Removes the last question and all that followed it, and returns it; None: there is none."""
        while self.messages:
            message = self.messages.pop()
            if message["role"] == "user":
                return _text(message["content"])
        return None

    def again(self) -> str | None:
        """What was asked last, its answer taken back; None: nothing was."""
        return self.take_back() if self._unanswered is None else self._unanswered

    def undo(self) -> str | None:
        """Forgets the last question with its answer, and returns it; None: there is none."""
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
        """Takes up a conversation in place of this one; a question at its end waits for :meth:`again`.

        Raises:
            InvalidParameterError: the text holds none.
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
        InvalidParameterError: there are none.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise pyggml.InvalidParameterError(f"it is no JSON: {error}") from None
    found = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(found, list):
        raise pyggml.InvalidParameterError('it is no conversation: {"messages": [...]}')
    return pyggml.checked_messages(found)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
