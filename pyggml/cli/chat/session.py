"""The conversation itself: it knows neither the terminal nor the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyggml
from pyggml.cli.chat.model import Facts
from pyggml.cli.chat.parameters import Parameters

if TYPE_CHECKING:
    from pyggml import ChatCompletion

Message = dict[str, Any]


@dataclass
class Settings:
    """How answers come about and are shown, apart from the sampling.

    Attributes:
        thinking: whether the model thinks before it answers; None: its template decides.
        stats: show what each answer took.
        wrap: break lines between words.
        repetition: let an answer repeat itself without end.
    """

    thinking: bool | None = None
    stats: bool = False
    wrap: bool = True
    repetition: bool = False


class Session:
    """What was said, and how the next answer comes about.

    A question becomes part of the conversation together with its answer, so that a failure changes nothing.

    Attributes:
        system: the system message; "" for none.
        messages: the others, in OpenAI's form.
        parameters: how to sample.
        settings: the rest.
        model: who answers.
        last: the last answer.
        attached: texts of files that go before the next question.
    """

    def __init__(self, system: str, parameters: Parameters, settings: Settings | None = None) -> None:
        """Starts an empty conversation."""
        self.system = system
        self.messages: list[Message] = []
        self.parameters = parameters
        self.settings = settings or Settings()
        self.model = Facts()
        self.last: ChatCompletion | None = None
        self.attached: list[str] = []
        self._unanswered: str | None = None
        self._last_way: object = None

    def talk_to(self, model: Facts) -> None:
        """Goes on with a model, and its makers' sampling."""
        self.model = model
        self.parameters.use_defaults(model.recommended, thinks=model.thinks)

    def ask(self, question: str) -> list[Message]:
        """The messages that the model is to answer: all of them, and the question with what was attached."""
        self._unanswered = "\n\n".join([*self.attached, question])
        self.attached.clear()
        return [*self._all(), {"role": "user", "content": self._unanswered}]

    def answered(self, done: ChatCompletion) -> None:
        """Adds the question and its answer, unless that was stopped before it said anything."""
        self.last = done
        self._last_way = self._way
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

    @property
    def reason_to_stay_the_same(self) -> str:
        """What to change for another answer to the last question; "" if the next will be another anyway."""
        same = self._unanswered is None and self._last_way == self._way
        return self.parameters.reason_to_stay_the_same if same else ""

    def undo(self) -> str | None:
        """Forgets the last question and its answer, and returns the question; None if there is none."""
        self._unanswered = None
        return self.take_back()

    def reset(self) -> None:
        """Forgets what was said; the system message and the sampling stay."""
        self.messages.clear()
        self.attached.clear()
        self._unanswered = None

    def dumped(self) -> str:
        """The conversation as JSON text, which :meth:`load` takes."""
        value = {"model": self.model.source, "sampling": self.parameters.given, "messages": self._all()}
        return json.dumps(value, indent=2, ensure_ascii=False) + "\n"

    def load(self, text: str) -> str:
        """Replaces the conversation, and the sampling if that was saved; a question at its end waits for :meth:`again`.

        Returns:
            The model that it was held with; "" if the text does not say, or for the one that ships with pyggml.

        Raises:
            InvalidParameterError: the text is not a conversation; nothing changes.
        """
        value = _json(text)
        messages = _messages(value)
        saved: Mapping[str, Any] = value if isinstance(value, dict) else {}
        given = _sampling(saved.get("sampling"))
        is_system = messages[0]["role"] in ("system", "developer")
        self.reset()
        self.system = _text(messages[0]["content"]) if is_system else ""
        self.messages = messages[1:] if is_system else messages
        if given is not None:
            self.parameters.given = given
        if self.messages and self.messages[-1]["role"] == "user":
            self._unanswered = self.take_back()
        return str(saved.get("model") or "")

    @property
    def _way(self) -> object:
        """All that the next answer depends on but what was said."""
        return self.model.source, self.system, self.settings.thinking, self.parameters.effective

    def _all(self) -> list[Message]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, *self.messages]


def conversation_in(text: str) -> list[Message]:
    """The messages in a JSON text, ``{"messages": [...]}`` or the list itself.

    Raises:
        InvalidParameterError: the text is not a conversation.
    """
    return _messages(_json(text))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise pyggml.InvalidParameterError(f"this is not JSON: {error}") from None


def _messages(value: Any) -> list[Message]:
    found = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(found, list):
        raise pyggml.InvalidParameterError('this is not a conversation, such as {"messages": [...]}')
    return pyggml.checked_messages(found)


def _sampling(value: Any) -> dict[str, Any] | None:
    """The parameters that were saved, as they were given; None: none were saved."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise pyggml.InvalidParameterError('"sampling" must be an object, such as {"temperature": 0.8}')
    if isinstance(bias := value.get("logit_bias"), dict):  # JSON has no numbers for keys
        value = {**value, "logit_bias": {int(key) if key.isdecimal() else key: each for key, each in bias.items()}}
    params = replace(pyggml.SamplingParams(), **value)
    return {name: getattr(params, name) for name in value}


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
